//! Real segments, as logs leave them, under a replay.

use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};

use super::*;
use crate::cache::tail::TailBudget;
use crate::data_dir::Removal;
use crate::log::{Append, Log, LogConfig, OpenLog, tests as log_tests};
use crate::validate::ValidBatch;

const NOW: i64 = 1_700_000_000_000;

type SimulatedLog = Log<SimulatedDisk, SimulatedRuntime>;

async fn open(world: &World, recovery_point: Option<i64>) -> SimulatedLog {
    let open = OpenLog {
        disk: world.disk.clone(),
        runtime: world.runtime.clone(),
        open_files: crate::open_files::OpenFiles::new(1),
        budget: TailBudget::new(6000),
        dir: world.data_dir().partition_path("topic1", 0),
        config: LogConfig { segment_bytes: 12_000, index_interval_bytes: 500, ..LogConfig::default() }.into(),
        is_clean: false,
        recovery_point,
        log_start_offset: None,
        first_dirty_offset: None,
        entries: None,
        defers_sync: false,
        known_end: None,
        journal: None,
        now_ms: NOW,
    };
    let (log, report) = Log::open(open).await.unwrap();
    assert!(report.corruption.is_none() && report.cut.is_none(), "{report:?}");
    log
}

fn batch(prng: &mut Prng) -> ValidBatch {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = vec![7; 1 + prng.index(2500)];
    let record = NewRecord { timestamp: NOW, key: None, value: Some(&value), headers: &[] };
    builder.append(&record).unwrap();
    ValidBatch::from_trusted(BytesMut::from(&builder.build().unwrap()[..])).unwrap()
}

async fn read_all(log: &SimulatedLog) -> Vec<Bytes> {
    log_tests::read_all(log, 0).await.into_iter().map(|(_, _, bytes)| bytes).collect()
}

/// What a crash may have left of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// A clean stop, and a crash before the journals were removed.
    Everything,
    /// A part of the last segment.
    Part,
    /// No directory.
    Nothing,
}

#[test]
fn a_log_is_what_it_was() {
    // Rule: with what a clean stop left, with a part of it and with nothing, a replay of all its bytes gives a log with the
    // same batches and the same end. So records that the segments have already do no harm, cut files included.
    for seed in seeds(30) {
        for left in [Left::Everything, Left::Part, Left::Nothing] {
            let mut world = World::new(seed);
            let runtime = world.runtime.clone();
            let mut prng = runtime.fork_prng();
            world.make_partition(1);
            let log = runtime.block_on(open(&world, None));
            for _ in 0..prng.between(1, 25) {
                let batch = batch(&mut prng);
                log.append_as_leader(Append { batch, leader_epoch: 3, now_ms: NOW }).unwrap();
                runtime.block_on(log.flush()).unwrap();
            }
            let (want, end_offset) = (runtime.block_on(read_all(&log)), log.log_end_offset());
            runtime.block_on(log.close()).unwrap();
            drop(log);
            let records = records_of(&world, &mut prng);
            world.journal_of(0, &records);
            lose(&mut world, left, &mut prng);
            world.replay().unwrap();
            world.discard();
            world.crash();
            let recovery_point = (left == Left::Everything).then_some(end_offset);
            let log = runtime.block_on(open(&world, recovery_point));
            assert_eq!(log.log_end_offset(), end_offset, "seed {seed} {left:?}");
            assert_eq!(runtime.block_on(read_all(&log)), want, "seed {seed} {left:?}");
        }
    }
}

/// The bytes of all segments as records of random lengths.
fn records_of(world: &World, prng: &mut Prng) -> Vec<Record> {
    let mut records = Vec::new();
    for (base_offset, content) in segments(world) {
        let mut position = 0;
        while position < content.len() {
            let end = content.len().min(position + 1 + prng.index(3000));
            let bytes = Bytes::copy_from_slice(&content[position..end]);
            records.push(Record { topic: 1, base_offset, position: position as u64, bytes });
            position = end;
        }
    }
    records
}

fn segments(world: &World) -> Vec<(i64, Vec<u8>)> {
    let dir = world.data_dir().partition_path("topic1", 0);
    let entries = world.runtime.block_on(world.disk.list_dir(&dir)).unwrap();
    let names = entries.iter().filter_map(|entry| crate::segment::parse_file_name(&entry.name));
    let bases = names.filter(|(_, suffix)| *suffix == LOG_SUFFIX).map(|(base_offset, _)| base_offset);
    bases.map(|base_offset| (base_offset, world.disk.peek(&segment_path(1, base_offset)).unwrap())).collect()
}

fn lose(world: &mut World, left: Left, prng: &mut Prng) {
    let (disk, runtime) = (world.disk.clone(), world.runtime.clone());
    let dir = world.data_dir().partition_path("topic1", 0);
    let segments = segments(world);
    runtime.block_on(async {
        match left {
            Left::Everything => {}
            Left::Part => {
                let (base_offset, content) = segments.last().unwrap();
                let file = disk.open(&segment_path(1, *base_offset), OpenMode::ReadWrite).await.unwrap();
                file.truncate(prng.below(content.len() as u64)).await.unwrap();
                file.sync_data().await.unwrap();
            }
            Left::Nothing => world.data_dir().remove_partition_dir("topic1-0", Removal::AtOnce).await.unwrap(),
        }
        if left == Left::Part {
            disk.sync_dir(&dir).await.unwrap();
        }
    });
}
