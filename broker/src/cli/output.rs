//! How the commands print: plain text that scripts can cut, JSON on request, colours and progress only on a terminal.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use serde_json::Value;

/// `text` in bold where standard output is a terminal that wants colours.
pub fn bold(text: &str) -> String {
    if colours() { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// `text` in red, for errors on standard error.
pub fn red(text: &str) -> String {
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\u{1b}[31m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// One JSON value on a line of its own.
pub fn json_line(out: &mut impl Write, value: &Value) -> std::io::Result<()> {
    writeln!(out, "{value}")
}

/// Columns padded to the widest cell of each, two spaces apart; the last column is not padded.
pub fn table(out: &mut impl Write, rows: &[Vec<String>]) -> std::io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let pad = width.saturating_sub(cell.chars().count()) + 2;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', pad));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// `name` holds the text, or `name_base64` the bytes where they are no text. Null stays null.
pub fn put_bytes(object: &mut serde_json::Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => object.insert(name.to_owned(), Value::Null),
        Some((Ok(text), _)) => object.insert(name.to_owned(), Value::from(text)),
        Some((Err(_), bytes)) => object.insert(format!("{name}_base64"), Value::from(base64(bytes))),
    };
}

/// Text as it is, bytes that are no text with `\xNN` in their place.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for symbol in chunk.valid().chars() {
            match symbol {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                symbol if symbol.is_control() => text.extend(symbol.escape_unicode()),
                symbol => text.push(symbol),
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _infallible = write!(text, "\\x{byte:02x}");
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let value = (group >> (18 - 6 * digit)) & 0x3f;
            text.push(if digit > chunk.len() { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    text
}

/// Milliseconds since 1970 as `2026-11-29T17:23:23.042Z`; what is no such time as its number.
pub fn iso_time(ms: i64) -> String {
    // 9999-12-31T23:59:59.999Z.
    if !(0..=253_402_300_799_999).contains(&ms) {
        return ms.to_string();
    }
    let (days, ms_of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (ms_of_day / 3_600_000, ms_of_day / 60_000 % 60, ms_of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// Days since 1970-01-01 to year, month, day. Years begin in March here, so that the leap day is the last of its year.
fn civil_date(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097; // 400 years
    let days = days + 719_468; // from 0000-03-01
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_dates() {
        // Rule: UTC, milliseconds, leap years; -1 and nonsense stay numbers.
        for (ms, want) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_972_203_042, "2026-11-29T17:10:03.042Z"),
            (-1, "-1"),
            (i64::MAX, "9223372036854775807"),
        ] {
            assert_eq!(iso_time(ms), want);
        }
    }

    #[test]
    fn bytes_print_without_harm() {
        // Rule: no control byte of a record reaches the terminal, and text stays text.
        assert_eq!(printable("a\u{1b}[1mé\n\\".as_bytes()), "a\\u{1b}[1mé\\n\\");
        assert_eq!(printable(&[b'a', 0xff, b'b']), "a\\xffb");
        for (bytes, want) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xff", "//8=")]
        {
            assert_eq!(base64(bytes), want);
        }
    }

    #[test]
    fn tables_line_up() {
        // Rule: columns are as wide as their widest cell, lines end without spaces.
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let mut out = Vec::new();
        table(&mut out, &[row(["a", "b"]), row(["long", ""])]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a     b\nlong\n");
    }
}
