//! Reading on the owner shard, and waiting for something to read.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use walser_protocol::ErrorCode;
use walser_storage::disk::Disk;
use walser_storage::error::LogOffline;
use walser_storage::log::ReadRequest;
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Notify;

use super::waiter::Waiter;
use super::{Partition, PartitionId, Partitions, WaitId};
use crate::error::Refusal;

/// All that one request fetches from partitions of one shard.
#[derive(Clone, Debug)]
pub struct FetchShard {
    /// In the order of the request.
    pub parts: Vec<FetchPart>,
    /// All partitions together; the first batch of the first partition that has one is returned whatever its size.
    pub max_bytes: usize,
    pub read_committed: bool,
}

/// What to wait for.
#[derive(Clone, Copy, Debug)]
pub struct FetchWait {
    pub id: WaitId,
    pub min_bytes: usize,
    pub wait: Duration,
}

/// One partition of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchPart {
    /// Where the answer goes in the response.
    pub slot: usize,
    pub partition: PartitionId,
    pub fetch_offset: i64,
    pub max_bytes: usize,
    pub current_leader_epoch: i32,
    pub last_fetched_epoch: i32,
}

/// The answer for one partition.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub slot: usize,
    pub outcome: Result<FetchedData, Refusal>,
}

/// What was read of one partition.
#[derive(Clone, Debug, Default)]
pub struct FetchedData {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// Whole batches, in order.
    pub slices: Vec<Bytes>,
    pub bytes: usize,
    /// There is a batch to read that does not fit, and nothing of it is returned.
    pub is_first_cut: bool,
    /// There is more behind what is returned.
    pub is_cut: bool,
    /// The reader's history parted from the log's: epoch and end offset of the common part.
    pub diverging: Option<(i32, i64)>,
    /// Producer id and first offset of each aborted transaction in the range; only for read_committed.
    pub aborted: Vec<(i64, i64)>,
}

impl FetchedData {
    /// What it takes of a response in which it may have `max_bytes`. Kafka returns the beginning of the batch that does not
    /// fit any more, and counts it; here it is left out, and counted too, lest partitions further on get what they would not
    /// get from Kafka.
    pub fn charged_bytes(&self, max_bytes: usize) -> usize {
        if self.is_cut { self.bytes.max(max_bytes) } else { self.bytes }
    }
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Reads what there is.
    pub async fn fetch(&self, request: FetchShard) -> Vec<Fetched> {
        let mut left = request.max_bytes;
        let mut is_first = true;
        let mut fetched = Vec::with_capacity(request.parts.len());
        for part in &request.parts {
            let max_bytes = part.max_bytes.min(left);
            let outcome = self.fetch_from_home(part, max_bytes, is_first, request.read_committed).await;
            if let Ok(data) = &outcome
                && data.bytes > 0
            {
                left = left.saturating_sub(data.charged_bytes(max_bytes));
                is_first = false;
            }
            fetched.push(Fetched { slot: part.slot, outcome });
        }
        fetched
    }

    /// A replica that changes its directory while it is read is read again there.
    async fn fetch_from_home(
        &self,
        part: &FetchPart,
        max_bytes: usize,
        min_one_batch: bool,
        read_committed: bool,
    ) -> Result<FetchedData, Refusal> {
        loop {
            let partition = self.leader(part.partition).map_err(Refusal::of)?;
            let outcome = self.fetch_part(&partition, part, max_bytes, min_one_batch, read_committed).await;
            let has_moved = || self.find(part.partition).is_some_and(|now| !Rc::ptr_eq(&now, &partition));
            if outcome.is_ok() || !has_moved() {
                return outcome;
            }
        }
    }

    async fn fetch_part(
        &self,
        partition: &Partition<D, R>,
        part: &FetchPart,
        max_bytes: usize,
        min_one_batch: bool,
        read_committed: bool,
    ) -> Result<FetchedData, Refusal> {
        partition.check_leader_epoch(part.current_leader_epoch).map_err(Refusal::of)?;
        let high_watermark = partition.high_watermark();
        let last_stable_offset = partition.last_stable_offset();
        let mut data = FetchedData {
            high_watermark,
            last_stable_offset,
            log_start_offset: partition.log.log_start_offset(),
            ..FetchedData::default()
        };
        if part.last_fetched_epoch >= 0 {
            data.diverging = diverging(partition, part)?;
            if data.diverging.is_some() {
                return Ok(data);
            }
        }
        check_not_lost(partition, part.fetch_offset)?;
        let upper_bound = if read_committed { last_stable_offset } else { high_watermark };
        let request = ReadRequest { offset: part.fetch_offset, upper_bound, max_bytes, min_one_batch };
        let read = partition.log.read(request).await.map_err(|error| Refusal::from_read(&error))?;
        data.slices = read.slices;
        data.bytes = read.bytes;
        data.is_first_cut = data.bytes == 0 && max_bytes > 0 && part.fetch_offset < upper_bound;
        data.is_cut = data.bytes > 0 && read.next_offset < upper_bound;
        Ok(data)
    }

    /// Waits until the partitions have `min_bytes` together, or any of them an error, or time is up.
    pub async fn wait_for_data(&self, request: &FetchShard, wait: FetchWait) {
        let cancelled = Rc::new(Notify::new());
        self.parked.borrow_mut().insert(wait.id, Rc::clone(&cancelled));
        let enough = self.wait_enough(request, wait.min_bytes);
        let over = async {
            futures_lite::future::or(cancelled.notified(), self.timer.after(wait.wait)).await;
        };
        futures_lite::future::or(enough, over).await;
        self.parked.borrow_mut().remove(&wait.id);
    }

    /// Ends a wait whose fetch is answered from elsewhere.
    pub fn cancel_wait(&self, id: WaitId) {
        if let Some(cancelled) = self.parked.borrow().get(&id) {
            cancelled.notify_all();
        }
    }

    async fn wait_enough(&self, request: &FetchShard, min_bytes: usize) {
        let waiter = Rc::new(Waiter::default());
        let mut interests = Vec::with_capacity(request.parts.len());
        for (index, part) in request.parts.iter().enumerate() {
            let Ok(partition) = self.leader(part.partition) else { return };
            interests.push(partition.waiters.join(&waiter, index));
        }
        let look = |index: usize| {
            let part = request.parts.get(index)?;
            available(&*self.find(part.partition)?, part, request.read_committed)
        };
        let mut bytes = vec![0_usize; interests.len()];
        let mut dirty: Vec<usize> = (0..interests.len()).collect();
        loop {
            for index in dirty {
                let Some(found) = look(index) else { return };
                bytes[index] = found;
            }
            if self.stopping.get() || bytes.iter().sum::<usize>() >= min_bytes.max(1) {
                return;
            }
            dirty = waiter.next().await;
        }
    }
}

/// Behind the readable part of a damaged log there were records: a consumer that is told of an end, or of an offset out of
/// range, would pass over them or begin anew.
fn check_not_lost<D: Disk, R: Runtime>(partition: &Partition<D, R>, fetch_offset: i64) -> Result<(), Refusal> {
    if fetch_offset < partition.log.log_end_offset() {
        return Ok(());
    }
    match partition.log.offline() {
        Some(LogOffline::Corrupt(corruption)) => {
            Err(Refusal::with_message(ErrorCode::KafkaStorageError, corruption.to_string()))
        }
        Some(LogOffline::Failed(_) | LogOffline::Closed) | None => Ok(()),
    }
}

/// Whether a fetch is answered without waiting: there are bytes, or something that must be told.
pub fn is_enough(fetched: &[Fetched], min_bytes: usize) -> bool {
    let mut bytes = 0;
    for part in fetched {
        match &part.outcome {
            Ok(data) if data.diverging.is_none() => bytes += data.bytes,
            Ok(_) | Err(_) => return true,
        }
    }
    bytes >= min_bytes
}

/// Bytes that could be read now; `None` when the partition has something else to tell.
fn available<D: Disk, R: Runtime>(
    partition: &Partition<D, R>,
    part: &FetchPart,
    read_committed: bool,
) -> Option<usize> {
    partition.check_leader_epoch(part.current_leader_epoch).ok()?;
    let upper_bound = if read_committed { partition.last_stable_offset() } else { partition.high_watermark() };
    let request =
        ReadRequest { offset: part.fetch_offset, upper_bound, max_bytes: part.max_bytes, min_one_batch: true };
    match partition.log.read_tail(request) {
        Ok(Some(found)) => Some(found.bytes),
        // On disk: old data is there at once, in whatever amount.
        Ok(None) => Some(part.max_bytes.max(1)),
        Err(_) => None,
    }
}

/// Where the reader's history parts from the log's (KIP-320); `None` when it does not.
fn diverging<D: Disk, R: Runtime>(
    partition: &Partition<D, R>,
    part: &FetchPart,
) -> Result<Option<(i32, i64)>, Refusal> {
    let found = partition.log.end_offset_for_epoch(part.last_fetched_epoch);
    // What is no longer there comes before what is no longer true.
    if found.end_offset < 0 || part.fetch_offset < partition.log.log_start_offset() {
        return Err(Refusal::of(ErrorCode::OffsetOutOfRange));
    }
    let is_parted = found.epoch < part.last_fetched_epoch || found.end_offset < part.fetch_offset;
    Ok(is_parted.then_some((found.epoch, found.end_offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_takes_all_it_might_have_had() {
        // Rule: a read that ends where there is no more takes its bytes, one that is cut takes its whole allowance.
        for (bytes, is_cut, max_bytes, want) in
            [(900, false, 1000, 900), (900, true, 1000, 1000), (5000, true, 1000, 5000), (0, false, 1000, 0)]
        {
            let data = FetchedData { bytes, is_cut, ..FetchedData::default() };
            assert_eq!(data.charged_bytes(max_bytes), want, "{bytes} of {max_bytes}, cut: {is_cut}");
        }
    }
}
