//! The power is cut at every operation of a replay and of the removal behind it.

use super::*;

/// Two journals: of logs without anything on disk, and of one that is partly there. What all segments are to be.
fn scene(seed: u64) -> (World, BTreeMap<(u8, i64), Vec<u8>>) {
    let world = World::new(seed);
    let mut prng = world.runtime.fork_prng();
    let mut want = BTreeMap::new();
    world.make_partition(2);
    world.disk.plant(&segment_path(2, 0), 0, b"complete").unwrap();
    want.insert((2, 0), b"complete".to_vec());
    let begun = random(&mut prng, 5000);
    world.disk.plant(&segment_path(2, 30), 0, &begun).unwrap();
    want.insert((2, 30), begun.to_vec());
    let void = Record { topic: 2, base_offset: 0, position: 3, bytes: Bytes::from_static(b"void") };
    for (journal, topics, records) in [(0, 1..3, vec![void]), (1, 3..4, Vec::new())] {
        let mut records: Vec<Record> = records;
        for topic in topics {
            for base_offset in [30, 60, 90] {
                let content: &mut Vec<u8> = want.entry((topic, base_offset)).or_default();
                for _ in 0..3 {
                    let len = 1 + prng.index(5000);
                    let (position, bytes) = (content.len() as u64, random(&mut prng, len));
                    overlay(content, position, &bytes);
                    records.push(Record { topic, base_offset, position, bytes });
                }
            }
        }
        world.journal_of(journal, &records);
    }
    (world, want)
}

async fn replay_and_discard(world: &World) {
    replay(&world.data_dir(), &world.runtime, locate, |_| Vec::new()).await.unwrap();
    discard(&world.data_dir()).await.unwrap();
}

#[test]
fn a_replay_that_is_cut_at_any_operation_is_made_good_by_the_next() {
    // Rule: wherever the power goes, also twice, the start that gets through leaves every byte in its place, durably.
    for seed in seeds(4) {
        for cut_at in 1.. {
            let context = format!("seed {seed} cut at {cut_at}");
            let (mut world, want) = scene(seed);
            world.disk.cut_power_at(cut_at);
            let ended = world.runtime.block_on_unless(replay_and_discard(&world), || world.disk.has_lost_power());
            let is_whole = ended.is_ok() && !world.disk.has_lost_power();
            if cut_at.is_multiple_of(4) {
                // A kill: what was not flushed is there at the next start, and gone with the power after it.
                world.runtime.crash();
                world.disk = world.disk.kill(&world.runtime);
            } else {
                world.crash();
            }
            if !is_whole && cut_at.is_multiple_of(3) {
                world.disk.cut_power_at(world.runtime.fork_prng().between(1, 60));
                let ended = world.runtime.block_on_unless(replay_and_discard(&world), || world.disk.has_lost_power());
                assert!(ended.is_ok() || world.disk.has_lost_power(), "{context}: {ended:?}");
                world.crash();
            }
            world.replay().unwrap_or_else(|error| panic!("{context}: {error}"));
            world.discard();
            world.crash();
            for (&(topic, base_offset), content) in &want {
                world.assert_segment(topic, base_offset, content, &context);
            }
            assert_eq!(world.replay().unwrap(), Replayed::default(), "{context}: journals come back");
            if is_whole {
                assert!(cut_at > 50, "a replay does something");
                break;
            }
        }
    }
}
