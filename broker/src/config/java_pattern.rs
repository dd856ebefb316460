//! Whether Java's `java.util.regex.Pattern` compiles a text, as far as that can be said without its tables.
//!
//! Client metrics subscriptions match clients by such patterns, and Kafka refuses those that do not compile. Nothing here
//! matches anything: subscriptions are stored and shown. The `regex` crate would not do: it refuses what Java allows
//! (look-around, back references, possessive quantifiers) and allows what Java does not.
//!
//! Not looked up are names of scripts, blocks and characters (`\p{IsGreek}`, `\N{DIGIT ONE}`), and no look-behind is refused for
//! what it may match being without an upper bound: Java sees that of some, and differently from version to version.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

/// Whether `pattern` compiles without flags.
pub fn is_java_pattern(pattern: &str) -> bool {
    let mut checker =
        Checker { text: without_quotes(pattern), at: 0, comments: false, groups: Vec::new(), names: BTreeSet::new() };
    checker.pattern().is_some()
}

/// `\Q...\E` written as escapes; the last `\E` may be missing.
fn without_quotes(pattern: &str) -> Vec<char> {
    let mut text = Vec::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    while let Some(next) = rest.next() {
        if next == '\\' && rest.next_if_eq(&'Q').is_some() {
            quoted(&mut rest, &mut text);
            continue;
        }
        text.push(next);
        if next == '\\' {
            text.extend(rest.next());
        }
    }
    text
}

fn quoted(rest: &mut Peekable<Chars<'_>>, text: &mut Vec<char>) {
    let mut is_first = true;
    while let Some(next) = rest.next() {
        match next {
            '\\' if rest.next_if_eq(&'E').is_some() => return,
            // A digit must not become part of an escape before it.
            '0'..='9' if is_first => text.extend(['\\', 'x', '3', next]),
            _ if next.is_ascii() && !next.is_ascii_alphanumeric() => text.extend(['\\', next]),
            _ => text.push(next),
        }
        is_first = false;
    }
}

/// What an escape stands for.
enum Escaped {
    Char(u32),
    /// A class of characters, a position, or what a group has matched.
    Other,
}

/// A character class that is open.
#[derive(Default)]
struct Class {
    is_empty: bool,
    /// The right side of `&&`, which ends before the bracket of the class it is in.
    is_right_side: bool,
    /// Between `&&` and the end of what stands behind it.
    intersects: bool,
    has_right_side: bool,
}

impl Class {
    fn new(is_right_side: bool) -> Self {
        Self { is_empty: true, is_right_side, ..Self::default() }
    }
}

/// Every function is `None` where the pattern does not compile.
struct Checker {
    text: Vec<char>,
    at: usize,
    /// White space and comments are left out: `(?x)`.
    comments: bool,
    /// Of each open group, whether comments were left out before it.
    groups: Vec<bool>,
    names: BTreeSet<String>,
}

impl Checker {
    fn pattern(&mut self) -> Option<()> {
        while let Some(next) = self.peek() {
            match next {
                // Dangling.
                '?' | '*' | '+' => return None,
                // A count of nothing is allowed.
                '{' => self.quantifier()?,
                '(' => {
                    self.at += 1;
                    self.open_group()?;
                }
                ')' => {
                    self.at += 1;
                    self.comments = self.groups.pop()?;
                    self.quantifier()?;
                }
                '|' => self.at += 1,
                '[' => {
                    self.at += 1;
                    self.class()?;
                    self.quantifier()?;
                }
                '\\' => {
                    self.at += 1;
                    self.escape_or_property()?;
                    self.quantifier()?;
                }
                _ => {
                    self.at += 1;
                    self.quantifier()?;
                }
            }
        }
        self.groups.is_empty().then_some(())
    }

    /// Of what was just read, if there is one.
    fn quantifier(&mut self) -> Option<()> {
        match self.peek() {
            Some('?' | '*' | '+') => self.at += 1,
            Some('{') => {
                self.at += 1;
                self.count()?;
            }
            _ => return Some(()),
        }
        // Reluctant or possessive.
        if matches!(self.peek(), Some('?' | '+')) {
            self.at += 1;
        }
        Some(())
    }

    /// Behind the brace: `n}`, `n,}` or `n,m}`.
    fn count(&mut self) -> Option<()> {
        let first = self.take_raw()?;
        let (least, mut end) = self.number(first)?;
        if end == ',' {
            let next = self.read()?;
            if next == '}' {
                return Some(());
            }
            let (most, behind) = self.number(next)?;
            if most < least {
                return None;
            }
            end = behind;
        }
        (end == '}').then_some(())
    }

    /// A number of Java's `int`, and what follows it.
    fn number(&mut self, first: char) -> Option<(i32, char)> {
        let digit = |next: char| next.to_digit(10).and_then(|digit| i32::try_from(digit).ok());
        let mut number = digit(first)?;
        loop {
            let next = self.read()?;
            let Some(digit) = digit(next) else { return Some((number, next)) };
            number = number.checked_mul(10)?.checked_add(digit)?;
        }
    }

    /// Behind the parenthesis.
    fn open_group(&mut self) -> Option<()> {
        let comments = self.comments;
        if self.peek() == Some('?') {
            self.at += 1;
            match self.take_raw()? {
                ':' | '>' | '=' | '!' => {}
                '<' => match self.read()? {
                    '=' | '!' => {}
                    first => {
                        let name = self.group_name(first)?;
                        if !self.names.insert(name) {
                            return None;
                        }
                    }
                },
                '$' | '@' => return None,
                _ => {
                    self.at -= 1;
                    self.flags();
                    match self.read()? {
                        // In force until the group around it ends.
                        ')' => return Some(()),
                        ':' => {}
                        _ => return None,
                    }
                }
            }
        }
        self.groups.push(comments);
        Some(())
    }

    fn flags(&mut self) {
        let mut is_on = true;
        while let Some(next) = self.peek() {
            match next {
                'x' => self.comments = is_on,
                'i' | 'm' | 's' | 'd' | 'u' | 'c' | 'U' => {}
                '-' if is_on => is_on = false,
                _ => return,
            }
            self.at += 1;
        }
    }

    fn group_name(&mut self, first: char) -> Option<String> {
        if !first.is_ascii_alphabetic() {
            return None;
        }
        let mut name = String::from(first);
        loop {
            match self.read()? {
                '>' => return Some(name),
                next if next.is_ascii_alphanumeric() => name.push(next),
                _ => return None,
            }
        }
    }

    /// Behind the bracket, up to and with the one that closes it.
    fn class(&mut self) -> Option<()> {
        let mut open = vec![Class::new(false)];
        while let Some(class) = open.last_mut() {
            let next = self.peek();
            if class.intersects {
                match next {
                    Some(']' | '&') => {
                        if class.is_empty && !class.has_right_side {
                            return None;
                        }
                        class.is_empty = false;
                        class.intersects = false;
                        class.has_right_side = false;
                    }
                    Some('[') => {
                        self.at += 1;
                        open.push(Class::new(false));
                    }
                    _ => open.push(Class::new(true)),
                }
                continue;
            }
            match next? {
                '^' if self.before() == Some('[') => self.at += 1,
                '[' => {
                    self.at += 1;
                    open.push(Class::new(false));
                }
                '&' if self.is_doubled('&') => class.intersects = true,
                ']' if !class.is_empty => {
                    if !class.is_right_side {
                        self.at += 1;
                    }
                    open.pop();
                    if let Some(around) = open.last_mut() {
                        if around.intersects { around.has_right_side = true } else { around.is_empty = false }
                    }
                }
                _ => {
                    class.is_empty = false;
                    self.range()?;
                }
            }
        }
        Some(())
    }

    /// Moves behind two of `sign`, if there are two.
    fn is_doubled(&mut self, sign: char) -> bool {
        let before = self.at;
        self.at += 1;
        let is_doubled = self.peek() == Some(sign);
        self.at = if is_doubled { self.at + 1 } else { before };
        is_doubled
    }

    /// One element of a class: a character, an escape, or a range.
    fn range(&mut self) -> Option<()> {
        let first = match self.peek()? {
            '\\' => {
                self.at += 1;
                if matches!(self.raw(0), Some('p' | 'P')) {
                    self.at += 1;
                    return self.property();
                }
                let begins_range = self.raw(1) == Some('-');
                match self.escape(true, begins_range)? {
                    Escaped::Char(first) => first,
                    Escaped::Other => return Some(()),
                }
            }
            next => {
                self.at += 1;
                u32::from(next)
            }
        };
        if self.peek() != Some('-') || matches!(self.raw(1), Some('[' | ']')) {
            return Some(());
        }
        self.at += 1;
        let last = match self.peek()? {
            '\\' => {
                self.at += 1;
                match self.escape(true, true)? {
                    Escaped::Char(last) => last,
                    Escaped::Other => return None,
                }
            }
            next => {
                self.at += 1;
                u32::from(next)
            }
        };
        (first <= last).then_some(())
    }

    fn escape_or_property(&mut self) -> Option<()> {
        if matches!(self.raw(0), Some('p' | 'P')) {
            self.at += 1;
            return self.property();
        }
        self.escape(false, false).map(|_| ())
    }

    /// Behind the backslash.
    fn escape(&mut self, in_class: bool, in_range: bool) -> Option<Escaped> {
        let next = self.take_raw()?;
        match next {
            '0' => return self.octal(),
            'u' => return self.unicode(),
            'x' => return self.hexadecimal(),
            'c' => return self.read().map(|control| Escaped::Char(u32::from(control) ^ 64)),
            'a' => return Some(Escaped::Char(7)),
            'e' => return Some(Escaped::Char(27)),
            'f' => return Some(Escaped::Char(12)),
            'n' => return Some(Escaped::Char(10)),
            'r' => return Some(Escaped::Char(13)),
            't' => return Some(Escaped::Char(9)),
            'v' if in_range => return Some(Escaped::Char(11)),
            'N' => self.character_name()?,
            'D' | 'H' | 'S' | 'V' | 'W' | 'd' | 'h' | 's' | 'v' | 'w' => {}
            'A' | 'B' | 'G' | 'R' | 'X' | 'Z' | 'z' | '1'..='9' if !in_class => {}
            'b' if !in_class => self.boundary()?,
            'k' if !in_class => {
                if self.read()? != '<' {
                    return None;
                }
                let first = self.read()?;
                let name = self.group_name(first)?;
                if !self.names.contains(&name) {
                    return None;
                }
            }
            _ if next.is_ascii_alphanumeric() => return None,
            _ => return Some(Escaped::Char(u32::from(next))),
        }
        Some(Escaped::Other)
    }

    /// `\b` or `\b{g}`.
    fn boundary(&mut self) -> Option<()> {
        if self.peek() == Some('{') && self.raw(1) == Some('g') {
            self.at += 2;
            return (self.read()? == '}').then_some(());
        }
        Some(())
    }

    fn character_name(&mut self) -> Option<()> {
        if self.read()? != '{' {
            return None;
        }
        let len = self.text.get(self.at..)?.iter().position(|next| *next == '}')?;
        let name = self.text.get(self.at..self.at + len)?;
        let is_fit = |next: &char| next.is_ascii_alphanumeric() || matches!(next, ' ' | '-');
        let is_name = name.first().is_some_and(char::is_ascii_alphabetic) && name.iter().all(is_fit);
        self.at += len + 1;
        is_name.then_some(())
    }

    /// One to three digits, the first of three no more than 3.
    fn octal(&mut self) -> Option<Escaped> {
        let first = self.read()?.to_digit(8)?;
        let mut number = first;
        for _ in 0..if first <= 3 { 2 } else { 1 } {
            let Some(digit) = self.peek().and_then(|next| next.to_digit(8)) else { break };
            self.at += 1;
            number = number * 8 + digit;
        }
        Some(Escaped::Char(number))
    }

    fn four_digits(&mut self) -> Option<u32> {
        let mut number = 0;
        for _ in 0..4 {
            number = number * 16 + self.read()?.to_digit(16)?;
        }
        Some(number)
    }

    /// Two of them that are surrogates are one character.
    fn unicode(&mut self) -> Option<Escaped> {
        let first = self.four_digits()?;
        let behind = self.at;
        if (0xd800..0xdc00).contains(&first) && self.read() == Some('\\') && self.read() == Some('u') {
            let second = self.four_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                return Some(Escaped::Char(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)));
            }
        }
        self.at = behind;
        Some(Escaped::Char(first))
    }

    /// `\xhh` or `\x{h...h}`.
    fn hexadecimal(&mut self) -> Option<Escaped> {
        let first = self.read()?;
        if let Some(high) = first.to_digit(16) {
            let low = self.read()?.to_digit(16)?;
            return Some(Escaped::Char(high * 16 + low));
        }
        if first != '{' {
            return None;
        }
        let mut number = self.read()?.to_digit(16)?;
        loop {
            let next = self.read()?;
            let Some(digit) = next.to_digit(16) else {
                return (next == '}').then_some(Escaped::Char(number));
            };
            number = number * 16 + digit;
            if number > u32::from(char::MAX) {
                return None;
            }
        }
    }

    /// Behind `\p`: one letter, or a name in braces.
    fn property(&mut self) -> Option<()> {
        let next = self.peek()?;
        self.at += 1;
        if next != '{' {
            return is_property(&String::from(next)).then_some(());
        }
        let rest = self.text.get(self.at..)?;
        let len = rest.iter().position(|next| *next == '}')?;
        let name: String = rest.iter().take(len).collect();
        self.at += len + 1;
        is_property(&name).then_some(())
    }

    /// The next character, behind white space and comments where those are left out.
    fn peek(&mut self) -> Option<char> {
        while self.comments {
            match self.raw(0)? {
                '\t'..='\r' | ' ' => self.at += 1,
                '#' => {
                    let is_end = |next: &char| matches!(next, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
                    let rest = self.text.get(self.at..)?;
                    self.at += rest.iter().position(is_end).unwrap_or(rest.len());
                }
                _ => break,
            }
        }
        self.raw(0)
    }

    fn read(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn take_raw(&mut self) -> Option<char> {
        let next = self.raw(0)?;
        self.at += 1;
        Some(next)
    }

    fn raw(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn before(&self) -> Option<char> {
        self.text.get(self.at.checked_sub(1)?).copied()
    }
}

/// General categories, POSIX classes and those of `java.lang.Character`.
#[rustfmt::skip]
const PROPERTIES: &[&str] = &[
    "ASCII", "Alnum", "Alpha", "Blank", "C", "Cc", "Cf", "Cn", "Cntrl", "Co", "Cs", "Digit", "Graph", "L", "L1", "LC", "LD",
    "Ll", "Lm", "Lo", "Lower", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po",
    "Print", "Ps", "Punct", "S", "Sc", "Sk", "Sm", "So", "Space", "Upper", "XDigit", "Z", "Zl", "Zp", "Zs", "all",
    "javaAlphabetic", "javaDefined", "javaDigit", "javaISOControl", "javaIdentifierIgnorable", "javaIdeographic",
    "javaJavaIdentifierPart", "javaJavaIdentifierStart", "javaLetter", "javaLetterOrDigit", "javaLowerCase", "javaMirrored",
    "javaSpaceChar", "javaTitleCase", "javaUnicodeIdentifierPart", "javaUnicodeIdentifierStart", "javaUpperCase",
    "javaWhitespace",
];

/// Scripts, blocks and binary properties are taken at their word.
fn is_property(name: &str) -> bool {
    let is_prefixed = name.len() > 2 && (name.starts_with("Is") || name.starts_with("In"));
    is_prefixed || PROPERTIES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Taken as they are; white space stands between them.
    const COMPILE: &str = r"
        a a| || () (a)* a*+ a+? a?? {2} a{2}{3} a{2,} a{2,3}? ] } a] []a] [^]a] [a&&[b]] [a&&b&&c] [a&&&b] [&&a] [a-]
        [a-[b]] [-a] ^* $+ (?i)a (?i-x:a) (?) (?-) (?<n>a)\k<n> (?!a)* (?<!ab) (?>a) \1 \Qa(*\E \Q( \Qa\E* \pL \p{Lu}
        \P{IsLatin} \x41 \x{1f600} \u0041 \07 \c[ \b{g} \b{2} \- \é [\d-z] [\v-z] \h\R\X\z \_
    ";
    const DO_NOT: &str = r"
        * +a ? a** a?* a|* (*) ( ) (a a) (? (?z) (?i (?i)* (?<1>a) (?<n>a)(?<n>b) (?<n (?$a) (?@a) [ [[a] [] [^] [a
        [b-a] [a-\d] [&&] [a&& { a{ a{x} a{2 a{3,2} a{,2} a{99999999999} \ \y \_\ [\b] [\1] \k<n> \kn \p \p{} \p{Foo}
        \pQ \p{Lu \x4 \x{} \x{110000} \u041 \08 \c \b{g \N \N{} \N{2} \E
    ";

    #[test]
    fn what_java_compiles_is_told_from_what_it_does_not() {
        // Rule: the same answer as `Pattern.compile`, from which each of these has it.
        let spaced = ["", r"(?x)a #(", r"(?x: a (?-x) ) ", r"\N{DIGIT ONE}"];
        for pattern in COMPILE.split_whitespace().chain(spaced) {
            assert!(is_java_pattern(pattern), "{pattern:?}");
        }
        for pattern in DO_NOT.split_whitespace() {
            assert!(!is_java_pattern(pattern), "{pattern:?}");
        }
    }
}
