use std::path::Path;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use walser_protocol::records::batch::{BatchView, Batches};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};

use super::*;
use crate::disk::OpenMode;
use crate::disk::simulated::{Operation, SimulatedDisk, SimulatedDiskOptions};
use crate::error::{AppendError, CommitError, ReadError};
use crate::open_files::OpenFiles;
use crate::runtime::prng::{Prng, seeds};
use crate::runtime::simulated::SimulatedRuntime;
use crate::validate::ValidBatch;

mod clean;
mod cold;
mod compaction;
mod copy;
mod crash;
mod faults;
mod model;
mod on_glommio;
mod retention;
mod room;

const DIR: &str = "/data/topic-0";
/// Blocks of 4 KiB.
const BLOCKS_BYTES: usize = 80 << 10;
const NOW: i64 = 1_700_000_000_000;

type SimulatedLog = Log<SimulatedDisk, SimulatedRuntime>;

struct World {
    runtime: SimulatedRuntime,
    disk: SimulatedDisk,
    config: LogConfig,
    tail_bytes: usize,
    blocks_bytes: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let runtime = SimulatedRuntime::new(seed);
        let disk = SimulatedDisk::with_options(&runtime, SimulatedDiskOptions::default());
        runtime.block_on(async {
            disk.create_dir_all(Path::new(DIR)).await.expect("an empty disk");
            for dir in ["/", "/data"] {
                disk.sync_dir(Path::new(dir)).await.expect("no fault");
            }
        });
        let config = LogConfig { segment_bytes: 12_000, index_interval_bytes: 500, ..LogConfig::default() };
        // Every other world has a block cache.
        let blocks_bytes = if seed % 2 == 1 { BLOCKS_BYTES } else { 0 };
        Self { runtime, disk, config, tail_bytes: 6000, blocks_bytes }
    }

    fn opening(&self, is_clean: bool, recovery_point: Option<i64>) -> OpenLog<SimulatedDisk, SimulatedRuntime> {
        OpenLog {
            disk: self.disk.clone(),
            open_files: OpenFiles::new(2),
            runtime: self.runtime.clone(),
            budget: TailBudget::with_blocks(self.tail_bytes, self.blocks_bytes),
            journal: None,
            dir: DIR.into(),
            entries: None,
            defers_sync: false,
            known_end: None,
            config: self.config.clone().into(),
            is_clean,
            recovery_point,
            log_start_offset: None,
            first_dirty_offset: None,
            now_ms: NOW,
        }
    }

    async fn open(&self, is_clean: bool, recovery_point: Option<i64>) -> (SimulatedLog, RecoveryReport) {
        Log::open(self.opening(is_clean, recovery_point)).await.expect("no fault")
    }
}

/// What was appended, and so what must be read.
#[derive(Clone, Default)]
struct Model {
    /// (base offset, last offset, bytes as stored)
    batches: Vec<(i64, i64, Bytes)>,
}

impl Model {
    fn end_offset(&self) -> i64 {
        self.batches.last().map_or(0, |(_, last, _)| last + 1)
    }

    /// Forgets what lies at or behind `end_offset`, which must be the start of a batch or the end.
    fn cut(&mut self, end_offset: i64) {
        self.batches.retain(|(_, last, _)| *last < end_offset);
        assert_eq!(self.end_offset(), end_offset, "a log ends between batches");
    }
}

/// A batch of `count` records of `value_bytes` each, of producer 7 where a sequence is given.
fn batch(count: usize, value_bytes: usize, timestamp: i64, base_sequence: Option<i32>) -> ValidBatch {
    let producer = match base_sequence {
        Some(base_sequence) => {
            BatchOptions { producer_id: 7, producer_epoch: 0, base_sequence, ..BatchOptions::default() }
        }
        None => BatchOptions::default(),
    };
    let mut builder = BatchBuilder::new(producer);
    let value = vec![timestamp as u8; value_bytes];
    for at in 0..count {
        let record = NewRecord { timestamp: timestamp + at as i64, key: None, value: Some(&value), headers: &[] };
        builder.append(&record).expect("a small record");
    }
    let bytes = builder.build().expect("a small batch");
    ValidBatch::from_trusted(BytesMut::from(&bytes[..])).expect("a batch")
}

fn append(log: &SimulatedLog, model: &mut Model, batch: ValidBatch) -> Result<Appended, AppendError> {
    let mut bytes = BytesMut::from(&batch_bytes(&batch)[..]);
    let appended = log.append_as_leader(Append { batch, leader_epoch: 3, now_ms: NOW })?;
    if !appended.is_duplicate {
        let (mut fields, _) = walser_protocol::records::batch::BatchMut::parse(&mut bytes).expect("a batch");
        fields.set_base_offset(appended.base_offset);
        fields.set_partition_leader_epoch(3);
        model.batches.push((appended.base_offset, appended.last_offset, bytes.freeze()));
    }
    Ok(appended)
}

fn batch_bytes(batch: &ValidBatch) -> Bytes {
    Bytes::copy_from_slice(batch.as_bytes())
}

/// Everything from `from` to the end, batch by batch.
pub(crate) async fn read_all(log: &SimulatedLog, from: i64) -> Vec<(i64, i64, Bytes)> {
    let mut found = Vec::new();
    let mut offset = from;
    while offset < log.log_end_offset() {
        let request = ReadRequest { offset, upper_bound: i64::MAX, max_bytes: 5000, min_one_batch: true };
        let read = log.read(request).await.unwrap_or_else(|error| panic!("{}: {error}", log.dir().display()));
        assert!(read.next_offset > offset, "{}: a read makes progress at {offset}", log.dir().display());
        for slice in &read.slices {
            for batch in Batches::new(slice) {
                let batch = batch.expect("whole batches");
                found.push((batch.base_offset(), batch.last_offset(), Bytes::copy_from_slice(batch.bytes())));
            }
        }
        offset = read.next_offset;
    }
    found
}
