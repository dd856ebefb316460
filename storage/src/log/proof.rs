//! Whether bytes that are no batch, or batches that are missing, had been acknowledged: then nothing is cut off.
//!
//! Evidence that they had, any of which is enough:
//! * A recovery point or a [note](super::known_end) lies behind them, or the log is marked (`damage`).
//! * The log was stopped cleanly: then everything had been flushed.
//! * A later segment has a file: it is made when everything before it is on stable storage.
//! * Good batches are further behind than anything in flight: at most [`GROUP_BYTES_MAX`] is, where every append waits for a
//!   flush.
//!
//! So what is cut off is always the end of the last segment.

use walser_protocol::records::batch::{BatchHeader, BatchView};

use crate::disk::{Disk, File};
use crate::error::{Corruption, DiskError, OpenError};
use crate::runtime::Runtime;
use crate::segment::{FoundSegment, Segment};

use super::Durability;
use super::damage::DamageMark;
use super::read::Pace;
use super::recovery::OpenLog;
use super::round::GROUP_BYTES_MAX;

/// Where a scan has ended, and what there is to be known about it.
pub(super) struct Proof<'a> {
    pub found: &'a FoundSegment,
    pub later: &'a [FoundSegment],
    pub bad: &'a Corruption,
    pub mark: Option<&'a DamageMark>,
}

impl Proof<'_> {
    /// What would be cut off, if it may be.
    pub fn bytes_behind(&self) -> u64 {
        self.found.log_bytes.saturating_sub(self.bad.position)
    }

    pub async fn was_acknowledged<D: Disk, R: Runtime>(
        &self,
        open: &OpenLog<D, R>,
        file: &D::File,
    ) -> Result<bool, OpenError> {
        let is_marked = self.mark.is_some_and(|mark| mark.covers(self.bad.offset));
        if is_marked || open.is_clean || self.bad.offset < open.durable_to() || !self.later.is_empty() {
            return Ok(true);
        }
        // Without a flush per append any amount may be in flight.
        if open.config.durability != Durability::Flushed || self.bytes_behind() <= GROUP_BYTES_MAX as u64 {
            return Ok(false);
        }
        let good_to = last_good_end(open, file, self.bad, self.found.log_bytes).await?;
        Ok(good_to.is_some_and(|end| end - self.bad.position > GROUP_BYTES_MAX as u64))
    }
}

/// Batches that are not where they should be: before the next segment, or below `durable_to`.
pub(super) fn missing<F: File>(scanned: &Segment<F>, later: &[FoundSegment], durable_to: i64) -> Option<Corruption> {
    let end_offset = scanned.end_offset();
    let wanted = match later.first() {
        Some(next) => Some(next.base_offset).filter(|next| *next != end_offset),
        None => Some(durable_to).filter(|durable_to| *durable_to > end_offset),
    };
    wanted.map(|wanted| Corruption {
        path: scanned.path().to_path_buf(),
        position: scanned.written_bytes(),
        offset: end_offset,
        reason: format!("the batches up to offset {wanted} are missing"),
    })
}

/// Looks for batches that verify at any byte behind `bad`. The end of the last one found; it stops early once that is
/// further from `bad` than anything in flight.
async fn last_good_end<D: Disk, R: Runtime>(
    open: &OpenLog<D, R>,
    file: &D::File,
    bad: &Corruption,
    limit: u64,
) -> Result<Option<u64>, OpenError> {
    const WINDOW_BYTES: u64 = 1 << 20;
    const HEADER: usize = walser_protocol::records::batch::BATCH_HEADER_BYTES;
    let failed = |e| DiskError::new("read", &bad.path, e);
    let (mut position, mut found) = (bad.position + 1, None);
    let mut pace = Pace::new(&open.runtime);
    while position + HEADER as u64 <= limit {
        let window = file.read_at(position, WINDOW_BYTES.min(limit - position) as usize).await.map_err(failed)?;
        let mut next = position + (window.len().saturating_sub(HEADER - 1)).max(1) as u64;
        for (at, bytes) in window.windows(HEADER).enumerate() {
            let here = position + at as u64;
            let Some(total) = plausible_batch(bytes, bad.offset).filter(|&total| here + total as u64 <= limit) else {
                continue;
            };
            let batch = file.read_at(here, total).await.map_err(failed)?;
            if BatchView::parse_exact(&batch).is_ok_and(|batch| batch.verify_crc().is_ok()) {
                next = here + total as u64;
                found = Some(next);
                if next - bad.position > 2 * GROUP_BYTES_MAX as u64 {
                    return Ok(found);
                }
                break;
            }
            pace.step().await;
        }
        position = next;
        pace.step().await;
    }
    Ok(found)
}

/// The length a header at the start of `bytes` claims, if it could be that of a batch behind `offset`.
fn plausible_batch(bytes: &[u8], offset: i64) -> Option<usize> {
    let header = BatchHeader::read(bytes)?;
    let is_plausible = header.magic == 2
        && header.base_offset >= offset
        && header.last_offset_delta >= 0
        && header.record_count >= 0
        && header.base_offset - offset <= i64::from(i32::MAX);
    let total = walser_protocol::records::batch::batch_total_len(bytes).ok()?;
    is_plausible.then_some(total)
}
