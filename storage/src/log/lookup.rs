//! Records by timestamp, and what control records say.

use std::rc::Rc;

use bytes::Bytes;
use walser_protocol::records::batch::{BatchHeader, BatchView, Batches, NO_TIMESTAMP};
use walser_protocol::records::control::ControlRecord;
use walser_protocol::records::record::{Record, Records, records_slice};

use crate::disk::{Disk, File, OpenMode};
use crate::error::{Corruption, DiskError, ReadError};
use crate::index::time::{TIME_ENTRY_BYTES, TimeIndex, TimestampOffset};
use crate::producer_state::EndMarker;
use crate::runtime::Runtime;
use crate::segment::reader::Scanner;
use crate::segment::{Segment, TIME_INDEX_SUFFIX, file_path};
use crate::validate::DECOMPRESSED_BYTES_MAX;

use super::read::Pace;
use super::{Log, ReadRequest};

/// What is read at once of batches that are in no segment yet.
const TAIL_READ_BYTES: usize = 1 << 20;

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTimestamp {
    pub timestamp: i64,
    pub offset: i64,
    /// Of the batch that holds the record.
    pub leader_epoch: i32,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// The first record below `upper_bound` that is not older than `timestamp`.
    pub async fn offset_for_timestamp(
        &self,
        timestamp: i64,
        upper_bound: i64,
    ) -> Result<Option<FoundTimestamp>, ReadError> {
        loop {
            let (log_start_offset, exchanges) = (self.log_start_offset(), self.exchanges());
            match self.find_timestamp(timestamp, upper_bound).await {
                Err(_) if self.exchanges() != exchanges => {}
                // A segment was removed while it was looked at, or the log start rose.
                Err(ReadError::Disk(_) | ReadError::OffsetOutOfRange { .. })
                    if self.log_start_offset() > log_start_offset => {}
                outcome => return outcome,
            }
        }
    }

    async fn find_timestamp(&self, timestamp: i64, upper_bound: i64) -> Result<Option<FoundTimestamp>, ReadError> {
        let wanted = Wanted { timestamp, from_offset: self.log_start_offset(), upper_bound };
        // What is written later than now is looked for in memory.
        let written_end_offset = self.written_end_offset();
        let mut next = self.segment_at(wanted.from_offset);
        while let Some(segment) = next {
            if segment.base_offset() >= upper_bound {
                return Ok(None);
            }
            let largest = self.largest_timestamp(&segment).await?;
            if largest.is_some_and(|largest| largest.timestamp >= timestamp)
                && let Some(found) = self.find_in_segment(&segment, wanted).await?
            {
                return Ok(Some(found));
            }
            next = self.segment_behind(&segment);
        }
        self.find_in_tail(written_end_offset.max(wanted.from_offset), wanted).await
    }

    /// The largest timestamp of the log, and the first record that has it. Like Kafka's it is that of the segments, and
    /// the record may lie below the log start: it counts until its segment goes. Where no record has a
    /// timestamp it is the first one's, -1.
    pub async fn max_timestamp(&self) -> Result<Option<FoundTimestamp>, ReadError> {
        loop {
            let exchanges = self.exchanges();
            let segments: Vec<Rc<Segment<D::File>>> = self.inner.state.borrow().segments.values().cloned().collect();
            let first = segments.first().map(|segment| segment.base_offset());
            match self.max_timestamp_of(segments).await {
                // A segment was replaced, and what was found in it perhaps with it.
                _ if self.exchanges() != exchanges => {}
                // A segment was removed while it was looked at.
                Err(ReadError::Disk(_) | ReadError::OffsetOutOfRange { .. }) if self.first_base_offset() > first => {}
                outcome => return outcome,
            }
        }
    }

    fn first_base_offset(&self) -> Option<i64> {
        self.inner.state.borrow().segments.keys().next().copied()
    }

    async fn max_timestamp_of(&self, segments: Vec<Rc<Segment<D::File>>>) -> Result<Option<FoundTimestamp>, ReadError> {
        let without = segments
            .first()
            .map(|first| (TimestampOffset { timestamp: NO_TIMESTAMP, offset: first.base_offset() }, Rc::clone(first)));
        let mut largest: Option<(TimestampOffset, Rc<Segment<D::File>>)> = None;
        for segment in segments {
            let Some(here) = self.largest_timestamp(&segment).await? else { continue };
            if largest.as_ref().is_none_or(|(largest, _)| here.timestamp > largest.timestamp) {
                largest = Some((here, segment));
            }
        }
        let Some((largest, segment)) = largest.filter(|(largest, _)| largest.timestamp >= 0).or(without) else {
            return Ok(None);
        };
        let upper_bound = self.log_end_offset();
        let wanted = Wanted { timestamp: largest.timestamp, from_offset: 0, upper_bound };
        if largest.offset < self.log_start_offset() {
            // It may be in no segment yet; then it is in memory.
            let batches = self.inner.tail.read(largest.offset, upper_bound, 0, true).unwrap_or_default();
            let found = batches.first().and_then(|batch| wanted.find_in_bytes(&batch.bytes).ok().flatten());
            return match found {
                None if segment.written_bytes() > 0 => self.find_in_segment(&segment, wanted).await,
                found => Ok(found),
            };
        }
        let request = ReadRequest { offset: largest.offset, upper_bound, max_bytes: 0, min_one_batch: true };
        let read = self.read(request).await?;
        Ok(read.slices.first().and_then(|batch| wanted.find_in_bytes(batch).ok().flatten()))
    }

    /// Of all batches of the segment, written or not; read from the end of the time index where it is not known.
    pub(super) async fn largest_timestamp(
        &self,
        segment: &Segment<D::File>,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        if let Some(entries) = segment.time_entries_on_disk()
            && !segment.is_largest_known()
        {
            match self.last_time_entry(segment, entries).await? {
                Some(last) => segment.learn_largest(last),
                // Loading them finds out what is wrong, and mends it.
                None => self.load_indexes(segment).await?,
            }
        }
        Ok(segment.largest_timestamp())
    }

    async fn last_time_entry(
        &self,
        segment: &Segment<D::File>,
        entries: usize,
    ) -> Result<Option<TimestampOffset>, DiskError> {
        let Some(before) = entries.checked_sub(1) else { return Ok(None) };
        let path = file_path(&self.inner.dir, segment.base_offset(), TIME_INDEX_SUFFIX);
        let Ok(file) = self.inner.disk.open(&path, OpenMode::Read).await else { return Ok(None) };
        let position = (before * TIME_ENTRY_BYTES) as u64;
        let bytes = file.read_at(position, TIME_ENTRY_BYTES).await.map_err(|e| DiskError::new("read", &path, e))?;
        // The file under its name may be that of the segment that has its place.
        segment.check_not_retired()?;
        Ok(TimeIndex::decode(segment.base_offset(), &bytes, segment.end_offset()).ok().and_then(|index| index.last()))
    }

    async fn find_in_segment(
        &self,
        segment: &Segment<D::File>,
        wanted: Wanted,
    ) -> Result<Option<FoundTimestamp>, ReadError> {
        self.load_indexes(segment).await?;
        let position = {
            let indexes = segment.indexes.borrow();
            let known = indexes.time.entry_at_or_below(wanted.timestamp.saturating_sub(1));
            let not_before = known.map_or(wanted.from_offset, |known| known.offset.max(wanted.from_offset));
            u64::from(indexes.offset.position_before(not_before))
        };
        let file = segment.file(&self.inner.files, OpenMode::ReadWrite).await?;
        let mut scanner = Scanner::new(segment, &file, position, usize::MAX);
        let mut pace = Pace::new(&self.inner.runtime);
        while let Some((header, total)) = scanner.peek().await? {
            if header.base_offset >= wanted.upper_bound {
                break;
            }
            if wanted.may_be_in(&header) {
                let bytes = scanner.checked_bytes(&header, total, true).await?;
                let found = wanted.find_in_bytes(&bytes).map_err(|reason| scanner.corrupt(reason))?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            scanner.advance(&header, total);
            pace.step().await;
        }
        Ok(None)
    }

    /// Batches that may be read before they are in a segment: what only the journal holds, and with durability `memory`.
    async fn find_in_tail(&self, mut offset: i64, wanted: Wanted) -> Result<Option<FoundTimestamp>, ReadError> {
        // A batch that the bound cuts is read whole, as it is from a segment: the search looks at each record's offset.
        let end_offset = self.log_end_offset();
        while offset < wanted.upper_bound.min(end_offset) {
            let request =
                ReadRequest { offset, upper_bound: end_offset, max_bytes: TAIL_READ_BYTES, min_one_batch: true };
            let read = self.read(request).await?;
            for slice in &read.slices {
                if let Some(found) = self.find_in_slice(slice, wanted)? {
                    return Ok(Some(found));
                }
            }
            if read.next_offset <= offset {
                break;
            }
            offset = read.next_offset;
        }
        Ok(None)
    }

    fn find_in_slice(&self, slice: &Bytes, wanted: Wanted) -> Result<Option<FoundTimestamp>, ReadError> {
        for batch in Batches::new(slice).filter_map(Result::ok).filter(|batch| wanted.may_be_in(batch.header())) {
            let found = wanted.find(&batch).map_err(|reason| Corruption {
                path: self.inner.dir.clone(),
                position: 0,
                offset: batch.base_offset(),
                reason,
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// A search by timestamp.
#[derive(Clone, Copy)]
struct Wanted {
    timestamp: i64,
    from_offset: i64,
    /// Exclusive.
    upper_bound: i64,
}

impl Wanted {
    fn may_be_in(&self, header: &BatchHeader) -> bool {
        let last_offset = header.base_offset.saturating_add(i64::from(header.last_offset_delta));
        header.max_timestamp >= self.timestamp && last_offset >= self.from_offset
    }

    /// An error text when the batch's records cannot be read.
    fn find_in_bytes(&self, bytes: &[u8]) -> Result<Option<FoundTimestamp>, String> {
        let (batch, _) = BatchView::parse(bytes).map_err(|error| error.to_string())?;
        self.find(&batch)
    }

    fn find(&self, batch: &BatchView<'_>) -> Result<Option<FoundTimestamp>, String> {
        let mut scratch = Vec::new();
        let records = records_slice(batch, &mut scratch, DECOMPRESSED_BYTES_MAX).map_err(|error| error.to_string())?;
        for record in Records::new(batch.header(), records) {
            let Record { timestamp, offset, .. } = record.map_err(|error| error.to_string())?;
            if timestamp >= self.timestamp && offset >= self.from_offset {
                let leader_epoch = batch.partition_leader_epoch();
                return Ok((offset < self.upper_bound).then_some(FoundTimestamp { timestamp, offset, leader_epoch }));
            }
        }
        Ok(None)
    }
}

/// What a control batch says about a transaction; `None` for other control batches.
pub(super) fn end_marker(bytes: &[u8]) -> Option<EndMarker> {
    let batch = BatchView::parse_exact(bytes).ok()?;
    let mut scratch = Vec::new();
    let records = records_slice(&batch, &mut scratch, DECOMPRESSED_BYTES_MAX).ok()?;
    let record = Records::new(batch.header(), records).next()?.ok()?;
    let (is_aborted, coordinator_epoch) = match ControlRecord::parse(&record)? {
        ControlRecord::Abort { coordinator_epoch } => (true, coordinator_epoch),
        ControlRecord::Commit { coordinator_epoch } => (false, coordinator_epoch),
        ControlRecord::Other { .. } => return None,
    };
    Some(EndMarker {
        producer_id: batch.producer_id(),
        producer_epoch: batch.producer_epoch(),
        coordinator_epoch,
        is_aborted,
        timestamp: record.timestamp,
    })
}
