//! What is produced to a topic, and what the broker may take away of it.

use super::produce::{Stream, StreamKind};

/// Every record's value begins with the number of its stream and its own.
const STAMP_BYTES: usize = size_of::<u16>() + size_of::<u64>();
/// With what surrounds it, this still fits into the largest batch that brokers take.
const VALUE_BYTES_MAX: usize = (1 << 20) - 1024;
const LARGE_BYTES_MIN: usize = 64 << 10;

/// What a broker may take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    Nothing,
    /// The beginning, as long as so much is left.
    OldSegments {
        retention_bytes: u64,
    },
    /// What a later record with the same key replaces.
    OldValues {
        keys: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Below a kilobyte.
    Small,
    /// From the stamp alone to nearly a mebibyte, most of them small.
    Mixed,
}

/// A topic and its producers, one for each partition.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub topic: &'static str,
    pub partitions: i32,
    pub configs: &'static [(&'static str, &'static str)],
    pub cleanup: Cleanup,
    pub sizes: Sizes,
    /// A producer's share in a round.
    pub round_bytes_max: u64,
}

impl Load {
    /// Every other producer is idempotent. Ids count from `first_id` on.
    pub fn streams(self, first_id: u16, seed: u64) -> impl Iterator<Item = Stream> {
        (0..self.partitions).zip(first_id..).map(move |(partition, id)| {
            let kind = if partition % 2 == 0 { StreamKind::Plain } else { StreamKind::Idempotent };
            Stream::new(id, kind, self, partition, seed)
        })
    }

    /// Of a record; `None` where keys do not matter.
    pub fn key(&self, number: u64) -> Option<u64> {
        match self.cleanup {
            Cleanup::OldValues { keys } => Some(scattered(number) % keys),
            Cleanup::Nothing | Cleanup::OldSegments { .. } => None,
        }
    }

    pub fn value_bytes(&self, number: u64) -> usize {
        match self.sizes {
            Sizes::Mixed if scattered(number).is_multiple_of(31) => {
                let spread = (VALUE_BYTES_MAX - LARGE_BYTES_MIN) as u64;
                LARGE_BYTES_MIN + usize::try_from(scattered(number + 1) % spread).unwrap_or(0)
            }
            Sizes::Mixed | Sizes::Small => STAMP_BYTES + small_bytes(number),
        }
    }
}

fn small_bytes(number: u64) -> usize {
    (number.wrapping_mul(37) % 900) as usize
}

/// Neighbours are far from each other.
fn scattered(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

/// A value that says whose and which record it is, of a length that varies.
pub fn stamped(stream: u16, number: u64) -> Vec<u8> {
    stamped_to(stream, number, STAMP_BYTES + small_bytes(number))
}

/// The same with this length.
pub fn stamped_to(stream: u16, number: u64, len_bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len_bytes);
    value.extend_from_slice(&stream.to_be_bytes());
    value.extend_from_slice(&number.to_be_bytes());
    value.resize(len_bytes, number as u8);
    value
}

/// The stream and the number of a record.
///
/// # Errors
/// When the value has none.
pub fn stamp(value: &[u8]) -> Result<(u16, u64), String> {
    let (stream, rest) = value.split_first_chunk().ok_or("a record without a stamp")?;
    let number = rest.first_chunk().ok_or("a record without a stamp")?;
    Ok((u16::from_be_bytes(*stream), u64::from_be_bytes(*number)))
}
