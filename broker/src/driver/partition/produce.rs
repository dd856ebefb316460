//! Appending on the owner shard.

use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use walser_protocol::ErrorCode;
use walser_protocol::records::batch::BatchError;
use walser_storage::disk::Disk;
use walser_storage::log::{Append, Place};
use walser_storage::runtime::{Instant, Runtime};
use walser_storage::validate::{RefusalReason, ValidBatch, ValidateConfig, ValidateError, validate};

use super::moves::SwitchPlace;
use super::{Partition, PartitionId, Partitions};
use crate::error::{Refusal, validate_config};

/// This broker's own: there are no followers yet.
const REPLICAS: i32 = 1;
const IN_SYNC_REPLICAS: i32 = 1;
/// Clients may send a timeout of 0, which in Kafka bounds replication only. More than a disk takes that is not in trouble.
const FLUSH_WAIT_MIN: Duration = Duration::from_secs(1);

/// All that one request produces to partitions of one shard.
#[derive(Debug)]
pub struct ProduceShard {
    /// 0: answered after the append; else after the batch is as durable as its topic asks.
    pub acks: i16,
    /// The client's limit, for the other replicas: this broker's own flush is given [`FLUSH_WAIT_MIN`] in any case.
    pub timeout: Duration,
    pub parts: Vec<ProducePart>,
}

impl ProduceShard {
    /// Bytes of batches, as they came.
    pub fn sent_bytes(&self) -> usize {
        let of = |part: &ProducePart| match &part.records {
            Records::Sent(bytes) => bytes.len(),
            Records::Checked { sent_bytes, .. } => *sent_bytes,
        };
        self.parts.iter().map(of).sum()
    }
}

/// The batch of one partition.
#[derive(Debug)]
pub struct ProducePart {
    /// Where the answer goes in the response.
    pub slot: usize,
    pub partition: PartitionId,
    pub records: Records,
}

/// What is to be appended to one partition.
#[derive(Debug)]
pub enum Records {
    /// The field as it came, not compressed nor to be.
    Sent(BytesMut),
    /// What became of `sent_bytes` when they were looked at.
    Checked { sent_bytes: usize, outcome: Result<ValidBatch, Box<ValidateError>> },
}

impl Records {
    /// The batch, when it is one, and how long it was when it came.
    fn check(self, config: &ValidateConfig, now_ms: i64) -> (usize, Result<ValidBatch, ValidateError>) {
        match self {
            Self::Sent(bytes) => (bytes.len(), validate(bytes, config, now_ms, &mut Vec::new())),
            Self::Checked { sent_bytes, outcome } => (sent_bytes, outcome.map_err(|error| *error)),
        }
    }
}

/// The answer for one partition.
#[derive(Debug)]
pub struct Produced {
    pub slot: usize,
    pub outcome: Result<Stored, Refusal>,
}

/// Where a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub base_offset: i64,
    /// -1 on CreateTime topics.
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
    /// Bytes and records appended; 0 of a duplicate.
    pub bytes: usize,
    pub records: u32,
}

/// A batch that may be appended as soon as there is room for it.
struct Ready<D: Disk, R: Runtime> {
    slot: usize,
    partition: Rc<Partition<D, R>>,
    batch: ValidBatch,
}

/// What a batch that is not appended at once waits for.
enum Wait<D: Disk, R: Runtime> {
    /// Its place in the line of the log, which has no room.
    Room(Place<D, R>),
    /// Its place in the line of a replica that changes its directory.
    Switch(SwitchPlace),
}

/// A batch that is in its log and not yet durable.
struct Pending<D: Disk, R: Runtime> {
    slot: usize,
    partition: Rc<Partition<D, R>>,
    end_offset: i64,
    stored: Stored,
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Appends every batch, then waits until all of them are durable. Everything is appended before the first wait, or
    /// stands in its log's line, so that no request that comes later overtakes it.
    pub async fn produce(&self, request: ProduceShard) -> Vec<Produced> {
        let now_ms = self.runtime.wall_clock_ms();
        let mut produced = Vec::with_capacity(request.parts.len());
        let (mut pending, mut waiting) = (Vec::new(), Vec::new());
        for part in request.parts {
            let slot = part.slot;
            let appended = match self.check(part, request.acks, now_ms) {
                Ok(ready) => match self.stand_in_line(&ready) {
                    Some(wait) => {
                        waiting.push((ready, wait));
                        continue;
                    }
                    None => self.append(ready, now_ms),
                },
                Err(refusal) => Err(refusal),
            };
            match appended {
                Ok(appended) => pending.push(appended),
                Err(refusal) => produced.push(Produced { slot, outcome: Err(refusal) }),
            }
        }
        let deadline = self.runtime.now().saturating_add(request.timeout.max(FLUSH_WAIT_MIN));
        for (ready, wait) in waiting {
            let slot = ready.slot;
            let appended = match wait {
                Wait::Room(place) => self.append_in_turn(ready, place, deadline).await,
                Wait::Switch(place) => self.append_after_switch(ready, place, deadline).await,
            };
            match appended {
                Ok(appended) => pending.push(appended),
                Err(refusal) => produced.push(Produced { slot, outcome: Err(refusal) }),
            }
        }
        if request.acks == 0 {
            produced.extend(pending.into_iter().map(|done| Produced { slot: done.slot, outcome: Ok(done.stored) }));
            return produced;
        }
        for Pending { slot, partition, end_offset, stored } in pending {
            let durable =
                async { partition.log.durable(end_offset).await.map_err(|error| Refusal::from_commit(&error)) };
            let late = async {
                self.timer.at(deadline).await;
                Err(Refusal::of(ErrorCode::RequestTimedOut))
            };
            let outcome = futures_lite::future::or(durable, late).await.map(|()| stored);
            produced.push(Produced { slot, outcome });
        }
        produced
    }

    /// `None` when the batch may be appended at once.
    fn stand_in_line(&self, ready: &Ready<D, R>) -> Option<Wait<D, R>> {
        match self.moves.switch_of(ready.partition.id) {
            Some(switch) => Some(Wait::Switch(switch.stand_in_line())),
            None => ready.partition.log.stand_in_line(ready.batch.len()).map(Wait::Room),
        }
    }

    /// In the directory in which the replica is by then.
    async fn append_after_switch(
        &self,
        ready: Ready<D, R>,
        place: SwitchPlace,
        deadline: Instant,
    ) -> Result<Pending<D, R>, Refusal> {
        self.until(deadline, place.turn()).await?;
        let partition = self.leader(ready.partition.id).map_err(Refusal::of)?;
        let ready = Ready { partition, ..ready };
        let in_line = ready.partition.log.stand_in_line(ready.batch.len());
        // Whoever comes next does so behind this one.
        drop(place);
        match in_line {
            Some(place) => self.append_in_turn(ready, place, deadline).await,
            None => self.append(ready, self.runtime.wall_clock_ms()),
        }
    }

    async fn until(&self, deadline: Instant, turn: impl Future<Output = ()>) -> Result<(), Refusal> {
        let turn = async {
            turn.await;
            Ok(())
        };
        let late = async {
            self.timer.at(deadline).await;
            Err(Refusal::of(ErrorCode::RequestTimedOut))
        };
        futures_lite::future::or(turn, late).await
    }

    /// For the producer there is no difference to a disk that takes long: it is told later.
    async fn append_in_turn(
        &self,
        ready: Ready<D, R>,
        place: Place<D, R>,
        deadline: Instant,
    ) -> Result<Pending<D, R>, Refusal> {
        self.until(deadline, place.turn()).await?;
        // The topic may have gone meanwhile, and come again.
        let now = self.leader(ready.partition.id).map_err(Refusal::of)?;
        if !Rc::ptr_eq(&now, &ready.partition) {
            return Err(Refusal::of(ErrorCode::NotLeaderOrFollower));
        }
        self.append(ready, self.runtime.wall_clock_ms())
    }

    fn check(&self, part: ProducePart, acks: i16, now_ms: i64) -> Result<Ready<D, R>, Refusal> {
        let ProducePart { slot, partition, records } = part;
        let partition = self.leader(partition).map_err(Refusal::of)?;
        if self.data_dir(partition.dir).disk().is_short() {
            let message = "the disk is full: nothing is appended until there is room again";
            return Err(Refusal::with_message(ErrorCode::KafkaStorageError, message));
        }
        let config = partition.config();
        // A topic cannot ask for more than it has.
        let wanted = config.min_insync_replicas.min(REPLICAS);
        if acks == -1 && wanted > IN_SYNC_REPLICAS {
            let message = format!("{IN_SYNC_REPLICAS} replica is in sync, min.insync.replicas is {wanted}");
            let log_start_offset = partition.log.log_start_offset();
            return Err(Refusal { log_start_offset, ..Refusal::with_message(ErrorCode::NotEnoughReplicas, message) });
        }
        let limits = validate_config(&config, self.settings.decompressed_bytes_max);
        let (sent_bytes, checked) = records.check(&limits, now_ms);
        let batch = checked.map_err(|error| {
            self.count_refused(&error, sent_bytes);
            Refusal::from_validate(&error, partition.log.log_start_offset())
        })?;
        if batch.header().attributes.is_transactional() {
            return Err(Refusal::with_message(
                ErrorCode::InvalidTxnState,
                "transactions are not served: there is no transaction coordinator",
            ));
        }
        Ok(Ready { slot, partition, batch })
    }

    fn append(&self, ready: Ready<D, R>, now_ms: i64) -> Result<Pending<D, R>, Refusal> {
        let Ready { slot, partition, batch } = ready;
        let (bytes, records) = (batch.len(), batch.header().record_count.unsigned_abs());
        let append = Append { batch, leader_epoch: partition.leader_epoch.get(), now_ms };
        let appended = partition
            .log
            .append_as_leader(append)
            .map_err(|error| Refusal::from_append(&error, partition.log.log_start_offset()))?;
        let is_new = !appended.is_duplicate;
        let stored = Stored {
            base_offset: appended.base_offset,
            log_append_time_ms: appended.log_append_time_ms,
            log_start_offset: appended.log_start_offset,
            bytes: if is_new { bytes } else { 0 },
            records: if is_new { records } else { 0 },
        };
        self.settings.metrics.messages_in.add(u64::from(stored.records));
        self.settings.metrics.produced_bytes.add(stored.bytes as u64);
        Ok(Pending { slot, partition, end_offset: appended.end_offset(), stored })
    }

    /// Counts what dashboards want to know of a batch that was not accepted as it came.
    fn count_refused(&self, error: &ValidateError, sent_bytes: usize) {
        let metrics = &self.settings.metrics;
        if let ValidateError::RefusedRecords(refused) = error {
            let without_key = refused.iter().filter(|record| record.reason == RefusalReason::NoKey).count();
            metrics.no_key_compacted_records.add(without_key as u64);
        } else if matches!(error, ValidateError::TooLarge { .. }) {
            metrics.rejected_bytes.add(sent_bytes as u64);
        } else if matches!(error, ValidateError::Corrupt(BatchError::BadCrc { .. })) {
            metrics.message_crc_failures.increment();
        }
    }
}
