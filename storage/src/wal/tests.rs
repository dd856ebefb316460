use super::*;
use crate::disk::simulated::{Operation, SimulatedDisk};
use crate::runtime::simulated::SimulatedRuntime;

mod crash;
mod salvage;

type SimulatedWal = Wal<SimulatedDisk, SimulatedRuntime>;

const DIR: &str = "/wal";

fn options(salt_seed: u64) -> WalOptions {
    let block = BLOCK_BYTES as u64;
    WalOptions { dir: DIR.into(), first_file_bytes: 4 * block, file_bytes: 8 * block, spares_max: 1, salt_seed }
}

fn world(seed: u64) -> (SimulatedRuntime, SimulatedDisk) {
    let runtime = SimulatedRuntime::new(seed);
    let disk = SimulatedDisk::new(&runtime);
    (runtime, disk)
}

type Opened = Result<(SimulatedWal, Recovered, Vec<(u64, Bytes)>), WalError>;

async fn open(runtime: &SimulatedRuntime, disk: &SimulatedDisk) -> Opened {
    let mut records = Vec::new();
    let salt_seed = runtime.fork_prng().next_u64();
    let replay = |sequence, payload| records.push((sequence, payload));
    let (wal, recovered) = Wal::open(disk.clone(), runtime.clone(), options(salt_seed), replay).await?;
    Ok((wal, recovered, records))
}

/// The error of an open that must not succeed.
fn open_error(runtime: &SimulatedRuntime, disk: &SimulatedDisk) -> WalError {
    match runtime.block_on(open(runtime, disk)) {
        Ok((_, recovered, _)) => panic!("opened: {recovered:?}"),
        Err(error) => error,
    }
}

fn payload(number: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    crate::runtime::prng::Prng::new(number).fill(&mut bytes);
    bytes.into()
}

async fn append_all(wal: &SimulatedWal, numbers: std::ops::Range<u64>, len: usize) {
    for number in numbers {
        assert_eq!(wal.append_committed(payload(number, len)).await.unwrap(), number);
    }
}

/// Paths of log files with records, by generation.
fn log_paths(runtime: &SimulatedRuntime, disk: &SimulatedDisk) -> Vec<PathBuf> {
    let entries = runtime.block_on(disk.list_dir(Path::new(DIR))).unwrap();
    let log = |name: &str| matches!(ring::parse_name(name), ring::Name::Log(_));
    entries.iter().filter(|entry| log(&entry.name)).map(|entry| Path::new(DIR).join(&entry.name)).collect()
}

#[test]
fn records_come_back_in_order_over_files_and_restarts() {
    // Rule: what was committed is replayed with its sequence, over many files and several clean restarts.
    let (runtime, disk) = world(1);
    let mut next = 1;
    for _ in 0..4 {
        runtime.block_on(async {
            let (wal, recovered, records) = open(&runtime, &disk).await.unwrap();
            assert_eq!(recovered, Recovered { first_sequence: 1, next_sequence: next, torn_tail: None });
            let want: Vec<(u64, Bytes)> = (1..next).map(|number| (number, payload(number, 3000))).collect();
            assert_eq!(records, want);
            append_all(&wal, next..next + 30, 3000).await;
            next += 30;
            assert_eq!((wal.next_sequence(), wal.durable_through()), (next, next - 1));
            wal.close().await.unwrap();
            assert!(matches!(wal.append(Bytes::new()), Err(WalError::Closed)));
        });
        assert_eq!(runtime.task_count(), 0, "nothing runs after close");
    }
}

#[test]
fn what_waits_shares_one_flush() {
    // Rule: everything that arrives while a commit is in flight forms the next one.
    let (runtime, disk) = world(2);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        let before = disk.counts();
        for number in 1..=40 {
            wal.append(payload(number, 100)).unwrap();
        }
        wal.committed(40).await.unwrap();
        let after = disk.counts();
        assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 1));
    });
}

#[test]
fn any_length_goes_through() {
    // Rule: empty records, records around a block and records larger than a file are kept alike.
    let (runtime, disk) = world(3);
    let lens = [0, 1, 4055, 4056, 4057, 8152, 20_000, 100_000, 0, 7];
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        for (number, len) in (1..).zip(lens) {
            assert_eq!(wal.append_committed(payload(number, len)).await.unwrap(), number);
        }
        let too_large = wal.append(Bytes::from(vec![0; WAL_PAYLOAD_BYTES_MAX + 1]));
        assert!(matches!(too_large, Err(WalError::PayloadTooLarge { .. })));
        drop(wal);
    });
    runtime.run_until_idle().unwrap();
    let (_, _, records) = runtime.block_on(open(&runtime, &disk)).unwrap();
    let want: Vec<(u64, Bytes)> = (1..).zip(lens).map(|(number, len)| (number, payload(number, len))).collect();
    assert_eq!(records, want);
}

#[test]
fn truncation_frees_and_recycles_files() {
    // Rule: files behind the truncation point are used again, so the log does not grow, and the rest is replayed.
    let (runtime, disk) = world(4);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        let mut most_bytes = 0;
        for round in 0..40 {
            append_all(&wal, round * 5 + 1..round * 5 + 6, 3000).await;
            wal.truncate_before(wal.durable_through() - 1);
            runtime.sleep(std::time::Duration::from_millis(50)).await;
            most_bytes = most_bytes.max(disk.used_bytes());
        }
        assert!(most_bytes <= 5 * options(0).file_bytes, "{most_bytes}");
        wal.close().await.unwrap();
    });
    let (_, recovered, records) = runtime.block_on(open(&runtime, &disk)).unwrap();
    assert!(recovered.first_sequence <= 199, "{recovered:?}");
    assert_eq!(recovered.next_sequence, 201);
    for ((sequence, bytes), want) in records.iter().zip(recovered.first_sequence..) {
        assert_eq!((*sequence, bytes), (want, &payload(want, 3000)));
    }
}

#[test]
fn damage_to_acknowledged_records_is_reported_with_its_place() {
    // Rule: a bad record at or below what any record calls durable is corruption, never a torn tail.
    for (position, want_sequence) in [(10, 1), (50, 1), (4096 + 20, 2), (2 * 4096 + 100, 3)] {
        let (runtime, disk) = world(5);
        runtime.block_on(async {
            let (wal, _, _) = open(&runtime, &disk).await.unwrap();
            append_all(&wal, 1..9, 2000).await;
        });
        let path = log_paths(&runtime, &disk).remove(0);
        disk.flip_bit(&path, position, 3).unwrap();
        let error = open_error(&runtime, &disk);
        let WalError::Corrupt { path: found, position: at, sequence, .. } = error else { panic!("{error}") };
        assert_eq!((found, at), (path, position / 4096 * 4096));
        assert_eq!(sequence, want_sequence);
    }
}

#[test]
fn damage_to_the_last_commit_is_found_after_a_clean_close() {
    // Rule: the mark that a close writes makes the last commit known as acknowledged.
    for closed in [false, true] {
        let (runtime, disk) = world(6);
        runtime.block_on(async {
            let (wal, _, _) = open(&runtime, &disk).await.unwrap();
            append_all(&wal, 1..3, 2000).await;
            if closed {
                wal.close().await.unwrap();
            }
        });
        // Dropping the last handle would close it too.
        runtime.crash();
        let path = log_paths(&runtime, &disk).remove(0);
        disk.flip_bit(&path, 4096 + 1000, 0).unwrap();
        if closed {
            assert!(matches!(open_error(&runtime, &disk), WalError::Corrupt { sequence: 2, .. }));
        } else {
            let (_, recovered, _) = runtime.block_on(open(&runtime, &disk)).unwrap();
            let torn_tail = Some(TornTail { path, position: 4096 });
            assert_eq!(recovered, Recovered { first_sequence: 1, next_sequence: 2, torn_tail });
        }
    }
}

#[test]
fn stale_records_are_rejected() {
    // Rule: a record that verifies but belongs to an earlier use of the file, or is out of sequence, is not replayed.
    let (runtime, disk) = world(7);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        append_all(&wal, 1..3, 2000).await;
    });
    let path = log_paths(&runtime, &disk).remove(0);
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let ring::Name::Log(ours) = ring::parse_name(&name) else { panic!("{name}") };
    let older = record::FileIdentity { generation: ours.generation - 1, ..ours };
    let other_salt = record::FileIdentity { salt: ours.salt ^ (1 << 40), ..ours };
    for (identity, sequence) in [(older, 3), (other_salt, 3), (ours, 2), (ours, 4)] {
        let content = payload(99, 50);
        let header = Header { kind: Kind::Data, sequence, durable_through: 1, payload_len: content.len() };
        let mut bytes = vec![0; BLOCK_BYTES];
        record::encode(&mut bytes, identity, header, &content, &[]);
        disk.plant(&path, 2 * BLOCK_BYTES as u64, &bytes).unwrap();
        // Opening makes the next file; the next round must not find it.
        let (_, recovered, records) = runtime.block_on(open(&runtime, &disk.copy(&runtime))).unwrap();
        assert_eq!((recovered.next_sequence, records.len()), (3, 2), "{identity:?} {sequence}");
    }
}

#[test]
fn a_missing_file_is_corruption() {
    // Rule: a hole in the chain of sequences stops the start.
    let (runtime, disk) = world(8);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        append_all(&wal, 1..20, 3000).await;
    });
    let paths = log_paths(&runtime, &disk);
    assert!(paths.len() >= 3, "{paths:?}");
    runtime.block_on(disk.remove_file(&paths[1])).unwrap();
    assert!(matches!(open_error(&runtime, &disk), WalError::Corrupt { .. }));
}

#[test]
fn a_newer_format_is_refused() {
    // Rule: records of a format this version does not know stop the start with a sentence.
    let (runtime, disk) = world(9);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        append_all(&wal, 1..2, 10).await;
    });
    let path = log_paths(&runtime, &disk).remove(0);
    let ring::Name::Log(identity) = ring::parse_name(path.file_name().unwrap().to_str().unwrap()) else { panic!() };
    let bytes = disk.peek(&path).unwrap();
    disk.plant(&path, 0, &record::with_format(&bytes[..50], identity, record::FORMAT + 1)).unwrap();
    let error = open_error(&runtime, &disk);
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn a_failed_write_or_flush_poisons_for_ever() {
    // Rule: after an error nothing is acknowledged any more, and what was before is there after a restart.
    for (operation, errno) in
        [(Operation::Write, libc::EIO), (Operation::SyncData, libc::EIO), (Operation::SyncData, libc::ENOSPC)]
    {
        let (runtime, disk) = world(10);
        runtime.block_on(async {
            let (wal, _, _) = open(&runtime, &disk).await.unwrap();
            append_all(&wal, 1..4, 100).await;
            disk.fail_nth(operation, ".wal", 1, errno);
            let waiting = wal.committed(wal.append(payload(4, 100)).unwrap());
            assert!(matches!(waiting.await, Err(WalError::Failed(_))));
            assert!(matches!(wal.append(payload(5, 100)), Err(WalError::Failed(_))));
            assert!(matches!(wal.committed(4).await, Err(WalError::Failed(_))));
            wal.committed(3).await.unwrap();
            wal.close().await.unwrap_err();
        });
        let (_, recovered, records) = runtime.block_on(open(&runtime, &disk.crash(&runtime))).unwrap();
        assert!((4..=5).contains(&recovered.next_sequence), "{operation:?}");
        assert!(records.iter().all(|(sequence, bytes)| *bytes == payload(*sequence, 100)));
    }
}

#[test]
fn a_full_disk_stalls_and_recovers_by_itself() {
    // Rule: without room for the next file appends are refused; when there is room what waited is committed.
    let (runtime, disk) = world(11);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        disk.set_capacity(disk.used_bytes() + 4096);
        let mut last = 0;
        let refused = loop {
            match wal.append(payload(last + 1, 3000)) {
                Ok(sequence) => last = sequence,
                Err(error) => break error,
            }
            runtime.sleep(std::time::Duration::from_millis(20)).await;
        };
        assert!(matches!(refused, WalError::Stalled(_)), "{refused}");
        assert!(wal.durable_through() < last);
        disk.set_capacity(1 << 30);
        wal.committed(last).await.unwrap();
        wal.append_committed(payload(last + 1, 10)).await.unwrap();
        wal.close().await.unwrap();
    });
}

#[test]
fn a_commit_that_found_no_room_is_tried_again() {
    // Rule: where written blocks are refused for want of room, as on file systems that write them elsewhere, nothing is lost;
    // meanwhile appends are refused.
    let (runtime, disk) = world(13);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        append_all(&wal, 1..4, 100).await;
        disk.fail_nth(Operation::Write, ".wal", 1, libc::ENOSPC);
        let waiting = wal.committed(wal.append(payload(4, 100)).unwrap());
        runtime.sleep(std::time::Duration::from_millis(500)).await;
        assert!(wal.is_stalled());
        assert!(matches!(wal.append(payload(5, 100)), Err(WalError::Stalled(_))));
        waiting.await.unwrap();
        assert!(!wal.is_stalled());
        append_all(&wal, 5..7, 100).await;
        wal.close().await.unwrap();
    });
    let (_, recovered, records) = runtime.block_on(open(&runtime, &disk.crash(&runtime))).unwrap();
    assert_eq!(recovered.next_sequence, 7);
    assert!(records.iter().all(|(sequence, bytes)| *bytes == payload(*sequence, 100)));
}

#[test]
fn a_close_does_not_wait_for_room() {
    // Rule: closing a stalled log ends with an error, and what waits hears it.
    let (runtime, disk) = world(12);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        disk.set_capacity(disk.used_bytes());
        while wal.append(payload(1, 3000)).is_ok() {
            runtime.sleep(std::time::Duration::from_millis(20)).await;
        }
        let waiting = wal.committed(wal.next_sequence() - 1);
        wal.close().await.unwrap_err();
        waiting.await.unwrap_err();
    });
    assert_eq!(runtime.task_count(), 0);
}

#[test]
fn it_runs_on_a_real_disk() {
    // Rule: on glommio and a real file system many appenders share commits, and a reopened log has every record.
    use crate::disk::glommio::GlommioDisk;
    use crate::runtime::glommio::{GlommioRuntime, block_on};
    let parent = std::env::temp_dir().join(format!("walser-wal-{}", std::process::id()));
    let made = parent.clone();
    block_on(async move {
        let (disk, runtime) = (GlommioDisk::new(), GlommioRuntime::new());
        disk.create_dir_all(&made).await.unwrap();
        let options = WalOptions { dir: made.join("wal"), first_file_bytes: 1 << 20, ..options(7) };
        let options = WalOptions { file_bytes: 1 << 20, ..options };
        for life in 0..3u64 {
            let mut records = Vec::new();
            let (wal, recovered) = Wal::open(disk.clone(), runtime, options.clone(), |sequence, bytes| {
                records.push((sequence, bytes));
            })
            .await
            .unwrap();
            assert_eq!(recovered.next_sequence, life * 400 + 1);
            let want: Vec<(u64, Bytes)> = (1..=life * 400).map(|number| (number, payload(number, 5000))).collect();
            assert_eq!(records, want);
            let gate = Gate::new();
            for _ in 0..400 {
                let sequence = wal.append(payload(wal.next_sequence(), 5000)).unwrap();
                let (committed, guard) = (wal.committed(sequence), gate.enter().unwrap());
                runtime.spawn(async move {
                    committed.await.unwrap();
                    drop(guard);
                });
            }
            gate.close_and_wait().await;
            wal.close().await.unwrap();
        }
    })
    .unwrap();
    remove_tree(&parent);
}

#[expect(clippy::disallowed_methods, reason = "cleans up behind a test on a real disk")]
fn remove_tree(path: &Path) {
    std::fs::remove_dir_all(path).unwrap();
}
