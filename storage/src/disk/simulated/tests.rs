use super::*;
use crate::runtime::Instant;

const ROOT: &str = "/";

fn world(seed: u64) -> (SimulatedRuntime, SimulatedDisk) {
    let runtime = SimulatedRuntime::new(seed);
    let disk = SimulatedDisk::new(&runtime);
    (runtime, disk)
}

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_BYTES]
}

async fn durable_file(disk: &SimulatedDisk, path: &str, bytes: Vec<u8>) -> SimulatedFile {
    let file = disk.open(Path::new(path), OpenMode::CreateNew).await.unwrap();
    file.write_at(bytes, 0).await.unwrap();
    file.sync_data().await.unwrap();
    disk.sync_dir(Path::new(ROOT)).await.unwrap();
    file
}

#[test]
fn what_was_flushed_survives_and_the_rest_may_not() {
    // Rule: a flush keeps what completed before it; a later write survives, is lost or is torn, and all three come up.
    let (mut survived, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..100 {
        let (runtime, disk) = world(seed);
        runtime.block_on(async {
            let file = durable_file(&disk, "/a", block(1)).await;
            file.write_at(block(2), BLOCK_BYTES as u64).await.unwrap();
            file.sync_data().await.unwrap();
            file.write_at(block(3), 0).await.unwrap();
        });
        runtime.crash();
        let bytes = disk.crash(&runtime).peek(Path::new("/a")).unwrap();
        assert_eq!(bytes[BLOCK_BYTES..], block(2), "seed {seed}");
        let sectors: Vec<u8> = bytes[..BLOCK_BYTES].chunks(content::SECTOR_BYTES).map(|s| s[0]).collect();
        match sectors.iter().filter(|byte| **byte == 3).count() {
            0 => lost += 1,
            8 => survived += 1,
            _ => torn += 1,
        }
    }
    assert!(survived > 5 && lost > 5 && torn > 5, "{survived} {lost} {torn}");
}

#[test]
fn names_need_a_directory_flush() {
    // Rule: a name that was not flushed may be gone after a power cut, a rename is old or new but never both or neither.
    let (mut gone, mut old, mut new) = (0, 0, 0);
    for seed in 0..100 {
        let (runtime, disk) = world(seed);
        runtime.block_on(async {
            durable_file(&disk, "/a", block(1)).await;
            let file = disk.open(Path::new("/unflushed"), OpenMode::CreateNew).await.unwrap();
            file.write_at(block(2), 0).await.unwrap();
            file.sync_data().await.unwrap();
            disk.rename(Path::new("/a"), Path::new("/b")).await.unwrap();
        });
        let disk = disk.crash(&runtime);
        gone += u32::from(disk.peek(Path::new("/unflushed")).is_err());
        match (disk.peek(Path::new("/a")), disk.peek(Path::new("/b"))) {
            (Ok(bytes), Err(_)) if bytes == block(1) => old += 1,
            (Err(_), Ok(bytes)) if bytes == block(1) => new += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(gone > 20 && old > 20 && new > 20, "{gone} {old} {new}");
}

#[test]
fn a_killed_process_loses_nothing_that_completed() {
    // Rule: kill -9 is not a power cut: completed writes and names stay without a flush.
    for seed in 0..20 {
        let (runtime, disk) = world(seed);
        runtime.block_on(async {
            let file = disk.open(Path::new("/a"), OpenMode::CreateNew).await.unwrap();
            file.write_at(block(7), 0).await.unwrap();
        });
        let bytes = disk.kill(&runtime).peek(Path::new("/a")).unwrap();
        assert_eq!(bytes, block(7));
    }
}

#[test]
fn reads_stop_at_the_end_of_the_file() {
    // Rule: any position and length, also across an unaligned end.
    let (runtime, disk) = world(1);
    runtime.block_on(async {
        let file = durable_file(&disk, "/a", block(1)).await;
        file.truncate(1000).await.unwrap();
        for (position, len, want) in [(990, 100, 10), (600, 500, 400), (1000, 100, 0), (5000, 1, 0), (0, 4096, 1000)] {
            assert_eq!(file.read_at(position, len).await.unwrap().len(), want, "{position} {len}");
        }
        assert_eq!(file.len_bytes().await.unwrap(), 1000);
    });
}

#[test]
fn injected_failures_come_when_asked() {
    // Rule: the n-th operation fails, a failed flush loses its writes, and a full disk refuses growth but not rewriting.
    let (runtime, disk) = world(4);
    runtime.block_on(async {
        let file = durable_file(&disk, "/a", block(1)).await;
        disk.fail_nth(Operation::Write, "/a", 2, libc::EIO);
        file.write_at(block(2), 0).await.unwrap();
        assert_eq!(file.write_at(block(2), 0).await.unwrap_err().raw_os_error(), Some(libc::EIO));
        disk.fail_nth(Operation::SyncData, "", 1, libc::EIO);
        assert!(file.sync_data().await.is_err());
        file.sync_data().await.unwrap();
        disk.set_capacity(disk.used_bytes());
        let full = file.write_at(block(3), BLOCK_BYTES as u64).await.unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        file.write_at(block(3), 0).await.unwrap();
        disk.remove_file(Path::new("/a")).await.unwrap();
        assert_eq!(disk.used_bytes(), 0);
    });
}

#[test]
fn a_misdirected_write_is_somewhere_else() {
    // Rule: the write says that all is well, its place keeps what it had, and other blocks of the file may have it.
    let mut found_elsewhere = 0;
    for seed in 0..30 {
        let (runtime, disk) = world(seed);
        let bytes = runtime.block_on(async {
            let file = durable_file(&disk, "/a", [block(1), block(2), block(3)].concat()).await;
            disk.misdirect_nth("/a", 2);
            file.write_at(block(4), 0).await.unwrap();
            file.write_at(block(5), BLOCK_BYTES as u64).await.unwrap();
            file.write_at(block(6), 0).await.unwrap();
            disk.peek(Path::new("/a")).unwrap()
        });
        assert_eq!(bytes.len(), 3 * BLOCK_BYTES);
        found_elsewhere += u32::from(bytes[2 * BLOCK_BYTES] == 5);
        let went_there_by_chance = bytes[BLOCK_BYTES] == 5;
        assert!(went_there_by_chance || bytes[BLOCK_BYTES] == 2, "seed {seed}");
    }
    assert!(found_elsewhere > 3, "{found_elsewhere}");
}

#[test]
fn some_operations_take_very_long() {
    // Rule: by the rate that is set.
    let (runtime, disk) = world(1);
    disk.set_faults(FaultRates { stall: 1_000_000, ..FaultRates::default() });
    runtime.block_on(durable_file(&disk, "/a", block(1)));
    assert!(runtime.now().since_start() > Duration::from_millis(20));
}

#[test]
fn power_goes_at_the_chosen_operation() {
    // Rule: every changing operation is a crash point, and afterwards nothing answers.
    for number in 1..=4 {
        let (runtime, disk) = world(number);
        disk.cut_power_at(number);
        let handle = disk.clone();
        let run = runtime.block_on_unless(durable_file(&handle, "/a", block(1)), || disk.has_lost_power());
        assert!(run.is_err());
        assert_eq!(disk.change_count(), number);
    }
}

#[test]
#[should_panic(expected = "touch one block")]
fn overlapping_writes_are_caught() {
    // Rule: two writes in flight never touch one block.
    let (runtime, disk) = world(1);
    let file = runtime.block_on(durable_file(&disk, "/a", block(1)));
    for byte in [2, 3] {
        let file = file.clone();
        runtime.spawn(async move { file.write_at(block(byte), 0).await.unwrap() });
    }
    runtime.run_until(Instant::from_start(Duration::from_secs(1))).unwrap();
}
