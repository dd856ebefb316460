//! How a record is printed.

use std::io::Write;

use serde_json::{Map, Value};
use walser_protocol::records::batch::TimestampType;
use walser_protocol::records::record::{Headers, Record};

use crate::cli::error::CliError;
use crate::cli::output::put_bytes;

/// What of a record's place the record itself does not know.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub timestamp_type: TimestampType,
}

pub enum Format {
    Json,
    Template { pieces: Vec<Piece>, null: Vec<u8> },
}

#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Text(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Timestamp,
    Key,
    KeyLen,
    Value,
    ValueLen,
    Headers,
}

impl Format {
    pub fn parse(text: &str, null: &str) -> Result<Self, CliError> {
        Ok(Self::Template { pieces: parse_pieces(text)?, null: null.as_bytes().to_vec() })
    }

    pub fn write(&self, out: &mut impl Write, place: Place<'_>, record: &Record<'_>) -> std::io::Result<()> {
        match self {
            Self::Json => writeln!(out, "{}", record_json(place, record)),
            Self::Template { pieces, null } => {
                pieces.iter().try_for_each(|piece| write_piece(out, piece, null, place, record))
            }
        }
    }
}

fn parse_pieces(text: &str) -> Result<Vec<Piece>, CliError> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut symbols = text.chars();
    while let Some(symbol) = symbols.next() {
        match symbol {
            '\\' => literal.push(parse_escape(&mut symbols)?),
            '%' => match parse_directive(symbols.next())? {
                None => literal.push(b'%'),
                Some(piece) => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal)));
                    }
                    pieces.push(piece);
                }
            },
            symbol => literal.extend_from_slice(symbol.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

/// `None` for a percent sign.
fn parse_directive(symbol: Option<char>) -> Result<Option<Piece>, CliError> {
    let piece = match symbol {
        Some('t') => Piece::Topic,
        Some('p') => Piece::Partition,
        Some('o') => Piece::Offset,
        Some('T') => Piece::Timestamp,
        Some('k') => Piece::Key,
        Some('K') => Piece::KeyLen,
        Some('s') => Piece::Value,
        Some('S') => Piece::ValueLen,
        Some('h') => Piece::Headers,
        Some('%') => return Ok(None),
        Some(other) => return Err(CliError::Usage(format!("--format knows no %{other}"))),
        None => return Err(CliError::Usage("--format ends in a single %".to_owned())),
    };
    Ok(Some(piece))
}

fn parse_escape(symbols: &mut std::str::Chars<'_>) -> Result<u8, CliError> {
    match symbols.next() {
        Some('n') => Ok(b'\n'),
        Some('r') => Ok(b'\r'),
        Some('t') => Ok(b'\t'),
        Some('0') => Ok(0),
        Some('\\') => Ok(b'\\'),
        Some('x') => {
            let digits: String = symbols.by_ref().take(2).collect();
            let value = u8::from_str_radix(&digits, 16);
            value.map_err(|_| CliError::Usage(format!("--format: \\x{digits} is no byte")))
        }
        Some(other) => Err(CliError::Usage(format!("--format knows no \\{other}"))),
        None => Err(CliError::Usage("--format ends in a single \\".to_owned())),
    }
}

fn write_piece(
    out: &mut impl Write,
    piece: &Piece,
    null: &[u8],
    place: Place<'_>,
    record: &Record<'_>,
) -> std::io::Result<()> {
    let len = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
    match piece {
        Piece::Text(text) => out.write_all(text),
        Piece::Topic => out.write_all(place.topic.as_bytes()),
        Piece::Partition => write!(out, "{}", place.partition),
        Piece::Offset => write!(out, "{}", record.offset),
        Piece::Timestamp => write!(out, "{}", record.timestamp),
        Piece::Key => out.write_all(record.key.unwrap_or(null)),
        Piece::KeyLen => write!(out, "{}", len(record.key)),
        Piece::Value => out.write_all(record.value.unwrap_or(null)),
        Piece::ValueLen => write!(out, "{}", len(record.value)),
        Piece::Headers => write_headers(out, record.headers, null),
    }
}

/// `name=value,name=value`.
fn write_headers(out: &mut impl Write, headers: Headers<'_>, null: &[u8]) -> std::io::Result<()> {
    for (index, header) in headers.enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        out.write_all(header.key)?;
        out.write_all(b"=")?;
        out.write_all(header.value.unwrap_or(null))?;
    }
    Ok(())
}

fn record_json(place: Place<'_>, record: &Record<'_>) -> Value {
    let mut object = Map::new();
    object.insert("topic".into(), place.topic.into());
    object.insert("partition".into(), place.partition.into());
    object.insert("offset".into(), record.offset.into());
    object.insert("timestamp".into(), record.timestamp.into());
    let timestamp_type = match place.timestamp_type {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    };
    object.insert("timestamp_type".into(), timestamp_type.into());
    put_bytes(&mut object, "key", record.key);
    put_bytes(&mut object, "value", record.value);
    let headers = record.headers.map(|header| {
        let mut object = Map::new();
        put_bytes(&mut object, "key", Some(header.key));
        put_bytes(&mut object, "value", header.value);
        Value::Object(object)
    });
    object.insert("headers".into(), headers.collect());
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use walser_protocol::records::batch::BatchView;
    use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
    use walser_protocol::records::record::{Header, Records};

    fn printed(format: &Format) -> String {
        let headers = [Header { key: b"a", value: Some(b"1") }, Header { key: b"b", value: None }];
        let mut builder = BatchBuilder::new(BatchOptions { base_offset: 7, ..Default::default() });
        builder.append(&NewRecord { timestamp: 99, key: None, value: Some(b"v\xff"), headers: &headers }).unwrap();
        let bytes = builder.build().unwrap();
        let batch = BatchView::parse_exact(&bytes).unwrap();
        let record = Records::new(batch.header(), batch.records_bytes()).next().unwrap().unwrap();
        let place = Place { topic: "t", partition: 3, timestamp_type: TimestampType::CreateTime };
        let mut out = Vec::new();
        format.write(&mut out, place, &record).unwrap();
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn every_directive_prints_its_field() {
        // Rule: the letters of the help text; null prints as asked, lengths of null are -1.
        let format = Format::parse("%t-%p@%o %T k=%k(%K) s=%s(%S) h=%h %%\\t\\x41\\n", "NULL").unwrap();
        assert_eq!(printed(&format), "t-3@7 99 k=NULL(-1) s=v\u{fffd}(2) h=a=1,b=NULL %\tA\n");
    }

    #[test]
    fn json_keeps_null_and_bytes_apart() {
        // Rule: null is null, what is no text is base64.
        let json: Value = serde_json::from_str(&printed(&Format::Json)).unwrap();
        assert_eq!(json["key"], Value::Null);
        assert_eq!(json["value_base64"], "dv8=");
        assert_eq!((&json["offset"], &json["partition"]), (&7.into(), &3.into()));
        assert_eq!(json["headers"][1]["value"], Value::Null);
    }

    #[test]
    fn bad_formats_are_refused() {
        // Rule: a typing error is named, not printed.
        for bad in ["%x", "%", "\\q", "\\", "\\xg0"] {
            assert!(matches!(Format::parse(bad, ""), Err(CliError::Usage(_))), "{bad}");
        }
    }
}
