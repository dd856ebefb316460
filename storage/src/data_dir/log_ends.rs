//! `log-end-checkpoint`: what is noted of the ends of all logs of a data directory, see [`crate::log::known_end`]. Our own;
//! Kafka does not know the file. It is replaced as a whole.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | version, 1 |
//! | 4 | 4 | CRC-32C of all that follows |
//! | 8 | 4 | entries; each: 16 topic id, 4 partition, 4 length of the note, the note |

use std::collections::BTreeMap;
use std::sync::Arc;

use walser_protocol::records::crc::crc32c;
use walser_protocol::types::Uuid;

use super::DataDir;
use crate::checkpoint;
use crate::disk::Disk;
use crate::error::DiskError;
use crate::log::known_end::journaled_through;

pub const LOG_ENDS_FILE: &str = "log-end-checkpoint";
const VERSION: u32 = 1;
const CRC_COVERS_FROM: usize = 8;

/// Notes by topic id and partition.
pub type LogEnds = BTreeMap<(Uuid, i32), Arc<[u8]>>;

pub fn encode<'a>(ends: impl ExactSizeIterator<Item = (Uuid, i32, &'a [u8])>) -> Vec<u8> {
    let mut bytes = vec![0; CRC_COVERS_FROM];
    let number = |len: usize| u32::try_from(len).expect("a note, and their number, are far below four billion");
    bytes.extend_from_slice(&number(ends.len()).to_be_bytes());
    for (topic_id, partition, note) in ends {
        bytes.extend_from_slice(topic_id.as_bytes());
        bytes.extend_from_slice(&partition.to_be_bytes());
        bytes.extend_from_slice(&number(note.len()).to_be_bytes());
        bytes.extend_from_slice(note);
    }
    let crc = crc32c(&bytes[CRC_COVERS_FROM..]);
    bytes[..4].copy_from_slice(&VERSION.to_be_bytes());
    bytes[4..CRC_COVERS_FROM].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// `None` when the bytes are not what [`encode`] writes.
pub fn decode(mut left: &[u8]) -> Option<LogEnds> {
    let left = &mut left;
    let (version, crc) = (take(left)?, take(left)?);
    if u32::from_be_bytes(version) != VERSION || u32::from_be_bytes(crc) != crc32c(left) {
        return None;
    }
    let count = u32::from_be_bytes(take(left)?);
    let mut ends = LogEnds::new();
    for _ in 0..count {
        let key = (Uuid::from_bytes(take(left)?), i32::from_be_bytes(take(left)?));
        let len = usize::try_from(u32::from_be_bytes(take(left)?)).ok()?;
        let (note, rest) = left.split_at_checked(len)?;
        *left = rest;
        ends.insert(key, note.into());
    }
    left.is_empty().then_some(ends)
}

/// Whether the note on the log's end says that this record of the journal is in its segment.
pub fn is_noted(ends: &LogEnds, topic_id: Uuid, partition: i32, sequence: u64) -> bool {
    ends.get(&(topic_id, partition)).is_some_and(|note| sequence <= journaled_through(note))
}

fn take<const N: usize>(left: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = left.split_first_chunk()?;
    *left = tail;
    Some(*head)
}

impl<D: Disk> DataDir<D> {
    /// Empty when there are none that can be read: the logs are scanned then.
    pub async fn read_log_ends(&self) -> Result<LogEnds, DiskError> {
        let path = self.path.join(LOG_ENDS_FILE);
        let Some(bytes) = checkpoint::read_file(&self.disk, &path).await? else { return Ok(LogEnds::default()) };
        Ok(decode(&bytes).unwrap_or_else(|| {
            tracing::warn!(path = %path.display(), "ends of logs not used");
            LogEnds::default()
        }))
    }

    /// Durable when this returns.
    pub async fn write_log_ends(&self, encoded: &[u8]) -> Result<(), DiskError> {
        checkpoint::replace_file(&self.disk, &self.path.join(LOG_ENDS_FILE), encoded).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else() {
        // Rule: a file that is damaged anywhere is used nowhere.
        let ends: LogEnds = (0..3)
            .map(|at| ((Uuid::from_bytes([at; 16]), i32::from(at)), Arc::from(vec![at; usize::from(at) * 5])))
            .collect();
        let bytes = encode(ends.iter().map(|(&(topic_id, partition), note)| (topic_id, partition, &note[..])));
        assert_eq!(decode(&bytes), Some(ends));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "{len} bytes");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
    }
}
