//! What becomes of one batch.
//!
//! A batch of which every record stays is kept byte for byte. One that loses records, or whose tombstones are seen for the
//! first time, is built anew with its offsets, sequence, epochs and codec; the time after which its tombstones may go takes
//! the place of its base timestamp (KIP-534). One that loses all of them goes, or stays without records where its header
//! is still needed.

use std::collections::BTreeMap;

use bytes::Bytes;
use walser_protocol::records::batch::{BatchError, BatchHeader, BatchView, NO_PRODUCER_ID, TimestampType};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, BuildError, NewRecord};
use walser_protocol::records::compression::Compression;
use walser_protocol::records::control::ControlRecord;
use walser_protocol::records::record::{Header, Record, RecordError, Records, records_slice};

use super::offset_map::{Full, OffsetMap};
use super::transactions::Transactions;
use crate::producer_state::ProducerStates;
use crate::validate::DECOMPRESSED_BYTES_MAX;

/// Records looked at before others may be given way: each costs well under a microsecond, and its key as much.
pub const RECORDS_PER_BREATH: usize = 32;

/// Why a batch cannot be compacted, and so nothing of its log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchUncleanable {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Records(#[from] RecordError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// What a pass makes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// Stays as it is.
    Unchanged,
    /// Has fewer records, or a delete horizon.
    Rewritten(Bytes),
    Gone,
}

/// What one pass goes by.
#[derive(Clone, Copy, Debug)]
pub struct PassSettings {
    pub now_ms: i64,
    pub delete_retention_ms: i64,
    /// Exclusive: the batch that ends there stays, so that a log does not end before it did.
    pub end_offset: i64,
    /// No batch is decompressed beyond it.
    pub decompressed_bytes_max: usize,
}

/// The batch that holds what is known of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastOfProducer {
    Data {
        last_offset: i64,
    },
    /// Nothing but a marker is known, which has the last epoch.
    Marker {
        producer_epoch: i16,
    },
}

/// The producers whose last batches must stay.
#[derive(Clone, Debug, Default)]
pub struct LastBatches(BTreeMap<i64, LastOfProducer>);

impl LastBatches {
    /// Of those whose last batch lies below `end_offset`. What is not below `durable_end_offset` may be lost: then the one
    /// before it is the last. `None` where that one is not remembered.
    pub fn of(producers: &ProducerStates, end_offset: i64, durable_end_offset: i64) -> Option<Self> {
        let mut last_batches = BTreeMap::new();
        for (id, entry) in producers.iter() {
            if entry.last_offset().is_none() {
                last_batches.insert(id, LastOfProducer::Marker { producer_epoch: entry.producer_epoch });
                continue;
            }
            let durable = entry.batches().map(|batch| batch.last_offset).filter(|last| *last < durable_end_offset);
            let last_offset = durable.last()?;
            if last_offset < end_offset {
                last_batches.insert(id, LastOfProducer::Data { last_offset });
            }
        }
        Some(Self(last_batches))
    }

    fn holds(&self, batch: &BatchView<'_>) -> bool {
        match self.0.get(&batch.producer_id()) {
            _ if batch.producer_id() == NO_PRODUCER_ID => false,
            Some(LastOfProducer::Data { last_offset }) => batch.last_offset() == *last_offset,
            Some(LastOfProducer::Marker { producer_epoch }) => {
                batch.is_control() && batch.producer_epoch() == *producer_epoch
            }
            None => false,
        }
    }
}

/// Maps the keys of a batch. `scratch` is for decompressed records, and `breathe` is awaited every [`RECORDS_PER_BREATH`].
///
/// # Errors
/// When the batch is not what it says it is.
pub async fn map_batch(
    batch: &BatchView<'_>,
    map: &mut OffsetMap,
    from_offset: i64,
    decompressed_bytes_max: usize,
    scratch: &mut Vec<u8>,
    breathe: &impl AsyncFn(),
) -> Result<Result<(), Full>, BatchUncleanable> {
    let records = records_slice(batch, scratch, decompressed_bytes_max)?;
    for (at, record) in Records::new(batch.header(), records).enumerate() {
        if at % RECORDS_PER_BREATH == 0 {
            breathe().await;
        }
        let record = record?;
        if let Some(key) = record.key.filter(|_| record.offset >= from_offset)
            && let Err(full) = map.put(key, record.offset)
        {
            return Ok(Err(full));
        }
    }
    Ok(Ok(()))
}

/// The record of a control batch; `None` when it has lost it.
///
/// # Errors
/// When the batch is not what it says it is.
pub fn control_record(batch: &BatchView<'_>, scratch: &mut Vec<u8>) -> Result<Option<ControlRecord>, BatchUncleanable> {
    let records = records_slice(batch, scratch, DECOMPRESSED_BYTES_MAX)?;
    let Some(record) = Records::new(batch.header(), records).next() else { return Ok(None) };
    let record = record?;
    // What cannot be read is no end of a transaction, and stays.
    Ok(Some(ControlRecord::parse(&record).unwrap_or(ControlRecord::Other { record_type: -1 })))
}

/// Decides about the batches of a log, in order.
pub struct BatchCleaner<'a> {
    pub map: &'a OffsetMap,
    pub settings: PassSettings,
    pub last_batches: LastBatches,
    pub transactions: Transactions,
    scratch: Vec<u8>,
    /// Which records of the batch stay.
    keep: Vec<bool>,
}

/// What the first look at the records of a batch has found.
#[derive(Default)]
struct Look {
    kept: usize,
    has_tombstone: bool,
}

impl<'a> BatchCleaner<'a> {
    pub fn new(map: &'a OffsetMap, settings: PassSettings) -> Self {
        Self {
            map,
            settings,
            last_batches: LastBatches::default(),
            transactions: Transactions::default(),
            scratch: Vec::new(),
            keep: Vec::new(),
        }
    }

    /// `ends_segment`: nothing follows it in the segment that is written, so that it stays in any case. `breathe` is awaited
    /// every [`RECORDS_PER_BREATH`].
    ///
    /// # Errors
    /// When the batch is not what it says it is.
    pub async fn clean(
        &mut self,
        batch: &BatchView<'_>,
        ends_segment: bool,
        breathe: &impl AsyncFn(),
    ) -> Result<Cleaned, BatchUncleanable> {
        batch.verify_crc()?;
        // Taken out, because the records borrow from it while the rest of `self` decides.
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = self.clean_with(batch, ends_segment, &mut scratch, breathe).await;
        self.scratch = scratch;
        outcome
    }

    async fn clean_with(
        &mut self,
        batch: &BatchView<'_>,
        ends_segment: bool,
        scratch: &mut Vec<u8>,
        breathe: &impl AsyncFn(),
    ) -> Result<Cleaned, BatchUncleanable> {
        let is_outcome_settled = if batch.is_control() {
            let record = control_record(batch, scratch)?;
            self.transactions.note_marker(batch.header(), record)
        } else {
            self.transactions.note_batch(batch.header())
        };
        let horizon_ms = batch.delete_horizon_ms();
        let is_discarded = is_outcome_settled
            && (!batch.is_control() || horizon_ms.is_some_and(|horizon_ms| horizon_ms <= self.settings.now_ms));
        let stays_empty =
            ends_segment || self.last_batches.holds(batch) || batch.next_offset() == self.settings.end_offset;
        if is_discarded {
            return Ok(if stays_empty { emptied(batch)? } else { Cleaned::Gone });
        }
        let records = records_slice(batch, scratch, self.settings.decompressed_bytes_max)?;
        let look = self.look(batch, records, breathe).await?;
        if look.kept == 0 {
            return Ok(if stays_empty { emptied(batch)? } else { Cleaned::Gone });
        }
        let is_free_marker = is_outcome_settled && batch.is_control();
        let needs_horizon = (look.has_tombstone || is_free_marker) && horizon_ms.is_none();
        if look.kept == self.keep.len() && !needs_horizon {
            return Ok(Cleaned::Unchanged);
        }
        let new_horizon_ms = self.settings.now_ms.saturating_add(self.settings.delete_retention_ms);
        let horizon_ms = if needs_horizon { Some(new_horizon_ms) } else { horizon_ms };
        match rebuild(batch, records, &self.keep, horizon_ms, breathe).await {
            // Its times are too far apart to be written anew: keeping it as it is loses nothing.
            Err(BatchUncleanable::Build(BuildError::BadTimestamp { .. })) => Ok(Cleaned::Unchanged),
            rebuilt => rebuilt,
        }
    }

    async fn look(
        &mut self,
        batch: &BatchView<'_>,
        records: &[u8],
        breathe: &impl AsyncFn(),
    ) -> Result<Look, BatchUncleanable> {
        self.keep.clear();
        let mut look = Look::default();
        for (at, record) in Records::new(batch.header(), records).enumerate() {
            if at % RECORDS_PER_BREATH == 0 {
                breathe().await;
            }
            let record = record?;
            let keeps = batch.is_control() || self.keeps(batch.header(), &record);
            self.keep.push(keeps);
            look.kept += usize::from(keeps);
            look.has_tombstone |= keeps && record.value.is_none();
        }
        Ok(look)
    }

    fn keeps(&self, header: &BatchHeader, record: &Record<'_>) -> bool {
        if record.offset > self.map.latest_offset() {
            return true;
        }
        // Written before the topic was compacted: without a key nothing would ever remove it.
        let Some(key) = record.key else { return false };
        let is_last = self.map.find(key).is_none_or(|last| record.offset >= last);
        let has_horizon = header.attributes.has_delete_horizon();
        let is_tombstone_due = has_horizon && self.settings.now_ms >= header.base_timestamp;
        is_last && (record.value.is_some() || !is_tombstone_due)
    }
}

fn options(batch: &BatchView<'_>) -> BatchOptions {
    let is_log_append_time = batch.timestamp_type() == TimestampType::LogAppendTime;
    BatchOptions {
        compression: Compression::NONE,
        base_offset: batch.base_offset(),
        partition_leader_epoch: batch.partition_leader_epoch(),
        producer_id: batch.producer_id(),
        producer_epoch: batch.producer_epoch(),
        base_sequence: batch.base_sequence(),
        transactional: batch.is_transactional(),
        control: batch.is_control(),
        log_append_time: is_log_append_time.then_some(batch.max_timestamp()),
        delete_horizon_ms: None,
    }
}

async fn rebuild(
    batch: &BatchView<'_>,
    records: &[u8],
    keep: &[bool],
    delete_horizon_ms: Option<i64>,
    breathe: &impl AsyncFn(),
) -> Result<Cleaned, BatchUncleanable> {
    let compression = Compression::new(batch.compression_type()?);
    let mut builder = BatchBuilder::new(BatchOptions { compression, delete_horizon_ms, ..options(batch) });
    for (at, (record, keeps)) in Records::new(batch.header(), records).zip(keep).enumerate() {
        if at % RECORDS_PER_BREATH == 0 {
            breathe().await;
        }
        let record = record?;
        if *keeps {
            let headers: Vec<Header<'_>> = record.headers.collect();
            let Record { timestamp, key, value, .. } = record;
            builder.append_at(record.offset, &NewRecord { timestamp, key, value, headers: &headers })?;
        }
    }
    // The producer's last sequence follows from the last offset, which therefore stays.
    builder.extend_to(batch.last_offset())?;
    Ok(Cleaned::Rewritten(builder.build()?.into()))
}

/// The batch without records; itself, when it has none.
fn emptied(batch: &BatchView<'_>) -> Result<Cleaned, BatchUncleanable> {
    if batch.record_count() == 0 {
        return Ok(Cleaned::Unchanged);
    }
    let mut builder = BatchBuilder::new(options(batch));
    builder.extend_to(batch.last_offset())?;
    builder.keep_max_timestamp(batch.max_timestamp());
    Ok(Cleaned::Rewritten(builder.build()?.into()))
}

#[cfg(test)]
mod tests;
