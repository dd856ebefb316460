//! Loading a coordinator: every record of its partition, in slices.

use std::rc::Rc;

use walser_machine::group::GroupCoordinator;
use walser_protocol::records::batch::{BatchView, Batches};
use walser_protocol::records::control::ControlRecord;
use walser_protocol::records::record::{Records, records_slice};
use walser_storage::disk::Disk;
use walser_storage::log::{ReadBatches, ReadRequest};
use walser_storage::runtime::{Instant, Runtime};

use super::slot::{LoadError, Slot};
use crate::error::Refusal;
use crate::shard::SLICE;

/// What a load has come to so far.
#[derive(Default)]
struct Progress {
    records: u64,
    /// Records that this program cannot read, which change nothing.
    unreadable: u64,
    scratch: Vec<u8>,
}

impl<D: Disk, R: Runtime> Slot<D, R> {
    /// Replays the log, then begins the service.
    pub(super) async fn load(self: &Rc<Self>) -> Result<(), LoadError> {
        let (life, runtime) = (self.life(), &self.shared.partitions.runtime);
        let began = runtime.now();
        let mut progress = Progress::default();
        let mut offset = self.log()?.log.log_start_offset();
        let log_end_offset = loop {
            let partition = self.log()?;
            let log_end_offset = partition.log.log_end_offset();
            // An earlier life may have left records that are not durable yet; what has been loaded counts as if it were.
            if partition.log.committed_end_offset() < log_end_offset {
                let durable = partition.log.durable(log_end_offset).await;
                durable.map_err(|error| LoadError::Refused(Refusal::from_commit(&error)))?;
                continue;
            }
            if offset >= log_end_offset {
                break log_end_offset;
            }
            let read = self.read(offset, log_end_offset).await?;
            self.replay(life, &read, &mut progress).await?;
            // Compaction may have left nothing up to the end.
            offset = if read.slices.is_empty() { log_end_offset } else { read.next_offset };
        };
        let now = self.now();
        self.with_machine(life, |machine| machine.finish_loading(now, log_end_offset))?;
        self.carry_out();
        if progress.unreadable > 0 {
            tracing::warn!(
                partition = self.id.index,
                records = progress.unreadable,
                "records of groups not understood"
            );
        }
        if progress.records > 0 {
            let took = runtime.now().saturating_since(began);
            tracing::info!(partition = self.id.index, records = progress.records, ?took, "group coordinator loaded");
        }
        Ok(())
    }

    fn log(&self) -> Result<Rc<crate::driver::partition::Partition<D, R>>, LoadError> {
        self.shared.partitions.leader(self.id).map_err(LoadError::Partition)
    }

    /// A replica that changes its directory while it is read is read again there.
    async fn read(&self, offset: i64, upper_bound: i64) -> Result<ReadBatches, LoadError> {
        let max_bytes = self.shared.settings.borrow().load_bytes;
        loop {
            let partition = self.log()?;
            let request = ReadRequest { offset, upper_bound, max_bytes, min_one_batch: true };
            match partition.log.read(request).await {
                Ok(read) => return Ok(read),
                Err(_) if self.shared.partitions.find(self.id).is_some_and(|now| !Rc::ptr_eq(&now, &partition)) => {}
                Err(error) => return Err(LoadError::Refused(Refusal::from_read(&error))),
            }
        }
    }

    async fn replay(&self, life: u64, read: &ReadBatches, progress: &mut Progress) -> Result<(), LoadError> {
        let runtime = &self.shared.partitions.runtime;
        let bytes_max = self.shared.partitions.settings.decompressed_bytes_max;
        let mut slice_began: Instant = runtime.now();
        for slice in &read.slices {
            for batch in Batches::new(slice) {
                let batch = batch.map_err(|error| LoadError::Batch(error.to_string()))?;
                self.with_machine(life, |machine| replay_batch(machine, &batch, progress, bytes_max))??;
                if runtime.now().saturating_since(slice_began) > SLICE {
                    runtime.turn().await;
                    slice_began = runtime.now();
                }
            }
        }
        Ok(())
    }
}

fn replay_batch(
    machine: &mut GroupCoordinator,
    batch: &BatchView<'_>,
    progress: &mut Progress,
    bytes_max: usize,
) -> Result<(), LoadError> {
    let unread = |error: walser_protocol::records::record::RecordError| LoadError::Batch(error.to_string());
    let producer_id = batch.is_transactional().then(|| batch.producer_id());
    let records = records_slice(batch, &mut progress.scratch, bytes_max).map_err(unread)?;
    for record in Records::new(batch.header(), records) {
        let record = record.map_err(unread)?;
        progress.records += 1;
        if batch.is_control() {
            let is_committed = match ControlRecord::parse(&record) {
                Some(ControlRecord::Commit { .. }) => true,
                Some(ControlRecord::Abort { .. }) => false,
                Some(ControlRecord::Other { .. }) | None => continue,
            };
            machine.replay_end_transaction(record.offset, batch.producer_id(), is_committed);
        } else if machine.replay_encoded(record.offset, producer_id, record.key, record.value).is_err() {
            progress.unreadable += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use walser_machine::group::command::OffsetFetch;
    use walser_machine::group::record::{GroupRecord, OffsetCommitValue};
    use walser_machine::group::{Command, Effect, GroupSettings, Now, Reply, RequestId};
    use walser_machine::metadata::MetadataImage;
    use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
    use walser_protocol::records::compression::{Compression, CompressionType};
    use walser_protocol::records::control::{EndTransactionMarker, TransactionResult};
    use walser_protocol::types::Uuid;

    use super::*;

    /// One committed offset.
    pub(in crate::driver::coordinator) fn batch(options: &BatchOptions, group_id: &str, offset: i64) -> Vec<u8> {
        let value = OffsetCommitValue {
            offset,
            leader_epoch: -1,
            metadata: String::new(),
            commit_timestamp_ms: 1_700_000_000_000,
            expire_timestamp_ms: None,
            topic_id: Uuid::ZERO,
        };
        let (group_id, topic) = (group_id.to_owned(), "orders".to_owned());
        let record = GroupRecord::OffsetCommit { group_id, topic, partition_index: 0, value: Some(value) };
        let record = record.encode().unwrap();
        let mut builder = BatchBuilder::new(*options);
        builder
            .append(&NewRecord { timestamp: 1, key: Some(&record.key), value: record.value.as_deref(), headers: &[] })
            .unwrap();
        builder.build().unwrap()
    }

    /// -1 where there is none.
    fn committed(machine: &mut GroupCoordinator, now: Now, group_id: &str) -> i64 {
        let (group_id, topics) = (group_id.to_owned(), None);
        let fetch = OffsetFetch { group_id, member_id: None, member_epoch: -1, topics, require_stable: false };
        machine.handle(now, RequestId(1), Command::OffsetFetch(fetch));
        let Some(Effect::Reply { reply: Reply::OffsetFetch(reply), .. }) = machine.poll_effect() else {
            panic!("no answer")
        };
        reply.topics.first().map_or(-1, |topic| topic.partitions[0].committed_offset)
    }

    #[test]
    fn every_kind_of_batch_is_loaded() {
        // Rule: compressed batches count, those of a transaction once it is committed and not when it is aborted, a record that
        // nobody understands changes nothing, and bytes that are no records end the load.
        let now = Now { timer_ms: 0, wall_ms: 1_700_000_000_000 };
        let mut machine = GroupCoordinator::new(GroupSettings::default(), Arc::new(MetadataImage::default()), now);
        let plain = BatchOptions::default();
        let zstd = BatchOptions { compression: Compression::new(CompressionType::Zstd), base_offset: 0, ..plain };
        let mut batches = vec![batch(&zstd, "packed", 1)];
        for (producer_id, group_id, result) in
            [(1, "done", TransactionResult::Commit), (2, "undone", TransactionResult::Abort)]
        {
            let base_offset = producer_id * 2;
            let of_transaction = BatchOptions { producer_id, transactional: true, base_offset, ..plain };
            batches.push(batch(&of_transaction, group_id, 2));
            let marker = EndTransactionMarker {
                producer_id,
                producer_epoch: 0,
                result,
                coordinator_epoch: 0,
                timestamp: 2,
                base_offset: base_offset + 1,
                partition_leader_epoch: 0,
            };
            batches.push(marker.build().unwrap());
        }
        let mut odd = BatchBuilder::new(BatchOptions { base_offset: 6, ..plain });
        odd.append(&NewRecord { timestamp: 1, key: Some(b"\0\x01"), value: Some(b"?"), headers: &[] }).unwrap();
        batches.push(odd.build().unwrap());
        batches.push(batch(&BatchOptions { base_offset: 7, ..plain }, "last", 3));
        let mut progress = Progress::default();
        for bytes in &batches {
            replay_batch(&mut machine, &BatchView::parse_exact(bytes).unwrap(), &mut progress, 1 << 20).unwrap();
        }
        assert_eq!((progress.records, progress.unreadable), (7, 1));
        machine.finish_loading(now, 8);
        for (group_id, want) in [("packed", 1), ("done", 2), ("undone", -1), ("last", 3), ("other", -1)] {
            assert_eq!(committed(&mut machine, now, group_id), want, "{group_id}");
        }
        let last = batches[0].len() - 1;
        batches[0][last] ^= 0xff;
        let damaged = BatchView::parse_exact(&batches[0]).unwrap();
        assert!(matches!(replay_batch(&mut machine, &damaged, &mut progress, 1 << 20), Err(LoadError::Batch(_))));
    }
}
