use walser_machine::metadata::records::ConfigResource;
use walser_storage::disk::simulated::{Operation, SimulatedDisk};
use walser_storage::runtime::simulated::SimulatedRuntime;

use super::*;

const DIR: &str = "/data/quorum";

fn options(snapshot_after_bytes: u64) -> QuorumOptions {
    QuorumOptions { dir: DIR.into(), salt_seed: 1, snapshot_after_bytes, features: BTreeMap::new() }
}

/// A disk on which the data directory is durable.
fn disk(runtime: &SimulatedRuntime) -> SimulatedDisk {
    let disk = SimulatedDisk::new(runtime);
    runtime.block_on(async {
        disk.create_dir_all(Path::new("/data")).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
    });
    disk
}

fn record(serial: u64) -> Vec<MetadataRecord> {
    vec![MetadataRecord::Config {
        resource: ConfigResource::DefaultBroker,
        key: format!("key-{:03}", serial % 50),
        value: Some(serial.to_string()),
    }]
}

async fn change<D: Disk, R: Runtime>(
    quorum: &mut Quorum<D, R>,
    image: &mut Arc<MetadataImage>,
    serial: u64,
) -> Result<(), QuorumError> {
    let mut builder = ImageBuilder::new(image);
    builder.replay_batch(&record(serial)).unwrap();
    let appended = quorum.append(image.end_offset(), &record(serial))?;
    quorum.committed(appended).await?;
    *image = builder.finish().0;
    Ok(())
}

/// The image that exactly the first `count` changes lead to.
fn model(count: u64) -> MetadataImage {
    let mut builder = ImageBuilder::new(&MetadataImage::default());
    for serial in 0..count {
        builder.replay_batch(&record(serial)).unwrap();
    }
    builder.image().clone()
}

#[test]
fn what_was_committed_is_there_after_a_restart() {
    // Rule: a restart finds every committed batch, through snapshots and without, closed cleanly or killed.
    let runtime = SimulatedRuntime::new(1);
    let mut disk = disk(&runtime);
    let mut count = 0;
    for round in 0..6 {
        runtime.block_on(async {
            let (mut quorum, mut image) = Quorum::open(disk.clone(), runtime.clone(), options(2000)).await.unwrap();
            assert_eq!(*image, model(count), "round {round}");
            for _ in 0..40 {
                change(&mut quorum, &mut image, count).await.unwrap();
                quorum.snapshot_if_due(&image).await;
                count += 1;
            }
            if round % 2 == 0 {
                quorum.close(&image).await.unwrap();
            }
        });
        runtime.crash();
        disk = disk.kill(&runtime);
    }
}

#[test]
fn a_power_cut_at_any_disk_operation_loses_nothing_that_was_committed() {
    // Rule: after a power cut the log holds all that was committed and at most one batch more, wherever the cut falls: in the first
    // start, an append, a snapshot, the removal of the old one, or the start after a cut.
    for seed in 0..40 {
        let mut cut_at = 1 + seed % 3;
        loop {
            let runtime = SimulatedRuntime::new(seed);
            let disk = disk(&runtime);
            disk.cut_power_at(cut_at);
            let mut committed = 0;
            let finished =
                runtime.block_on_unless(work(&disk, &runtime, &mut committed), || disk.has_lost_power()).is_ok();
            runtime.crash();
            let after = disk.crash(&runtime);
            let found = runtime.block_on(async {
                let (mut quorum, mut image) = Quorum::open(after.clone(), runtime.clone(), options(600)).await.unwrap();
                let found = image.end_offset();
                assert!(found >= committed, "seed {seed}, cut at {cut_at}: {committed} committed, {found} found");
                assert!(found <= committed + 1, "seed {seed}, cut at {cut_at}: {committed} committed, {found} found");
                assert_eq!(*image, model(found), "seed {seed}, cut at {cut_at}");
                change(&mut quorum, &mut image, found).await.unwrap();
                found
            });
            runtime.crash();
            let again = after.crash(&runtime);
            let (_, image) = runtime.block_on(Quorum::open(again, runtime.clone(), options(600))).unwrap();
            assert_eq!(*image, model(found + 1), "seed {seed}, cut at {cut_at}");
            if finished {
                break;
            }
            cut_at += 3;
        }
    }
}

async fn work(disk: &SimulatedDisk, runtime: &SimulatedRuntime, committed: &mut u64) {
    for _ in 0..2 {
        let (mut quorum, mut image) = Quorum::open(disk.clone(), runtime.clone(), options(600)).await.unwrap();
        for _ in 0..15 {
            change(&mut quorum, &mut image, *committed).await.unwrap();
            *committed += 1;
            quorum.snapshot_if_due(&image).await;
        }
        quorum.close(&image).await.unwrap();
    }
}

#[test]
fn many_starts_leave_few_files() {
    // Rule: what a start reads does not grow with the number of starts before it, clean or not, nor what they leave on the disk.
    let runtime = SimulatedRuntime::new(8);
    let mut disk = disk(&runtime);
    for round in 0..60 {
        let files = runtime.block_on(async {
            let (mut quorum, mut image) = Quorum::open(disk.clone(), runtime.clone(), options(1 << 20)).await.unwrap();
            assert_eq!(*image, model(round), "round {round}");
            change(&mut quorum, &mut image, round).await.unwrap();
            if round % 3 == 0 {
                quorum.snapshot_if_due(&image).await;
            } else {
                quorum.close(&image).await.unwrap();
            }
            disk.list_dir(&Path::new(DIR).join(WAL_DIR)).await.unwrap().len()
        });
        assert!(files <= 2 * FILES_AT_START_MAX, "{files} files after start {round}");
        runtime.crash();
        disk = disk.kill(&runtime);
    }
}

#[test]
fn a_failed_flush_is_the_end_of_the_log_until_a_restart() {
    // Rule: after a failed flush nothing is acknowledged, also not by a later flush that succeeds; a restart goes on.
    let runtime = SimulatedRuntime::new(3);
    let disk = disk(&runtime);
    runtime.block_on(async {
        let (mut quorum, mut image) = Quorum::open(disk.clone(), runtime.clone(), options(1 << 20)).await.unwrap();
        change(&mut quorum, &mut image, 0).await.unwrap();
        disk.fail_nth(Operation::SyncData, WAL_DIR, 1, libc::EIO);
        assert!(change(&mut quorum, &mut image, 1).await.is_err());
        assert!(change(&mut quorum, &mut image, 1).await.is_err());
    });
    runtime.crash();
    let disk = disk.kill(&runtime);
    runtime.block_on(async {
        let (mut quorum, mut image) = Quorum::open(disk, runtime.clone(), options(1 << 20)).await.unwrap();
        let found = image.end_offset();
        assert!((1..=2).contains(&found), "{found}");
        change(&mut quorum, &mut image, found).await.unwrap();
    });
}

#[test]
fn a_snapshot_that_cannot_be_written_stops_nothing() {
    // Rule: snapshots are for speed; without them the log only grows.
    let runtime = SimulatedRuntime::new(4);
    let disk = disk(&runtime);
    runtime.block_on(async {
        let (mut quorum, mut image) = Quorum::open(disk.clone(), runtime.clone(), options(500)).await.unwrap();
        disk.fail_nth(Operation::Rename, "quorum", 1, libc::EIO);
        for serial in 0..60 {
            change(&mut quorum, &mut image, serial).await.unwrap();
            quorum.snapshot_if_due(&image).await;
        }
        assert!(quorum.snapshot_end_offset > 0, "tried again");
    });
    runtime.crash();
    let disk = disk.kill(&runtime);
    let (_, image) = runtime.block_on(Quorum::open(disk, runtime.clone(), options(500))).unwrap();
    assert_eq!(*image, model(60));
}

#[test]
fn damage_and_what_is_newer_stop_the_start() {
    // Rule: a snapshot with a flipped bit, of a newer format or cut short is refused by name, never half believed.
    let runtime = SimulatedRuntime::new(5);
    let disk = disk(&runtime);
    let path = runtime.block_on(async {
        let (mut quorum, mut image) = Quorum::open(disk.clone(), runtime.clone(), options(1)).await.unwrap();
        change(&mut quorum, &mut image, 0).await.unwrap();
        quorum.snapshot_if_due(&image).await;
        quorum.close(&image).await.unwrap();
        snapshot_path(Path::new(DIR), 1)
    });
    let content = disk.peek(&path).unwrap();
    let open = |content: Vec<u8>| {
        let (disk, runtime, path) = (disk.clone(), runtime.clone(), path.clone());
        runtime.clone().block_on(async move {
            replace_file(&disk, &path, &content).await.unwrap();
            Quorum::open(disk, runtime, options(1)).await.map(|_| ()).unwrap_err()
        })
    };
    let mut flipped = content.clone();
    flipped[SNAPSHOT_HEADER_BYTES + 3] ^= 1;
    let mut newer = content.clone();
    newer[9] += 1;
    let reason = |error| if let QuorumError::SnapshotDamaged { reason, .. } = error { Some(reason) } else { None };
    assert_eq!(reason(open(flipped)), Some(SnapshotDamage::Checksum));
    assert!(matches!(open(newer), QuorumError::SnapshotNewer { found: 2, .. }));
    assert_eq!(reason(open(content[..10].to_vec())), Some(SnapshotDamage::NoHeader));
    assert_eq!(reason(open(Vec::new())), Some(SnapshotDamage::NoHeader));
}

#[test]
fn a_log_without_its_snapshot_is_refused() {
    // Rule: a gap between what the snapshot says and what the log holds is an error, not an empty cluster.
    let runtime = SimulatedRuntime::new(6);
    let disk = disk(&runtime);
    runtime.block_on(async {
        let (mut quorum, mut image) = Quorum::open(disk.clone(), runtime.clone(), options(300)).await.unwrap();
        for serial in 0..20 {
            change(&mut quorum, &mut image, serial).await.unwrap();
            quorum.snapshot_if_due(&image).await;
        }
        let newest = snapshot_path(Path::new(DIR), quorum.snapshot_end_offset);
        change(&mut quorum, &mut image, 20).await.unwrap();
        quorum.wal.close().await.unwrap();
        disk.remove_file(&newest).await.unwrap();
        let outcome = Quorum::open(disk.clone(), runtime.clone(), options(300)).await;
        // What the ring has not reused yet may still be there from the beginning.
        match outcome {
            Err(QuorumError::Gap { expected: 0, found }) => assert!(found > 0),
            Err(error) => panic!("{error}"),
            Ok((_, found)) => assert_eq!(*found, model(21)),
        }
    });
}

#[test]
fn features_beyond_this_program_stop_the_start() {
    // Rule: metadata that promise more than this program can do are not served.
    let runtime = SimulatedRuntime::new(7);
    let disk = disk(&runtime);
    runtime.block_on(async {
        let (mut quorum, image) = Quorum::open(disk.clone(), runtime.clone(), options(1 << 20)).await.unwrap();
        let feature = MetadataRecord::FeatureLevel { name: "metadata.version".to_owned(), level: 9 };
        let appended = quorum.append(image.end_offset(), &[feature]).unwrap();
        quorum.committed(appended).await.unwrap();
        quorum.wal.close().await.unwrap();
        let outcome = Quorum::open(disk.clone(), runtime.clone(), options(1 << 20)).await;
        assert!(matches!(outcome, Err(QuorumError::Feature(_))));
        let known = BTreeMap::from([("metadata.version".to_owned(), 9)]);
        let options = QuorumOptions { features: known, ..options(1 << 20) };
        assert!(Quorum::open(disk.clone(), runtime.clone(), options).await.is_ok());
    });
}
