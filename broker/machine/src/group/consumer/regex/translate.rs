//! RE2 syntax in that of the `regex` crate.
//!
//! | RE2 | here |
//! | --- | --- |
//! | `\Q…\E` is literal | escaped |
//! | `\d` `\w` `\s` and their opposites mean ASCII | written out as classes |
//! | `[` `&` `~` in a class are characters, `-` next to `-` too | escaped |
//! | `{` that begins no count is a character | escaped |
//! | a count is at most 1000, and nothing is repeated twice in a row | others are refused |
//! | flags are `i` `m` `s` `U` | others are refused |
//! | an escaped character that is no letter or digit is itself | escaped where it would mean something |

/// How often something may be repeated by one count.
const REPEAT_MAX: u32 = 1_000;
/// Characters that mean something within a class.
const CLASS_SPECIAL: &str = "[]&~^-\\";

/// The reason where it is not RE2 syntax; what is left for the compiler to refuse passes.
pub(super) fn translate(text: &str) -> Result<String, &'static str> {
    let mut translation = Translation { left: text, out: String::with_capacity(text.len() + 16) };
    let mut is_repeated = false;
    while let Some(next) = translation.left.chars().next() {
        let repeats = translation.repetition()?;
        if repeats && is_repeated {
            return Err("something is repeated twice in a row");
        }
        is_repeated = repeats;
        if repeats {
            continue;
        }
        match next {
            '\\' => translation.escape()?,
            '[' => translation.class()?,
            '(' => translation.group()?,
            '{' => translation.literal(next),
            other => translation.take(other),
        }
    }
    Ok(translation.out)
}

struct Translation<'a> {
    left: &'a str,
    out: String,
}

impl Translation<'_> {
    /// Copies the next character.
    fn take(&mut self, next: char) {
        self.skip(next.len_utf8());
        self.out.push(next);
    }

    /// Copies the next character as one that means nothing.
    fn literal(&mut self, next: char) {
        self.out.push('\\');
        self.take(next);
    }

    /// An operator that repeats what stands before it, if one comes next, and the question mark behind it.
    fn repetition(&mut self) -> Result<bool, &'static str> {
        let len = match self.left.chars().next() {
            Some('*' | '+' | '?') => 1,
            Some('{') => match count_len(self.left)? {
                Some(len) => len,
                None => return Ok(false),
            },
            Some(_) | None => return Ok(false),
        };
        let len = if self.left.get(len..).is_some_and(|rest| rest.starts_with('?')) { len + 1 } else { len };
        self.out.push_str(self.left.get(..len).unwrap_or_default());
        self.skip(len);
        Ok(true)
    }

    fn skip(&mut self, bytes: usize) {
        self.left = self.left.get(bytes..).unwrap_or_default();
    }

    /// An escape outside of a class.
    fn escape(&mut self) -> Result<(), &'static str> {
        if let Some(quoted) = self.left.strip_prefix(r"\Q") {
            let (literal, rest) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            self.out.push_str(&regex::escape(literal));
            self.left = rest;
            return Ok(());
        }
        let (escape, len) = escaped(self.left)?;
        self.out.push_str(&escape);
        self.skip(len);
        Ok(())
    }

    /// An opening parenthesis and the flags behind it.
    fn group(&mut self) -> Result<(), &'static str> {
        self.take('(');
        let Some(flags) = self.left.strip_prefix('?') else { return Ok(()) };
        if flags.starts_with("P<") || flags.starts_with('<') {
            return Ok(());
        }
        let len = flags.find([':', ')']).ok_or("a group is not closed")?;
        match flags.get(..len) {
            Some(flags) if flags.chars().all(|flag| "imsU-".contains(flag)) => Ok(()),
            _ => Err("an unknown flag"),
        }
    }

    fn class(&mut self) -> Result<(), &'static str> {
        self.take('[');
        if self.left.starts_with('^') {
            self.take('^');
        }
        let mut is_first = true;
        loop {
            let next = self.left.chars().next().ok_or("a class is not closed")?;
            if next == ']' && !is_first {
                self.take(']');
                return Ok(());
            }
            is_first = false;
            if let Some(named) = self.left.strip_prefix("[:")
                && let Some(len) = named.find(":]")
            {
                let named = self.left.get(..len + 4).unwrap_or_default();
                self.out.push_str(named);
                self.skip(named.len());
                continue;
            }
            self.class_item()?;
            let mut behind = self.left.chars();
            let is_range = behind.next() == Some('-') && !matches!(behind.next(), None | Some(']'));
            if is_range {
                self.take('-');
                self.class_item()?;
            }
        }
    }

    /// One character, or an escape, of a class.
    fn class_item(&mut self) -> Result<(), &'static str> {
        let next = self.left.chars().next().ok_or("a class is not closed")?;
        if next == '\\' {
            let (escape, len) = escaped(self.left)?;
            self.out.push_str(&escape);
            self.skip(len);
            return Ok(());
        }
        if CLASS_SPECIAL.contains(next) {
            self.out.push('\\');
        }
        self.take(next);
        Ok(())
    }
}

/// An escape, written out, and its length in the text that begins with it.
fn escaped(text: &str) -> Result<(String, usize), &'static str> {
    let letter = text.chars().nth(1).ok_or("a backslash at the end")?;
    let len = 1 + letter.len_utf8();
    let written = match letter {
        'd' => "[0-9]".to_owned(),
        'D' => "[^0-9]".to_owned(),
        'w' => "[0-9A-Za-z_]".to_owned(),
        'W' => "[^0-9A-Za-z_]".to_owned(),
        's' => r"[\t\n\f\r ]".to_owned(),
        'S' => r"[^\t\n\f\r ]".to_owned(),
        'p' | 'P' | 'x' if text.get(len..).is_some_and(|rest| rest.starts_with('{')) => {
            let end = text.find('}').ok_or("a brace is not closed")? + 1;
            return Ok((text.get(..end).unwrap_or_default().to_owned(), end));
        }
        letter if letter.is_ascii_alphanumeric() => format!("\\{letter}"),
        other => regex::escape(&other.to_string()),
    };
    Ok((written, len))
}

/// Length of `{3}`, `{3,}` or `{3,5}` where the text begins with one.
fn count_len(text: &str) -> Result<Option<usize>, &'static str> {
    let Some(end) = text.find('}') else { return Ok(None) };
    let inner = text.get(1..end).unwrap_or_default();
    let (min, max) = inner.split_once(',').unwrap_or((inner, inner));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(min) || !(max.is_empty() && inner.contains(',') || is_number(max)) {
        return Ok(None);
    }
    let is_allowed = |text: &str| text.is_empty() || text.parse::<u32>().is_ok_and(|count| count <= REPEAT_MAX);
    if is_allowed(min) && is_allowed(max) { Ok(Some(end + 1)) } else { Err("a count is too large") }
}
