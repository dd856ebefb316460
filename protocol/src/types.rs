//! Numbers with a meaning, and the few value types the messages share.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

/// A number that is never negative, built only from a checked raw value.
macro_rules! natural {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($raw);

        impl $name {
            pub const ZERO: Self = Self(0);

            /// `None` for the negative values a client may send.
            pub const fn from_wire(raw: $raw) -> Option<Self> {
                if raw >= 0 { Some(Self(raw)) } else { None }
            }

            #[inline]
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$name> for $raw {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

natural! {
    /// Position of a record in a partition, counted in records. A byte position is something else.
    Offset(i64)
}
natural! {
    /// How often the partition's leader has changed; batches carry that of the leader that took them.
    LeaderEpoch(i32)
}
natural! {
    /// Names an idempotent or transactional producer.
    ProducerId(i64)
}
natural! {
    /// Incarnation of a producer id; a newer one fences the older.
    ProducerEpoch(i16)
}
natural! {
    /// Number of a record within its producer's epoch and partition; follows 2^31 - 1 with 0.
    Sequence(i32)
}
natural! {
    /// Node id of a broker.
    BrokerId(i32)
}
natural! {
    /// Number of a partition within its topic.
    PartitionIndex(i32)
}
natural! {
    /// Counts the rebalances of a classic group.
    GenerationId(i32)
}

impl Offset {
    /// `None` on overflow.
    pub fn checked_add(self, records: u32) -> Option<Self> {
        self.0.checked_add(i64::from(records)).map(Self)
    }
}

impl Sequence {
    /// `records` further on, wrapping from 2^31 - 1 to 0.
    pub fn wrapping_add(self, records: u32) -> Self {
        let sum = (u64::from(self.0.unsigned_abs()) + u64::from(records)) % (1 << 31);
        Self(i32::try_from(sum).unwrap_or(0))
    }
}

/// 128 bits; in text the URL-safe base64 without padding that Kafka prints.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Uuid {
    /// "None given".
    pub const ZERO: Self = Self([0; 16]);
    /// The topic id of the metadata log.
    pub const METADATA_TOPIC: Self = Self(1_u128.to_be_bytes());

    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    pub const fn is_zero(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// A version 4 (random) id from 16 random bytes.
    pub const fn from_random(bytes: [u8; 16]) -> Self {
        let random = u128::from_be_bytes(bytes);
        let cleared = random & !(0xf << 76) & !(0x3 << 62);
        Self((cleared | (0x4 << 76) | (0x2 << 62)).to_be_bytes())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 22 digits of 6 bits are 132 bits: the last digit ends in four zero bits.
        let value = u128::from_be_bytes(self.0);
        for digit in 0..22_u32 {
            let bits = if digit == 21 { value << 4 } else { value >> (122 - 6 * digit) };
            let symbol = BASE64_URL.get((bits & 0x3f) as usize).copied().unwrap_or(b'A');
            write!(f, "{}", char::from(symbol))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 22 digits of URL-safe base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id in 22 digits of URL-safe base64")]
pub struct BadUuid;

impl FromStr for Uuid {
    type Err = BadUuid;

    fn from_str(text: &str) -> Result<Self, BadUuid> {
        let digits = text.trim_end_matches('=').as_bytes();
        if digits.len() != 22 {
            return Err(BadUuid);
        }
        let mut value = 0_u128;
        for (index, digit) in digits.iter().enumerate() {
            let position = BASE64_URL.iter().position(|symbol| symbol == digit).ok_or(BadUuid)?;
            let bits = position as u128;
            value = if index == 21 { (value << 2) | (bits >> 4) } else { (value << 6) | bits };
        }
        Ok(Self(value.to_be_bytes()))
    }
}

/// Identity of a topic: a re-created topic has another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(Uuid);

impl TopicId {
    /// `None` for the zero id, which means "none given" on the wire.
    pub fn from_wire(raw: Uuid) -> Option<Self> {
        (!raw.is_zero()).then_some(Self(raw))
    }

    pub const fn get(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Records of a response: one slice, or pieces that are joined only in the response's buffer.
#[derive(Clone, Copy)]
pub enum Records<'a> {
    Whole(&'a [u8]),
    Chunks(&'a [Bytes]),
}

impl<'a> Records<'a> {
    pub fn len(self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Chunks(chunks) => chunks.iter().map(Bytes::len).sum(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn chunks(self) -> impl Iterator<Item = &'a [u8]> {
        let (whole, chunks) = match self {
            Self::Whole(bytes) => (Some(bytes), &[] as &[Bytes]),
            Self::Chunks(chunks) => (None, chunks),
        };
        whole.into_iter().chain(chunks.iter().map(|chunk| &**chunk))
    }

    /// The bytes when they are in one piece, as they always are after decoding.
    pub fn as_whole(self) -> Option<&'a [u8]> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Chunks([]) => Some(&[]),
            Self::Chunks([only]) => Some(only),
            Self::Chunks(_) => None,
        }
    }
}

impl Default for Records<'_> {
    fn default() -> Self {
        Self::Whole(&[])
    }
}

impl<'a> From<&'a [u8]> for Records<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Whole(bytes)
    }
}

impl PartialEq for Records<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.chunks().flatten().eq(other.chunks().flatten())
    }
}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_print_as_kafka_prints_them() {
        // Rule: URL-safe base64 of the 16 bytes, 22 digits, no padding, and back.
        let metadata = Uuid::METADATA_TOPIC;
        assert_eq!(metadata.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let mixed = Uuid::from_bytes([0xfb, 0xff, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xff]);
        assert_eq!(mixed.to_string(), "-_8AAQIDBAUGBwgJCgsM_w");
        for id in [metadata, mixed, Uuid::ZERO] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!("short".parse::<Uuid>(), Err(BadUuid));
        assert_eq!("!AAAAAAAAAAAAAAAAAAAAA".parse::<Uuid>(), Err(BadUuid));
    }

    #[test]
    fn random_uuids_say_they_are_random() {
        // Rule: version nibble 4, variant bits 10.
        let id = Uuid::from_random([0xff; 16]);
        assert_eq!(id.as_bytes()[6] >> 4, 4);
        assert_eq!(id.as_bytes()[8] >> 6, 2);
    }

    #[test]
    fn sequences_wrap_to_zero() {
        // Rule: 2^31 - 1 is followed by 0.
        let last = Sequence::from_wire(i32::MAX).unwrap();
        assert_eq!(last.wrapping_add(1), Sequence::ZERO);
        assert_eq!(last.wrapping_add(0), last);
        assert_eq!(Sequence::ZERO.wrapping_add(7).get(), 7);
    }

    #[test]
    fn records_compare_by_content() {
        // Rule: how records are cut into pieces does not matter.
        let chunks = [Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
        assert_eq!(Records::Chunks(&chunks), Records::from(&b"abc"[..]));
        assert_eq!(Records::Chunks(&chunks).as_whole(), None);
        assert_eq!(Records::Chunks(&[]).as_whole(), Some(&b""[..]));
    }
}
