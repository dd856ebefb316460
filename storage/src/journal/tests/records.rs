//! What stands in a journal's files, read without the code that is tested.

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use walser_protocol::records::crc::crc32c;

use crate::disk::simulated::SimulatedDisk;

/// A record of a journal, as it stands in its file.
pub(crate) struct JournalRecord {
    pub path: PathBuf,
    pub bytes: Range<u64>,
    pub sequence: u64,
    pub durable_through: u64,
    pub payload: Bytes,
}

/// Those that verify in the files of one journal; see `wal::record`.
pub(crate) fn journal_records(disk: &SimulatedDisk, folder: &Path) -> Vec<JournalRecord> {
    let mut records = Vec::new();
    for name in disk.peek_names(folder) {
        let Some((generation, salt)) = name.strip_suffix(".wal").and_then(|stem| stem.split_once('-')) else {
            continue;
        };
        let (Ok(generation), Ok(salt)) = (generation.parse::<u64>(), u64::from_str_radix(salt, 16)) else { continue };
        let path = folder.join(name);
        let content = disk.peek(&path).expect("it is there");
        let number_at = |at: usize| u64::from_be_bytes(content[at..at + 8].try_into().expect("eight bytes"));
        for at in (0..content.len().saturating_sub(40)).step_by(8) {
            if !content[at..].starts_with(b"WALR") || number_at(at + 8) != generation {
                continue;
            }
            let payload_bytes = (number_at(at + 32) >> 32) as usize;
            let end = at as u64 + 40 + payload_bytes as u64;
            // A commit that failed may have left a part of one.
            let is_whole = content.get(at + 40..at + 40 + payload_bytes).is_some_and(|payload| {
                let crc = crc32c(&[&salt.to_be_bytes(), &content[at..at + 36], payload].concat());
                content[at + 36..at + 40] == crc.to_be_bytes()
            });
            if is_whole {
                let (sequence, durable_through) = (number_at(at + 16), number_at(at + 24));
                let payload = Bytes::copy_from_slice(&content[at + 40..at + 40 + payload_bytes]);
                let (path, bytes) = (path.clone(), at as u64..end);
                records.push(JournalRecord { path, bytes, sequence, durable_through, payload });
            }
        }
    }
    records
}
