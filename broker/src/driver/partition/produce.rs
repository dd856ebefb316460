//! Appending on the owner shard.

use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use walser_protocol::ErrorCode;
use walser_storage::disk::Disk;
use walser_storage::log::{Append, Appended};
use walser_storage::runtime::Runtime;
use walser_storage::validate::validate;

use super::{Partition, PartitionId, Partitions};
use crate::error::{Refusal, validate_config};

/// All that one request produces to partitions of one shard.
#[derive(Debug)]
pub struct ProduceShard {
    /// 0: answered after the append; else after the batch is as durable as its topic asks.
    pub acks: i16,
    /// How long to wait for that.
    pub timeout: Duration,
    pub parts: Vec<ProducePart>,
}

/// The batch of one partition.
#[derive(Debug)]
pub struct ProducePart {
    /// Where the answer goes in the response.
    pub slot: usize,
    pub partition: PartitionId,
    /// The records field as sent.
    pub records: BytesMut,
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

/// A batch that is in its log and not yet durable.
struct Pending<D: Disk, R: Runtime> {
    slot: usize,
    partition: Rc<Partition<D, R>>,
    end_offset: i64,
    stored: Stored,
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Appends every batch, then waits until all of them are durable. Everything is appended before the first wait.
    pub async fn produce(&self, request: ProduceShard) -> Vec<Produced> {
        let now_ms = self.runtime.wall_clock_ms();
        let mut produced = Vec::with_capacity(request.parts.len());
        let mut pending = Vec::new();
        for ProducePart { slot, partition, records } in request.parts {
            match self.append(partition, records, now_ms) {
                Ok((partition, appended, stored)) => {
                    pending.push(Pending { slot, partition, end_offset: appended.end_offset(), stored });
                }
                Err(refusal) => produced.push(Produced { slot, outcome: Err(refusal) }),
            }
        }
        if request.acks == 0 {
            produced.extend(pending.into_iter().map(|done| Produced { slot: done.slot, outcome: Ok(done.stored) }));
            return produced;
        }
        let deadline = self.runtime.now().saturating_add(request.timeout);
        for Pending { slot, partition, end_offset, stored } in pending {
            let durable =
                async { partition.log.durable(end_offset).await.map_err(|error| Refusal::from_commit(&error)) };
            let late = async {
                let left = deadline.saturating_since(self.runtime.now());
                self.runtime.sleep(left).await;
                Err(Refusal::of(ErrorCode::RequestTimedOut))
            };
            let outcome = futures_lite::future::or(durable, late).await.map(|()| stored);
            produced.push(Produced { slot, outcome });
        }
        produced
    }

    fn append(
        &self,
        id: PartitionId,
        records: BytesMut,
        now_ms: i64,
    ) -> Result<(Rc<Partition<D, R>>, Appended, Stored), Refusal> {
        let partition = self.leader(id).map_err(Refusal::of)?;
        let config = partition.config();
        if config.min_insync_replicas > 1 {
            // One replica is all there is; Kafka refuses acks=all only, which the handler has already sorted out.
            tracing::trace!(topic = %partition.topic, "min.insync.replicas above 1");
        }
        let batch = validate(records, &validate_config(&config), now_ms)
            .map_err(|error| Refusal::from_validate(&error, partition.log.log_start_offset()))?;
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
        Ok((partition, appended, stored))
    }
}
