//! A bounded cursor over the bytes of one message. Every number in it is hostile until checked.

use thiserror::Error;

use crate::types::Uuid;
use crate::varint;

/// Memory a decoded message may take, per byte of its frame. The generated code asserts it for every element type.
pub const MEMORY_FACTOR_MAX: usize = 32;
/// Elements of one array, as in Kafka 4.4.
pub const ARRAY_LEN_MAX: usize = 1_000_000;
/// Tagged fields of one struct, as in Kafka 4.4.
pub const TAGS_MAX: u32 = 10_000;
/// Bytes of one string.
pub const STRING_LEN_MAX: usize = i16::MAX as usize;

/// Why bytes are not a message. `field` is the schema's name of what was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("{field}: the message ends too early")]
    UnexpectedEnd { field: &'static str },
    #[error("{field}: impossible length {len}")]
    BadLength { field: &'static str, len: i64 },
    #[error("{field}: null where null is not allowed")]
    UnexpectedNull { field: &'static str },
    #[error("{field}: not UTF-8")]
    BadString { field: &'static str },
    #[error("{field}: a number of variable length without an end")]
    BadVarint { field: &'static str },
    #[error("more than {max} array elements in one message")]
    TooManyElements { max: usize },
    #[error("{count} tagged fields in one struct")]
    TooManyTags { count: u32 },
    #[error("{left} bytes after the end")]
    TrailingBytes { left: usize },
    #[error("version {version} is outside {min}..={max}")]
    UnsupportedVersion { version: i16, min: i16, max: i16 },
}

/// Reads one element of an array. Not a type parameter: the loops would be compiled for each of seven hundred fields.
pub type Element<'f, 'a, T> = &'f mut dyn FnMut(&mut Reader<'a>) -> Result<T, DecodeError>;

/// Reads big-endian values from the front. What it returns borrows from the frame, not from the reader.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
    /// Bytes that the elements still to come of the arrays being read need at least. An inner array may not claim them,
    /// so what all arrays reserve together stays within the bytes there are.
    owed: usize,
    /// Elements that arrays may still have, of so many.
    elements_left: usize,
    elements_max: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::with_elements_max(bytes, usize::MAX)
    }

    /// A reader of a message whose arrays, inner ones included, have at most so many elements together: what becomes of
    /// an element may take far more memory than its bytes.
    pub fn with_elements_max(bytes: &'a [u8], elements_max: usize) -> Self {
        Self { left: bytes, owed: 0, elements_left: elements_max, elements_max }
    }

    /// Bytes not yet read.
    pub fn left(&self) -> &'a [u8] {
        self.left
    }

    /// Fails when bytes are left. Kafka ignores them after a request's body, so this is the caller's choice.
    pub fn expect_end(&self) -> Result<(), DecodeError> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes { left }),
        }
    }

    #[inline]
    pub fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.left.split_at_checked(len) else {
            return Err(DecodeError::UnexpectedEnd { field });
        };
        self.left = rest;
        Ok(taken)
    }

    #[inline]
    fn take_array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.left.split_first_chunk::<N>() else {
            return Err(DecodeError::UnexpectedEnd { field });
        };
        self.left = rest;
        Ok(*taken)
    }

    /// Any byte but zero is true.
    #[inline]
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.i8(field)? != 0)
    }

    #[inline]
    pub fn i8(&mut self, field: &'static str) -> Result<i8, DecodeError> {
        self.take_array(field).map(i8::from_be_bytes)
    }

    #[inline]
    pub fn i16(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        self.take_array(field).map(i16::from_be_bytes)
    }

    #[inline]
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.take_array(field).map(u16::from_be_bytes)
    }

    #[inline]
    pub fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.take_array(field).map(i32::from_be_bytes)
    }

    #[inline]
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.take_array(field).map(u32::from_be_bytes)
    }

    #[inline]
    pub fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.take_array(field).map(i64::from_be_bytes)
    }

    #[inline]
    pub fn f64(&mut self, field: &'static str) -> Result<f64, DecodeError> {
        self.take_array(field).map(f64::from_be_bytes)
    }

    #[inline]
    pub fn uuid(&mut self, field: &'static str) -> Result<Uuid, DecodeError> {
        self.take_array(field).map(Uuid::from_bytes)
    }

    #[inline]
    pub fn uvarint(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let (value, len) = varint::read_u32(self.left).ok_or(DecodeError::BadVarint { field })?;
        self.take(len, field)?;
        Ok(value)
    }

    /// The length of a string, or -1. Compact ones are a varint one too high, the others 16 bits.
    #[inline]
    fn string_len(&mut self, flexible: bool, field: &'static str) -> Result<i64, DecodeError> {
        if flexible { Ok(i64::from(self.uvarint(field)?) - 1) } else { self.i16(field).map(i64::from) }
    }

    /// The length of bytes or an array, or -1. Compact ones are a varint one too high, the others 32 bits.
    #[inline]
    fn long_len(&mut self, flexible: bool, field: &'static str) -> Result<i64, DecodeError> {
        if flexible { Ok(i64::from(self.uvarint(field)?) - 1) } else { self.i32(field).map(i64::from) }
    }

    pub fn string(&mut self, flexible: bool, field: &'static str) -> Result<&'a str, DecodeError> {
        match self.nullable_string(flexible, true, field)? {
            Some(text) => Ok(text),
            None => Err(DecodeError::UnexpectedNull { field }),
        }
    }

    /// Null is an error unless `nullable`.
    pub fn nullable_string(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
    ) -> Result<Option<&'a str>, DecodeError> {
        let raw = self.string_len(flexible, field)?;
        match usize::try_from(raw) {
            Ok(len) if len <= STRING_LEN_MAX => {
                let bytes = self.take(len, field)?;
                std::str::from_utf8(bytes).map(Some).map_err(|_| DecodeError::BadString { field })
            }
            Ok(_) => Err(DecodeError::BadLength { field, len: raw }),
            Err(_) => null_len(raw, nullable, field).map(|()| None),
        }
    }

    pub fn bytes(&mut self, flexible: bool, field: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.nullable_bytes(flexible, true, field)? {
            Some(bytes) => Ok(bytes),
            None => Err(DecodeError::UnexpectedNull { field }),
        }
    }

    /// Null is an error unless `nullable`.
    pub fn nullable_bytes(
        &mut self,
        flexible: bool,
        nullable: bool,
        field: &'static str,
    ) -> Result<Option<&'a [u8]>, DecodeError> {
        let raw = self.long_len(flexible, field)?;
        match usize::try_from(raw) {
            Ok(len) => self.take(len, field).map(Some),
            Err(_) => null_len(raw, nullable, field).map(|()| None),
        }
    }

    /// The count of an array, or `None` for null. No element is smaller than `element_len_min`, so a count above what is
    /// left is a lie.
    pub fn array_len(
        &mut self,
        flexible: bool,
        nullable: bool,
        element_len_min: usize,
        field: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        let raw = self.long_len(flexible, field)?;
        let Ok(count) = usize::try_from(raw) else {
            return null_len(raw, nullable, field).map(|()| None);
        };
        let free = self.left.len().saturating_sub(self.owed);
        if count > ARRAY_LEN_MAX || count.saturating_mul(element_len_min) > free {
            return Err(DecodeError::BadLength { field, len: raw });
        }
        match self.elements_left.checked_sub(count) {
            Some(left) => self.elements_left = left,
            None => return Err(DecodeError::TooManyElements { max: self.elements_max }),
        }
        Ok(Some(count))
    }

    #[inline]
    pub fn array<T>(
        &mut self,
        flexible: bool,
        element_len_min: usize,
        field: &'static str,
        element: Element<'_, 'a, T>,
    ) -> Result<Vec<T>, DecodeError> {
        match self.array_len(flexible, false, element_len_min, field)? {
            Some(count) => self.elements(count, element_len_min, element),
            None => Err(DecodeError::UnexpectedNull { field }),
        }
    }

    /// Null is an error unless `nullable`.
    #[inline]
    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        nullable: bool,
        element_len_min: usize,
        field: &'static str,
        element: Element<'_, 'a, T>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        match self.array_len(flexible, nullable, element_len_min, field)? {
            Some(count) => self.elements(count, element_len_min, element).map(Some),
            None => Ok(None),
        }
    }

    fn elements<T>(
        &mut self,
        count: usize,
        element_len_min: usize,
        element: Element<'_, 'a, T>,
    ) -> Result<Vec<T>, DecodeError> {
        let mut elements = Vec::with_capacity(count);
        self.owed += count * element_len_min;
        for _ in 0..count {
            self.owed -= element_len_min;
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// A struct behind a mark: a byte, negative for null; in a tagged field a varint, zero for null.
    pub fn nullable_struct<T>(
        &mut self,
        nullable: bool,
        tagged: bool,
        field: &'static str,
        decode: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if !nullable {
            return decode(self).map(Some);
        }
        let is_null = if tagged { self.uvarint(field)? == 0 } else { self.i8(field)? < 0 };
        if is_null { Ok(None) } else { decode(self).map(Some) }
    }

    /// How many tagged fields follow.
    pub fn tag_count(&mut self) -> Result<u32, DecodeError> {
        match self.uvarint("tagged_fields")? {
            count if count > TAGS_MAX => Err(DecodeError::TooManyTags { count }),
            count => Ok(count),
        }
    }

    /// The next tagged field: its tag and a reader over its content, which may not reach into what is owed.
    pub fn tagged_field(&mut self) -> Result<(u32, Self), DecodeError> {
        let field = "tagged_fields";
        let tag = self.uvarint(field)?;
        let len = self.uvarint(field)?;
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        if size > self.left.len().saturating_sub(self.owed) {
            return Err(DecodeError::BadLength { field, len: i64::from(len) });
        }
        Ok((tag, Self::with_elements_max(self.take(size, field)?, self.elements_left)))
    }

    /// Tagged fields of a struct that knows none.
    pub fn skip_tagged_fields(&mut self) -> Result<(), DecodeError> {
        for _ in 0..self.tag_count()? {
            self.tagged_field()?;
        }
        Ok(())
    }
}

/// A negative length: -1 is null, where null is allowed.
#[cold]
fn null_len(raw: i64, nullable: bool, field: &'static str) -> Result<(), DecodeError> {
    match raw {
        -1 if nullable => Ok(()),
        -1 => Err(DecodeError::UnexpectedNull { field }),
        len => Err(DecodeError::BadLength { field, len }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_against_what_is_left() {
        // Rule: no length or count reaches past the bytes there are, and null only goes where it may.
        type Read = fn(&mut Reader<'_>) -> Result<(), DecodeError>;
        let string: Read = |reader| reader.string(false, "f").map(drop);
        let bytes: Read = |reader| reader.bytes(false, "f").map(drop);
        let compact: Read = |reader| reader.nullable_bytes(true, true, "f").map(drop);
        let array: Read = |reader| reader.array(false, 4, "f", &mut |reader| reader.i32("e")).map(drop);
        let end = DecodeError::UnexpectedEnd { field: "f" };
        let null = DecodeError::UnexpectedNull { field: "f" };
        type Case = (&'static str, Read, &'static [u8], Result<(), DecodeError>);
        let cases: [Case; 9] = [
            ("string", string, &[0, 1, b'x'], Ok(())),
            ("short string", string, &[0, 2, b'x'], Err(end)),
            ("null string", string, &[255, 255], Err(null)),
            ("not UTF-8", string, &[0, 1, 0xff], Err(DecodeError::BadString { field: "f" })),
            ("negative", bytes, &[255, 255, 255, 254], Err(DecodeError::BadLength { field: "f", len: -2 })),
            ("null compact", compact, &[0], Ok(())),
            ("huge compact", compact, &[0xff, 0xff, 0xff, 0xff, 0x0f], Err(end)),
            ("two of one", array, &[0, 0, 0, 2, 0, 0, 0, 1], Err(DecodeError::BadLength { field: "f", len: 2 })),
            ("one", array, &[0, 0, 0, 1, 0, 0, 0, 1], Ok(())),
        ];
        for (name, read, input, want) in cases {
            assert_eq!(read(&mut Reader::new(input)), want, "{name}");
        }
    }

    #[test]
    fn inner_arrays_may_not_claim_what_outer_elements_need() {
        // Rule: bytes promised to the outer array's next elements are not promised again inside.
        let outer = |bytes: &[u8]| {
            let mut inner = |reader: &mut Reader<'_>| reader.array(true, 1, "inner", &mut |reader| reader.i8("e"));
            Reader::new(bytes).array(true, 1, "outer", &mut inner).map(|arrays| arrays.len())
        };
        assert_eq!(outer(&[4, 1, 1, 1]), Ok(3));
        assert_eq!(outer(&[3, 2, 9, 2, 9]), Ok(2));
        assert_eq!(outer(&[3, 3, 9, 9, 1]), Ok(2));
        assert_eq!(outer(&[3, 4, 9, 9, 9]), Err(DecodeError::BadLength { field: "inner", len: 3 }));
    }

    #[test]
    fn elements_are_counted_over_all_arrays() {
        // Rule: outer and inner arrays share one bound, and a count above it is refused before anything is reserved.
        let mut inner = |reader: &mut Reader<'_>| reader.array(false, 1, "inner", &mut |reader| reader.i8("element"));
        let bytes = [&[0, 0, 0, 2][..], &[0, 0, 0, 1, 7], &[0, 0, 0, 2, 8, 9]].concat();
        for (elements_max, fits) in [(5, true), (4, false), (1, false)] {
            let mut reader = Reader::with_elements_max(&bytes, elements_max);
            let decoded = reader.array(false, 4, "outer", &mut inner);
            let want = DecodeError::TooManyElements { max: elements_max };
            assert_eq!(decoded.err(), (!fits).then_some(want), "{elements_max}");
        }
    }

    #[test]
    fn unknown_tags_are_skipped_and_bounded() {
        // Rule: at most TAGS_MAX tagged fields, each within the bytes left.
        assert_eq!(Reader::new(&[2, 9, 1, 7, 10, 0]).skip_tagged_fields(), Ok(()));
        assert!(Reader::new(&[1, 9, 2, 7]).skip_tagged_fields().is_err());
        let too_many = Reader::new(&[0xff, 0x7f]).skip_tagged_fields();
        assert_eq!(too_many, Err(DecodeError::TooManyTags { count: 16383 }));
    }
}
