//! Batches and records of a `.log` file.

use std::io::{BufReader, Read, Write};

use serde_json::{Map, Value, json};
use walser_protocol::records::batch::{BATCH_HEADER_BYTES, BatchError, BatchView, TimestampType, batch_total_len};
use walser_protocol::records::control::ControlRecord;
use walser_protocol::records::record::{OffsetDeltas, Record, RecordLimits, Records, records_slice, validate_records};

use super::Dump;
use crate::cli::error::CliError;
use crate::cli::output::{iso_time, printable, put_bytes};

/// What the records of one batch may decompress to.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;
const LIMITS: RecordLimits =
    RecordLimits { decompressed_bytes_max: DECOMPRESSED_BYTES_MAX, offset_deltas: OffsetDeltas::Ascending };

pub(super) fn dump<W: Write>(file: impl Read, dump: &mut Dump<'_, W>) -> Result<(), CliError> {
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut position, mut next_offset) = (0_u64, None);
    let mut scratch = Vec::new();
    loop {
        let mut bytes = read_up_to(&mut reader, BATCH_HEADER_BYTES as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return dump_zeros(&mut reader, position, bytes.len() as u64, dump);
        }
        match batch_total_len(&bytes) {
            Ok(len) => bytes.extend(read_up_to(&mut reader, len.saturating_sub(bytes.len()) as u64)?),
            // Nothing says where the next batch begins.
            Err(error) => return dump.damage(position, &error.to_string()),
        }
        let batch = match BatchView::parse(&bytes) {
            Ok((batch, _)) => batch,
            Err(error) => return dump.damage(position, &error.to_string()),
        };
        if next_offset.is_some_and(|next| batch.base_offset() < next) {
            dump.damage(position, &format!("offset {} goes back", batch.base_offset()))?;
        }
        next_offset = Some(batch.next_offset());
        dump_batch(&batch, position, &mut scratch, dump)?;
        position += batch.total_len() as u64;
    }
}

/// At most `len` bytes; fewer at the end of the file. Memory grows with what is there.
fn read_up_to(reader: &mut impl Read, len: u64) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = Read::by_ref(reader).take(len).read_to_end(&mut bytes);
    read.map_err(|source| CliError::Read { path: String::new(), source })?;
    Ok(bytes)
}

/// A segment in use has zeros behind its end; anything else there is damage.
fn dump_zeros<W: Write>(
    reader: &mut impl Read,
    position: u64,
    mut zeros: u64,
    dump: &mut Dump<'_, W>,
) -> Result<(), CliError> {
    loop {
        let chunk = read_up_to(reader, 1 << 16)?;
        if chunk.is_empty() {
            let value = json!({"position": position, "zero_bytes": zeros});
            return dump.line(&value, || format!("position {position}: {zeros} bytes of zeros to the end"));
        }
        if let Some(index) = chunk.iter().position(|byte| *byte != 0) {
            return dump
                .damage(position + zeros + index as u64, &format!("data behind zeros from position {position}"));
        }
        zeros += chunk.len() as u64;
    }
}

fn dump_batch<W: Write>(
    batch: &BatchView<'_>,
    position: u64,
    scratch: &mut Vec<u8>,
    dump: &mut Dump<'_, W>,
) -> Result<(), CliError> {
    let crc = batch.verify_crc();
    dump.line(&batch_json(batch, position, crc), || batch_text(batch, position, crc))?;
    if let Err(error) = crc {
        // Records behind a wrong CRC may be anything.
        return dump.damage(position, &error.to_string());
    }
    if let Err(error) = validate_records(batch, scratch, LIMITS) {
        dump.damage(position, &error.to_string())?;
    }
    if !dump.records && !batch.is_control() {
        return Ok(());
    }
    let Ok(records) = records_slice(batch, scratch, DECOMPRESSED_BYTES_MAX) else { return Ok(()) };
    for record in Records::new(batch.header(), records).map_while(Result::ok) {
        let marker = if batch.is_control() { ControlRecord::parse(&record) } else { None };
        dump.line(&record_json(&record, marker), || record_text(&record, marker))?;
    }
    Ok(())
}

fn timestamp_type(batch: &BatchView<'_>) -> &'static str {
    match batch.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

fn codec_name(batch: &BatchView<'_>) -> String {
    batch.compression_type().map_or_else(|error| error.to_string(), |codec| codec.name().to_owned())
}

fn batch_json(batch: &BatchView<'_>, position: u64, crc: Result<(), BatchError>) -> Value {
    json!({
        "position": position,
        "bytes": batch.total_len(),
        "base_offset": batch.base_offset(),
        "last_offset": batch.last_offset(),
        "record_count": batch.record_count(),
        "partition_leader_epoch": batch.partition_leader_epoch(),
        "producer_id": batch.producer_id(),
        "producer_epoch": batch.producer_epoch(),
        "base_sequence": batch.base_sequence(),
        "last_sequence": batch.last_sequence(),
        "transactional": batch.is_transactional(),
        "control": batch.is_control(),
        "delete_horizon_ms": batch.delete_horizon_ms(),
        "timestamp_type": timestamp_type(batch),
        "base_timestamp": batch.base_timestamp(),
        "max_timestamp": batch.max_timestamp(),
        "compression": codec_name(batch),
        "crc": batch.crc(),
        "crc_valid": crc.is_ok(),
    })
}

fn batch_text(batch: &BatchView<'_>, position: u64, crc: Result<(), BatchError>) -> String {
    let mut text = format!(
        "position {position}: offsets {}..={}  records {}  bytes {}  {}  {} {}  leader epoch {}",
        batch.base_offset(),
        batch.last_offset(),
        batch.record_count(),
        batch.total_len(),
        codec_name(batch),
        timestamp_type(batch),
        iso_time(batch.max_timestamp()),
        batch.partition_leader_epoch(),
    );
    if batch.has_producer_id() {
        let sequences = match batch.base_sequence() {
            ..0 => String::new(),
            base => format!(" sequences {base}..={}", batch.last_sequence()),
        };
        text += &format!("  producer {} epoch {}{sequences}", batch.producer_id(), batch.producer_epoch());
    }
    if batch.is_transactional() {
        text += "  transactional";
    }
    if batch.is_control() {
        text += "  control";
    }
    if let Some(horizon) = batch.delete_horizon_ms() {
        text += &format!("  delete horizon {}", iso_time(horizon));
    }
    match crc {
        Ok(()) => text + &format!("  crc {:#010x}", batch.crc()),
        Err(_) => text + "  crc WRONG",
    }
}

/// `Some` for a control record's words.
fn marker_text(marker: ControlRecord) -> String {
    match marker {
        ControlRecord::Abort { coordinator_epoch } => format!("abort, coordinator epoch {coordinator_epoch}"),
        ControlRecord::Commit { coordinator_epoch } => format!("commit, coordinator epoch {coordinator_epoch}"),
        ControlRecord::Other { record_type } => format!("control type {record_type}"),
    }
}

fn record_json(record: &Record<'_>, marker: Option<ControlRecord>) -> Value {
    let mut object = Map::new();
    object.insert("offset".into(), record.offset.into());
    object.insert("timestamp".into(), record.timestamp.into());
    if let Some(marker) = marker {
        object.insert("marker".into(), marker_text(marker).into());
        return Value::Object(object);
    }
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

fn record_text(record: &Record<'_>, marker: Option<ControlRecord>) -> String {
    let place = format!("  offset {} {}", record.offset, iso_time(record.timestamp));
    if let Some(marker) = marker {
        return format!("{place}  {}", marker_text(marker));
    }
    let text = |bytes: Option<&[u8]>| bytes.map_or_else(|| "(null)".to_owned(), printable);
    let mut line = format!("{place}  key {}  value {}", text(record.key), text(record.value));
    for header in record.headers {
        line += &format!("  header {}={}", printable(header.key), text(header.value));
    }
    line
}
