//! Space reserved ahead of the writes, off the ack path.
//!
//! Reserving doubles with the segment, so that a partition that is hardly written to holds little, and a busy one asks
//! seldom. A reservation that fails is no error: the write that needs the space will say so.

use std::cell::Cell;

use crate::disk::{BLOCK_BYTES, File};

/// Least and largest step of a reservation.
const STEP_BYTES_MIN: u64 = 1 << 20;
const STEP_BYTES_MAX: u64 = 64 << 20;
const _: () = assert!((STEP_BYTES_MIN as usize).is_multiple_of(BLOCK_BYTES));

#[derive(Default)]
pub struct Preallocation {
    /// Reserved from the start of the file.
    reserved_bytes: Cell<u64>,
    is_running: Cell<bool>,
}

impl Preallocation {
    /// Where to reserve to now that `written_bytes` are used; `None` when enough is reserved, or a reservation runs. A plan
    /// counts as running until [`Self::run`] has ended.
    pub fn plan(&self, written_bytes: u64, segment_bytes: u32) -> Option<u64> {
        let step = written_bytes.clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
        // Small segments are left alone: nothing is gained before the first step is full.
        if self.is_running.get()
            || written_bytes < STEP_BYTES_MIN
            || written_bytes + step / 2 < self.reserved_bytes.get()
        {
            return None;
        }
        let block = BLOCK_BYTES as u64;
        let target = (written_bytes + step).min(u64::from(segment_bytes)).next_multiple_of(block);
        let is_useful = target > self.reserved_bytes.get() && target > written_bytes;
        self.is_running.set(is_useful);
        is_useful.then_some(target)
    }

    /// Carries out a plan. Whoever cuts the file waits until no reservation runs.
    pub async fn run<F: File>(&self, file: &F, target_bytes: u64) {
        let outcome = file.preallocate(target_bytes, false).await;
        self.is_running.set(false);
        match outcome {
            Ok(()) => self.reserved_bytes.set(target_bytes),
            Err(error) => tracing::debug!(path = %file.path().display(), %error, "space not reserved"),
        }
    }

    /// The file was cut to its data.
    pub fn forget(&self) {
        self.reserved_bytes.set(0);
    }

    pub fn is_running(&self) -> bool {
        self.is_running.get()
    }
}
