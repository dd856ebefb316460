//! The text format of `server.properties`: Java's properties, as `java.util.Properties.load` reads them, in UTF-8.
//!
//! A line ends at a line feed, a carriage return, or both; an odd number of backslashes at its end continues it, and
//! blanks at the begin of the continuation are dropped. `#` and `!` begin a comment line. The key ends at the first
//! `=`, `:` or blank that no backslash protects. `\t \n \r \f \uXXXX` are escapes; before any other character the
//! backslash is dropped.

use thiserror::Error;

/// A text that is no properties file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: \\u must be followed by four hexadecimal digits of a character")]
pub struct PropertiesError {
    /// Counted from 1; the first of the joined lines.
    pub line: usize,
}

/// Pairs of `text` in their order; a key may come more than once, the last counts.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, PropertiesError> {
    let text = text.trim_start_matches('\u{feff}');
    let mut pairs = Vec::new();
    for (line, logical) in logical_lines(text) {
        let (key, value) = split(&logical);
        let unescape = |raw| unescape(raw).ok_or(PropertiesError { line });
        pairs.push((unescape(key)?, unescape(value)?));
    }
    Ok(pairs)
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\u{c}')
}

/// Lines with their continuations joined, without comments and empty ones, each with the number of its first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, natural) in text.replace("\r\n", "\n").split(['\n', '\r']).enumerate() {
        let natural = natural.trim_start_matches(is_blank);
        let (first, mut logical) = match open.take() {
            Some(begun) => begun,
            None if natural.is_empty() || natural.starts_with(['#', '!']) => continue,
            None => (index + 1, String::new()),
        };
        let backslashes = natural.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if backslashes % 2 == 1 {
            logical.push_str(natural.strip_suffix('\\').unwrap_or(natural));
            open = Some((first, logical));
        } else {
            logical.push_str(natural);
            lines.push((first, logical));
        }
    }
    // The file ends in a continuation: what there is counts.
    lines.extend(open.filter(|(_, logical)| !logical.is_empty()));
    lines
}

fn split(logical: &str) -> (&str, &str) {
    let mut protected = false;
    for (position, character) in logical.char_indices() {
        if !protected && (is_blank(character) || matches!(character, '=' | ':')) {
            let (key, rest) = logical.split_at(position);
            let rest = rest.trim_start_matches(is_blank);
            let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (key, value.trim_start_matches(is_blank));
        }
        protected = character == '\\' && !protected;
    }
    (logical, "")
}

fn unescape(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match rest.next() {
            Some('t') => text.push('\t'),
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('f') => text.push('\u{c}'),
            Some('u') => {
                let code = rest.by_ref().take(4).try_fold((0, 0), |(code, digits), digit| {
                    digit.to_digit(16).map(|digit| (code * 16 + digit, digits + 1))
                });
                text.push(code.filter(|(_, digits)| *digits == 4).and_then(|(code, _)| char::from_u32(code))?);
            }
            Some(other) => text.push(other),
            None => {}
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_java_reads_them() {
        // Rule: any file Kafka starts with gives the same keys and values here.
        for (text, want) in [
            ("a=b", vec![("a", "b")]),
            ("a = b ", vec![("a", "b ")]),
            ("  a: b\r\nc d", vec![("a", "b"), ("c", "d")]),
            ("# x\n! y\n\n \t\na=1", vec![("a", "1")]),
            ("a=1,\\\n   2,\\\n\t3\nb", vec![("a", "1,2,3"), ("b", "")]),
            ("a=1\\\\\nb=2", vec![("a", "1\\"), ("b", "2")]),
            ("a\\ b\\==c\\:d", vec![("a b=", "c:d")]),
            ("a=\\u00e9\\t\\q", vec![("a", "é\tq")]),
            ("a=b=c", vec![("a", "b=c")]),
            ("=x", vec![("", "x")]),
            ("a=1\\\n# not a comment", vec![("a", "1# not a comment")]),
            ("a=1\\", vec![("a", "1")]),
            ("\u{feff}a=1", vec![("a", "1")]),
        ] {
            let want: Vec<(String, String)> = want.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
            assert_eq!(parse(text), Ok(want), "{text:?}");
        }
    }

    #[test]
    fn a_bad_unicode_escape_names_its_line() {
        // Rule: a file that cannot be read says where.
        for text in ["\na=\\u12", "\na=\\uzzzz", "#\na=\\ud800"] {
            assert_eq!(parse(text), Err(PropertiesError { line: 2 }), "{text:?}");
        }
    }
}
