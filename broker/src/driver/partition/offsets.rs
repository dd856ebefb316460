//! What the owner shard knows about offsets, epochs, producers and sizes.

use std::time::Duration;

use walser_protocol::ErrorCode;
use walser_storage::disk::Disk;
use walser_storage::runtime::Runtime;

use super::{Partition, PartitionId, Partitions};
use crate::driver::checkpoints::LogOffsets;
use crate::error::Refusal;
use crate::log_dirs::LogDirIndex;

/// An offset by timestamp, or by one of Kafka's special ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// -1: the high watermark, or the last stable offset.
    Latest,
    /// -2: the log start offset.
    Earliest,
    /// -3: the first record with the largest timestamp.
    MaxTimestamp,
    /// -4: the first offset on local disks; without tiering the log start offset.
    EarliestLocal,
    /// -5: the last offset in tiered storage; without tiering there is none.
    LatestTiered,
    /// -6: the first offset that waits for its upload; without tiering there is none.
    EarliestPendingUpload,
    /// The first record at or after this time.
    Timestamp(i64),
}

impl OffsetSpec {
    /// `None` for negative timestamps that mean nothing.
    pub const fn from_wire(timestamp: i64) -> Option<Self> {
        match timestamp {
            -1 => Some(Self::Latest),
            -2 => Some(Self::Earliest),
            -3 => Some(Self::MaxTimestamp),
            -4 => Some(Self::EarliestLocal),
            -5 => Some(Self::LatestTiered),
            -6 => Some(Self::EarliestPendingUpload),
            0.. => Some(Self::Timestamp(timestamp)),
            _ => None,
        }
    }
}

/// One partition of ListOffsets.
#[derive(Clone, Copy, Debug)]
pub struct OffsetQuery {
    pub slot: usize,
    pub partition: PartitionId,
    pub current_leader_epoch: i32,
    pub spec: OffsetSpec,
    pub read_committed: bool,
}

/// -1 in every field that does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: i32,
}

impl FoundOffset {
    const NONE: Self = Self { timestamp: -1, offset: -1, leader_epoch: -1 };
}

/// One partition of OffsetForLeaderEpoch.
#[derive(Clone, Copy, Debug)]
pub struct EpochQuery {
    pub slot: usize,
    pub partition: PartitionId,
    pub current_leader_epoch: i32,
    pub leader_epoch: i32,
}

/// One partition of DeleteRecords.
#[derive(Clone, Copy, Debug)]
pub struct StartQuery {
    pub slot: usize,
    pub partition: PartitionId,
    /// -1 is the high watermark.
    pub offset: i64,
    /// How long what was appended before may take to be committed.
    pub wait: Duration,
}

/// An answer that belongs to one place of the response.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    pub slot: usize,
    pub outcome: Result<T, Refusal>,
}

/// A producer that has written to a partition (KIP-664).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub last_sequence: i32,
    pub last_timestamp: i64,
    pub coordinator_epoch: i32,
    /// -1 without an open transaction.
    pub current_txn_start_offset: i64,
}

/// A log of this shard, or the copy of one that is being moved, as DescribeLogDirs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSize {
    pub topic: std::sync::Arc<str>,
    pub partition: PartitionId,
    pub dir: LogDirIndex,
    pub bytes: u64,
    /// What a copy lacks; 0 of a log.
    pub offset_lag: i64,
    pub is_future: bool,
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Answers ListOffsets.
    pub async fn list_offsets(&self, queries: Vec<OffsetQuery>) -> Vec<Answer<FoundOffset>> {
        let mut answers = Vec::with_capacity(queries.len());
        for query in queries {
            let outcome = match self.ask(query.partition, query.current_leader_epoch) {
                Ok(partition) => find_offset(&partition, query).await,
                Err(refusal) => Err(refusal),
            };
            answers.push(Answer { slot: query.slot, outcome });
        }
        answers
    }

    /// Answers OffsetForLeaderEpoch: epoch and end offset, both -1 when the epoch is unknown.
    pub fn epoch_ends(&self, queries: &[EpochQuery]) -> Vec<Answer<(i32, i64)>> {
        queries
            .iter()
            .map(|query| {
                let outcome = self.ask(query.partition, query.current_leader_epoch).map(|partition| {
                    let found = partition.log.end_offset_for_epoch(query.leader_epoch);
                    (found.epoch, found.end_offset)
                });
                Answer { slot: query.slot, outcome }
            })
            .collect()
    }

    /// Answers DescribeProducers, in ascending order of producer id.
    pub fn active_producers(&self, queries: &[(usize, PartitionId)]) -> Vec<Answer<Vec<ActiveProducer>>> {
        queries
            .iter()
            .map(|(slot, id)| {
                let outcome = self.leader(*id).map_err(Refusal::of).map(|partition| producers_of(&partition));
                Answer { slot: *slot, outcome }
            })
            .collect()
    }

    /// Every log of this shard, and every copy that is to take the place of one.
    pub fn log_sizes(&self) -> Vec<LogSize> {
        let by_id = self.by_id.borrow();
        let logs = by_id.values().map(|partition| LogSize {
            topic: std::sync::Arc::clone(&partition.topic),
            partition: partition.id,
            dir: partition.dir,
            bytes: partition.log.size_bytes(),
            offset_lag: 0,
            is_future: false,
        });
        let copies = self.moves.copies().into_iter().filter_map(|(id, copy)| {
            let partition = by_id.get(&id)?;
            Some(LogSize {
                topic: std::sync::Arc::clone(&partition.topic),
                partition: id,
                dir: copy.to,
                bytes: copy.copied_bytes(),
                offset_lag: partition.log.log_end_offset() - copy.copied_end_offset(),
                is_future: true,
            })
        });
        logs.chain(copies).collect()
    }

    /// Answers DeleteRecords; what is answered is not on stable storage yet.
    pub async fn raise_log_starts(&self, queries: Vec<StartQuery>) -> Vec<Answer<LogOffsets>> {
        let mut answers = Vec::with_capacity(queries.len());
        for query in queries {
            answers.push(Answer { slot: query.slot, outcome: self.raise_log_start(query).await });
        }
        answers
    }

    async fn raise_log_start(&self, query: StartQuery) -> Result<LogOffsets, Refusal> {
        let partition = self.leader(query.partition).map_err(Refusal::of)?;
        let cleanup = partition.config().cleanup;
        if cleanup.compact && !cleanup.delete {
            return Err(Refusal::with_message(
                ErrorCode::PolicyViolation,
                format!("{} is compacted, which is what removes its records", partition.topic),
            ));
        }
        // Without other replicas Kafka commits what it appends; here acks=0 may have been told before.
        let log_end_offset = partition.log.log_end_offset();
        let wanted = if query.offset == -1 { log_end_offset } else { query.offset };
        if wanted > partition.high_watermark() && wanted <= log_end_offset {
            let committed = async { partition.log.durable(wanted).await.map_err(|error| Refusal::from_commit(&error)) };
            let late = async {
                self.timer.after(query.wait).await;
                Err(Refusal::of(ErrorCode::RequestTimedOut))
            };
            futures_lite::future::or(committed, late).await?;
        }
        if !partition.log.is_dir_durable() {
            // What is noted of a log whose directory is gone with the power counts for nothing.
            partition.log.flush().await.map_err(|error| Refusal::from_commit(&error))?;
        }
        // What is decided now is to be in the directory in which the replica will be.
        while let Some(switch) = self.moves.switch_of(query.partition).filter(|switch| !switch.is_over()) {
            switch.over().await;
        }
        let partition = self.leader(query.partition).map_err(Refusal::of)?;
        let high_watermark = partition.high_watermark();
        let offset = if query.offset == -1 { high_watermark } else { query.offset };
        partition.log.raise_log_start(offset, high_watermark).map_err(|error| Refusal::from_read(&error))?;
        Ok(partition.offsets())
    }

    fn ask(&self, id: PartitionId, current_leader_epoch: i32) -> Result<std::rc::Rc<Partition<D, R>>, Refusal> {
        let partition = self.leader(id).map_err(Refusal::of)?;
        partition.check_leader_epoch(current_leader_epoch).map_err(Refusal::of)?;
        Ok(partition)
    }
}

async fn find_offset<D: Disk, R: Runtime>(
    partition: &Partition<D, R>,
    query: OffsetQuery,
) -> Result<FoundOffset, Refusal> {
    let log = &partition.log;
    let upper_bound = if query.read_committed { partition.last_stable_offset() } else { partition.high_watermark() };
    let found = match query.spec {
        OffsetSpec::Latest => {
            FoundOffset { timestamp: -1, offset: upper_bound, leader_epoch: partition.leader_epoch.get() }
        }
        OffsetSpec::Earliest | OffsetSpec::EarliestLocal => {
            let offset = log.log_start_offset();
            let is_known = log.epoch_at(offset);
            FoundOffset { timestamp: -1, offset, leader_epoch: is_known.unwrap_or(-1) }
        }
        OffsetSpec::LatestTiered | OffsetSpec::EarliestPendingUpload => FoundOffset::NONE,
        OffsetSpec::MaxTimestamp => {
            let found = log.max_timestamp().await.map_err(|error| Refusal::from_read(&error))?;
            found.map_or(FoundOffset::NONE, from_log)
        }
        OffsetSpec::Timestamp(timestamp) => {
            let found =
                log.offset_for_timestamp(timestamp, upper_bound).await.map_err(|error| Refusal::from_read(&error))?;
            found.map_or(FoundOffset::NONE, from_log)
        }
    };
    Ok(found)
}

fn from_log(found: walser_storage::log::FoundTimestamp) -> FoundOffset {
    FoundOffset { timestamp: found.timestamp, offset: found.offset, leader_epoch: found.leader_epoch }
}

fn producers_of<D: Disk, R: Runtime>(partition: &Partition<D, R>) -> Vec<ActiveProducer> {
    partition.log.with_producers(|producers| {
        producers
            .iter()
            .map(|(producer_id, entry)| ActiveProducer {
                producer_id,
                producer_epoch: entry.producer_epoch,
                last_sequence: entry.last_sequence(),
                last_timestamp: entry.last_timestamp,
                coordinator_epoch: entry.coordinator_epoch,
                current_txn_start_offset: entry.current_txn_first_offset.unwrap_or(-1),
            })
            .collect()
    })
}

/// Kafka's answer to a timestamp that means nothing.
pub const BAD_TIMESTAMP: ErrorCode = ErrorCode::UnsupportedVersion;
