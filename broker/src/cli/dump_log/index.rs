//! Entries of the small files beside a `.log`.

use std::io::{Read, Write};

use serde_json::json;
use walser_protocol::Reader;
use walser_protocol::messages::records::producer_snapshot::ProducerSnapshot;
use walser_protocol::records::crc::crc32c;

use super::Dump;
use crate::cli::error::CliError;
use crate::cli::output::iso_time;

/// More than any index in use; a larger file is something else.
const FILE_BYTES_MAX: u64 = 1 << 30;

fn read_all(file: impl Read) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|source| CliError::Read { path: String::new(), source })?;
    Ok(bytes)
}

/// Calls `entry` with the position and bytes of each entry up to the zeros of an index that is not trimmed yet.
///
/// The first entry may be all zeros and mean it: offset 0 at position 0.
fn each_entry<const N: usize, W: Write>(
    bytes: &[u8],
    dump: &mut Dump<'_, W>,
    mut entry: impl FnMut(u64, &[u8; N], &mut Dump<'_, W>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let (entries, rest) = bytes.as_chunks::<N>();
    let used = entries.iter().rposition(|bytes| bytes != &[0; N]).map_or(0, |last| last + 1);
    for (index, bytes) in entries.iter().take(used).enumerate() {
        entry((index * N) as u64, bytes, dump)?;
    }
    if used < entries.len() {
        let (position, zeros) = (used * N, (entries.len() - used) * N);
        let value = json!({"position": position, "zero_bytes": zeros});
        dump.line(&value, || format!("position {position}: {zeros} bytes of zeros to the end"))?;
    }
    if !rest.is_empty() {
        dump.damage((entries.len() * N) as u64, &format!("{} bytes that are no whole entry", rest.len()))?;
    }
    Ok(())
}

pub(super) fn dump_offsets<W: Write>(
    file: impl Read,
    base_offset: i64,
    dump: &mut Dump<'_, W>,
) -> Result<(), CliError> {
    let bytes = read_all(file)?;
    let mut previous = None;
    each_entry::<8, W>(&bytes, dump, |at, bytes, dump| {
        let [a, b, c, d, e, f, g, h] = *bytes;
        let (relative, position) = (i32::from_be_bytes([a, b, c, d]), i32::from_be_bytes([e, f, g, h]));
        let offset = base_offset.saturating_add(i64::from(relative));
        dump.line(&json!({"offset": offset, "position": position}), || {
            format!("offset {offset}  position {position}")
        })?;
        if previous.is_some_and(|(offset, place)| relative <= offset || position <= place) {
            dump.damage(at, "the entry does not lie behind the one before")?;
        }
        previous = Some((relative, position));
        Ok(())
    })
}

pub(super) fn dump_times<W: Write>(file: impl Read, base_offset: i64, dump: &mut Dump<'_, W>) -> Result<(), CliError> {
    let bytes = read_all(file)?;
    let mut previous = None;
    each_entry::<12, W>(&bytes, dump, |at, bytes, dump| {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        let timestamp = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let relative = i32::from_be_bytes([i, j, k, l]);
        let offset = base_offset.saturating_add(i64::from(relative));
        let value = json!({"timestamp": timestamp, "offset": offset});
        dump.line(&value, || format!("timestamp {timestamp} {}  offset {offset}", iso_time(timestamp)))?;
        if previous.is_some_and(|(time, offset)| timestamp < time || relative < offset) {
            dump.damage(at, "the entry goes back behind the one before")?;
        }
        previous = Some((timestamp, relative));
        Ok(())
    })
}

/// Transactions that were aborted, by their last offset.
pub(super) fn dump_transactions<W: Write>(file: impl Read, dump: &mut Dump<'_, W>) -> Result<(), CliError> {
    let bytes = read_all(file)?;
    each_entry::<34, W>(&bytes, dump, |at, bytes, dump| {
        let mut reader = Reader::new(bytes);
        let mut entry = || {
            let version = reader.i16("version")?;
            let numbers =
                (reader.i64("producer_id")?, reader.i64("first")?, reader.i64("last")?, reader.i64("stable")?);
            Ok::<_, walser_protocol::DecodeError>((version, numbers))
        };
        // An entry has exactly these bytes.
        let Ok((version, (producer_id, first, last, stable))) = entry() else { return Ok(()) };
        if version != 0 {
            return dump.damage(at, &format!("entry of unknown version {version}"));
        }
        let value = json!({
            "producer_id": producer_id, "first_offset": first, "last_offset": last, "last_stable_offset": stable,
        });
        dump.line(&value, || format!("producer {producer_id}  offsets {first}..={last}  last stable offset {stable}"))
    })
}

pub(super) fn dump_producers<W: Write>(file: impl Read, dump: &mut Dump<'_, W>) -> Result<(), CliError> {
    let bytes = read_all(file)?;
    let mut reader = Reader::new(&bytes);
    let version = match reader.i16("version") {
        Ok(version) => version,
        Err(error) => return dump.damage(0, &error.to_string()),
    };
    let snapshot = match ProducerSnapshot::decode(&mut reader, version) {
        Ok(snapshot) => snapshot,
        Err(error) => return dump.damage(0, &error.to_string()),
    };
    // The checksum covers what stands behind it.
    let computed = crc32c(bytes.get(6..).unwrap_or_default());
    if computed != snapshot.crc {
        dump.damage(2, &format!("CRC is {:#010x}, the bytes give {computed:#010x}", snapshot.crc))?;
    }
    for entry in &snapshot.producer_entries {
        let open = (entry.current_txn_first_offset >= 0).then_some(entry.current_txn_first_offset);
        let value = json!({
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "offset_delta": entry.offset_delta,
            "timestamp": entry.timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_transaction_first_offset": open,
        });
        dump.line(&value, || {
            let open = open.map_or_else(String::new, |offset| format!("  open transaction from {offset}"));
            format!(
                "producer {} epoch {}  last sequence {}  last offset {} (delta {})  {}  coordinator epoch {}{open}",
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
                iso_time(entry.timestamp),
                entry.coordinator_epoch,
            )
        })?;
    }
    Ok(())
}
