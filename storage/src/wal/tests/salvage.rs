//! Damage of every kind, and what is still read.

use std::collections::BTreeMap;

use super::*;
use crate::runtime::prng::seeds;

/// A log of `numbers`, over several files and in groups, left as a kill leaves it.
fn write(runtime: &SimulatedRuntime, disk: &SimulatedDisk, count: u64) {
    let mut prng = runtime.fork_prng();
    runtime.block_on(async {
        let (wal, _, _) = open(runtime, disk).await.unwrap();
        let mut number = 1;
        while number <= count {
            for _ in 0..prng.between(1, 12).min(count - number + 1) {
                assert_eq!(wal.append(payload(number, len(number))).unwrap(), number);
                number += 1;
            }
            wal.committed(number - 1).await.unwrap();
        }
    });
    runtime.crash();
}

fn len(number: u64) -> usize {
    usize::try_from(number * 37 % 900).unwrap()
}

type Found = Result<(Salvaged, BTreeMap<u64, Bytes>), WalError>;

fn salvage_all(runtime: &SimulatedRuntime, disk: &SimulatedDisk) -> Found {
    let mut records = BTreeMap::new();
    let take = |sequence, payload| assert!(records.insert(sequence, payload).is_none(), "{sequence} came twice");
    let salvaged = runtime.block_on(salvage(disk, runtime, Path::new(DIR), take))?;
    Ok((salvaged, records))
}

#[test]
fn what_is_not_damaged_is_read_and_what_is_lost_is_known() {
    // Rule: every record that comes back is the one that was appended, and one that does not is among those said to be lost,
    // unless nothing good is left behind it: each bad spot may be in another one of the last commits.
    for seed in seeds(150) {
        let (runtime, disk) = world(seed);
        let mut prng = runtime.fork_prng();
        let count = prng.between(20, 300);
        write(&runtime, &disk, count);
        let (whole, records) = salvage_all(&runtime, &disk).unwrap();
        assert_eq!((whole.lost.len(), records.len() as u64, whole.recovered.next_sequence), (0, count, count + 1));
        let paths = log_paths(&runtime, &disk);
        let spots = prng.between(1, 3);
        for _ in 0..spots {
            let path = &paths[prng.index(paths.len())];
            let position = prng.below(disk.peek(path).map_or(1, |bytes| bytes.len() as u64));
            match prng.below(4) {
                0 => disk.plant(path, position / 4096 * 4096, &[0; 4096]).unwrap(),
                // In one block, and so in one commit.
                1 => disk.plant(path, position.min(position / 4096 * 4096 + 4056), &[0xA5; 40]).unwrap(),
                _ => disk.flip_bit(path, position, 3).unwrap(),
            }
        }
        let (salvaged, records) = salvage_all(&runtime, &disk).unwrap();
        let mut last_commit = None;
        for number in 1..=count {
            match records.get(&number) {
                Some(found) => assert_eq!(*found, payload(number, len(number)), "seed {seed} record {number}"),
                None if salvaged.lost.iter().any(|lost| lost.sequences.contains(&number)) => {}
                None => {
                    last_commit.get_or_insert(number);
                    assert!(
                        number + 12 * spots > count,
                        "seed {seed}: record {number} of {count} is gone: {salvaged:?}"
                    );
                }
            }
        }
        let next = salvaged.recovered.next_sequence;
        assert!(last_commit.is_none_or(|first| first == next), "seed {seed}: {last_commit:?} {next}");
        let is_open = !matches!(runtime.block_on(open(&runtime, &disk)), Err(WalError::Corrupt { .. }));
        assert_eq!(is_open, salvaged.lost.is_empty(), "seed {seed}: a start agrees: {salvaged:?}");
    }
}

#[test]
fn one_record_of_a_group_is_lost_alone() {
    // Rule: records behind a bad one in the same commit and in the same block are read, whatever of the bad one is damaged.
    for at in [0, 5, 20, 33, 38, 60] {
        let (runtime, disk) = world(7);
        runtime.block_on(async {
            let (wal, _, _) = open(&runtime, &disk).await.unwrap();
            for number in 1..=9 {
                wal.append(payload(number, 100)).unwrap();
            }
            wal.committed(9).await.unwrap();
            wal.append_committed(payload(10, 100)).await.unwrap();
        });
        runtime.crash();
        let path = &log_paths(&runtime, &disk)[0];
        disk.flip_bit(path, 3 * record::encoded_len(100) as u64 + at, 1).unwrap();
        let (salvaged, records) = salvage_all(&runtime, &disk).unwrap();
        let lost: Vec<_> = salvaged.lost.iter().map(|lost| (lost.position, lost.sequences.clone())).collect();
        assert_eq!(lost, [(3 * record::encoded_len(100) as u64, 4..5)], "byte {at}");
        assert_eq!(records.len(), 9, "byte {at}");
    }
}

#[test]
fn a_start_finds_what_was_acknowledged_behind_two_bad_records() {
    // Rule: the first record behind the damage may be damaged itself; the next one of its commit tells all the same that what
    // is gone had been acknowledged.
    let (runtime, disk) = world(9);
    runtime.block_on(async {
        let (wal, _, _) = open(&runtime, &disk).await.unwrap();
        append_all(&wal, 1..3, 100).await;
        for number in 3..=5 {
            wal.append(payload(number, 100)).unwrap();
        }
        wal.committed(5).await.unwrap();
    });
    runtime.crash();
    let path = &log_paths(&runtime, &disk)[0];
    // The second commit, and the first record of the third.
    for position in [BLOCK_BYTES, 2 * BLOCK_BYTES] {
        disk.flip_bit(path, position as u64 + 40, 1).unwrap();
    }
    let error = open_error(&runtime, &disk);
    assert!(matches!(error, WalError::Corrupt { sequence: 2, durable_through: 2, .. }), "{error}");
}

#[test]
fn a_block_that_cannot_be_read_is_lost_and_no_torn_tail() {
    // Rule: what the disk refuses to give may have been acknowledged; everything else is read.
    let (runtime, disk) = world(8);
    write(&runtime, &disk, 40);
    // The first read of a megabyte, and then one of its blocks.
    for _ in 0..2 {
        disk.fail_nth(Operation::Read, ".wal", 1, libc::EIO);
        disk.fail_nth(Operation::Read, ".wal", 2, libc::EIO);
    }
    let (salvaged, records) = salvage_all(&runtime, &disk).unwrap();
    assert!(!records.is_empty() && records.len() <= 40, "{salvaged:?}");
}
