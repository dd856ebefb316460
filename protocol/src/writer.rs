//! Appends big-endian values to a buffer, or only counts them: the same code gives a message's length and its bytes.

use bytes::{BufMut, BytesMut};
use thiserror::Error;

use crate::reader::{ARRAY_LEN_MAX, STRING_LEN_MAX};
use crate::types::{Records, Uuid};
use crate::varint;

/// Why a message cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    #[error("{field}: has a value, but version {version} does not have the field")]
    UnsupportedField { field: &'static str, version: i16 },
    #[error("{field}: null where this version does not allow it")]
    UnexpectedNull { field: &'static str },
    #[error("{field}: {len} is too long")]
    TooLong { field: &'static str, len: usize },
    #[error("version {version} is outside {min}..={max}")]
    UnsupportedVersion { version: i16, min: i16, max: i16 },
}

/// Writes at the end of a buffer it owns; [`Writer::measuring`] makes one that counts instead.
#[derive(Debug)]
pub struct Writer {
    /// `None` while measuring.
    buffer: Option<BytesMut>,
    len: usize,
}

impl Writer {
    /// Appends to `buffer`; `len` counts from where it ended.
    pub fn new(buffer: BytesMut) -> Self {
        Self { buffer: Some(buffer), len: 0 }
    }

    pub fn with_capacity(capacity: usize) -> Self {
        Self::new(BytesMut::with_capacity(capacity))
    }

    pub fn measuring() -> Self {
        Self { buffer: None, len: 0 }
    }

    /// Bytes written (or counted) by this writer.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The buffer with everything written; empty from a measuring writer.
    pub fn into_inner(self) -> BytesMut {
        self.buffer.unwrap_or_default()
    }

    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        if let Some(buffer) = &mut self.buffer {
            buffer.put_slice(bytes);
        }
    }

    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.raw(&[u8::from(value)]);
    }

    #[inline]
    pub fn i8(&mut self, value: i8) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub fn f64(&mut self, value: f64) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    pub fn uuid(&mut self, value: Uuid) {
        self.raw(value.as_bytes());
    }

    pub fn uvarint(&mut self, value: u32) {
        let (bytes, len) = varint::write_u64(u64::from(value));
        self.raw(bytes.split_at_checked(len).map_or(&[], |(used, _)| used));
    }

    pub fn string(&mut self, flexible: bool, field: &'static str, value: &str) -> Result<(), EncodeError> {
        let len = value.len();
        if len > STRING_LEN_MAX {
            return Err(EncodeError::TooLong { field, len });
        }
        match i16::try_from(len) {
            Ok(short) if !flexible => self.i16(short),
            _ => self.compact_len(field, len)?,
        }
        self.raw(value.as_bytes());
        Ok(())
    }

    pub fn nullable_string(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
        value: Option<&str>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.string(flexible, field, value),
            None if !nullable => Err(EncodeError::UnexpectedNull { field }),
            None => {
                if flexible {
                    self.uvarint(0);
                } else {
                    self.i16(-1);
                }
                Ok(())
            }
        }
    }

    pub fn bytes(&mut self, flexible: bool, field: &'static str, value: &[u8]) -> Result<(), EncodeError> {
        self.long_len(flexible, field, value.len())?;
        self.raw(value);
        Ok(())
    }

    pub fn nullable_bytes(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
        value: Option<&[u8]>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.bytes(flexible, field, value),
            None => self.long_null(flexible, nullable, field),
        }
    }

    pub fn records(&mut self, flexible: bool, field: &'static str, value: Records<'_>) -> Result<(), EncodeError> {
        self.long_len(flexible, field, value.len())?;
        for chunk in value.chunks() {
            self.raw(chunk);
        }
        Ok(())
    }

    pub fn nullable_records(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
        value: Option<Records<'_>>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.records(flexible, field, value),
            None => self.long_null(flexible, nullable, field),
        }
    }

    pub fn array_len(&mut self, flexible: bool, field: &'static str, len: usize) -> Result<(), EncodeError> {
        if len > ARRAY_LEN_MAX {
            return Err(EncodeError::TooLong { field, len });
        }
        self.long_len(flexible, field, len)
    }

    /// Writes the count (or null) and gives back the elements to write, none for null.
    pub fn nullable_array<'v, T>(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
        value: Option<&'v [T]>,
    ) -> Result<&'v [T], EncodeError> {
        match value {
            Some(elements) => self.array_len(flexible, field, elements.len()).map(|()| elements),
            None => self.long_null(flexible, nullable, field).map(|()| &[] as &[T]),
        }
    }

    /// Writes the mark that says whether a struct follows (see the reader's), and gives back the struct to write.
    pub fn nullable_struct<'v, T>(
        &mut self,
        nullable: bool,
        tagged: bool,
        field: &'static str,
        value: Option<&'v T>,
    ) -> Result<Option<&'v T>, EncodeError> {
        match value {
            None if !nullable => return Err(EncodeError::UnexpectedNull { field }),
            Some(_) if nullable => self.i8(1),
            None => self.i8(if tagged { 0 } else { -1 }),
            Some(_) => {}
        }
        Ok(value)
    }

    pub fn tag_count(&mut self, count: u32) {
        self.uvarint(count);
    }

    /// One tagged field; `content` runs twice, first to be measured.
    pub fn tagged(
        &mut self,
        tag: u32,
        content: &dyn Fn(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let mut measure = Self::measuring();
        content(&mut measure)?;
        let len = measure.len();
        self.uvarint(tag);
        self.uvarint(u32::try_from(len).map_err(|_| EncodeError::TooLong { field: "tagged_fields", len })?);
        content(self)
    }

    fn long_len(&mut self, flexible: bool, field: &'static str, len: usize) -> Result<(), EncodeError> {
        if flexible {
            return self.compact_len(field, len);
        }
        self.i32(i32::try_from(len).map_err(|_| EncodeError::TooLong { field, len })?);
        Ok(())
    }

    fn compact_len(&mut self, field: &'static str, len: usize) -> Result<(), EncodeError> {
        let short = i32::try_from(len).map_err(|_| EncodeError::TooLong { field, len })?;
        self.uvarint(short.unsigned_abs() + 1);
        Ok(())
    }

    fn long_null(&mut self, flexible: bool, nullable: bool, field: &'static str) -> Result<(), EncodeError> {
        if !nullable {
            return Err(EncodeError::UnexpectedNull { field });
        }
        if flexible {
            self.uvarint(0);
        } else {
            self.i32(-1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_counts_what_writing_writes() {
        // Rule: the same calls give the same length with and without a buffer.
        let fill = |writer: &mut Writer| {
            writer.i16(1);
            writer.uvarint(300);
            writer.string(true, "f", "abc")?;
            writer.nullable_bytes(false, true, "f", None)?;
            writer.tagged(3, &|writer| writer.string(true, "f", "tag"))
        };
        let (mut measured, mut written) = (Writer::measuring(), Writer::with_capacity(0));
        fill(&mut measured).unwrap();
        fill(&mut written).unwrap();
        assert_eq!(measured.len(), written.len());
        let bytes = written.into_inner();
        assert_eq!(bytes.as_ref(), b"\0\x01\xac\x02\x04abc\xff\xff\xff\xff\x03\x04\x04tag");
    }

    #[test]
    fn what_the_wire_cannot_say_is_an_error() {
        // Rule: no length is cut short silently, no null goes where it may not.
        let mut writer = Writer::measuring();
        let long = "x".repeat(STRING_LEN_MAX + 1);
        assert!(matches!(writer.string(true, "f", &long), Err(EncodeError::TooLong { .. })));
        let null = writer.nullable_string(true, false, "f", None);
        assert_eq!(null, Err(EncodeError::UnexpectedNull { field: "f" }));
    }
}
