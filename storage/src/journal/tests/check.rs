//! A data directory checked and repaired: as a clean stop leaves it, as a kill does, and with damage of every kind.

use std::path::PathBuf;

use super::*;
use crate::check::repair::{forget_ends, repair_partition};
use crate::check::{Report, Topics, check};
use crate::checkpoint::{OffsetCheckpoint, RECOVERY_POINT_FILE};
use crate::data_dir::log_ends;

fn check_all(world: &World) -> Report {
    let partitions = world.shape.partitions;
    let behind = |_| (0..partitions).map(|partition| (TOPIC_ID, partition)).collect();
    let topics = Topics { known: None, behind: &behind };
    world.runtime.block_on(check(&world.data_dir(), &world.runtime, &topics, &|_| {})).expect("no fault")
}

/// As a broker notes it.
fn note_recovery_points(world: &World, points: &[Option<i64>]) {
    let points = (0..).zip(points).filter_map(|(partition, point)| Some(((TOPIC.to_owned(), partition), (*point)?)));
    let checkpoint = OffsetCheckpoint { offsets: points.collect() };
    world.runtime.block_on(world.data_dir().write_checkpoint(RECOVERY_POINT_FILE, &checkpoint)).expect("no fault");
}

/// Six logs with some segments each, stopped cleanly.
fn stopped(seed: u64) -> (World, Vec<History>, Vec<Option<i64>>) {
    let shape = Shape { partitions: 3, segment_bytes: 12_000, ..Shape::default() };
    let world = World::new(seed, shape);
    let running = world.start_anew();
    let mut prng = world.runtime.fork_prng();
    let mut histories = vec![History::default(); 3];
    for _ in 0..prng.between(60, 120) {
        let partition = prng.index(3);
        let count = 1 + prng.index(3);
        let value_bytes = prng.index(900);
        append(&running.logs[partition], &mut histories[partition], batch(&mut prng, count, value_bytes, NOW))
            .expect("no fault");
        let log = &running.logs[partition];
        world.runtime.block_on(log.durable(log.log_end_offset())).expect("no fault");
    }
    let (ends, notes) = world.runtime.block_on(running.stop_with_notes());
    note_recovery_points(&world, &ends);
    let notes = (0..).zip(&notes).filter_map(|(partition, note)| Some((TOPIC_ID, partition, note.as_deref()?)));
    let notes = log_ends::encode(notes.collect::<Vec<_>>().into_iter());
    world.runtime.block_on(world.data_dir().write_log_ends(&notes)).expect("no fault");
    // What is damaged below would be mended by it.
    world.runtime.block_on(discard(&world.data_dir())).expect("no fault");
    (world, histories, ends)
}

/// Files of one partition with these endings.
fn files(world: &World, partition: i32, endings: &[&str]) -> Vec<PathBuf> {
    let dir = world.data_dir().partition_path(TOPIC, partition);
    let entries = world.runtime.block_on(world.disk.list_dir(&dir)).expect("no fault");
    let wanted = entries.iter().filter(|entry| endings.iter().any(|ending| entry.name.ends_with(ending)));
    wanted.map(|entry| dir.join(&entry.name)).collect()
}

fn damage(report: &Report) -> Vec<String> {
    let damaged = report.findings.iter().filter(|finding| finding.is_damage());
    damaged.map(|finding| format!("{}: {}", finding.path.display(), finding.reason)).collect()
}

#[test]
fn a_flipped_bit_is_named_and_mended() {
    // Rule: one batch of a closed segment is bad: it is named by path, position and offsets, nothing else is; the repair
    // loses exactly that batch, keeps its bytes beside, and the log goes on where it ended.
    let (mut world, histories, ends) = stopped(1);
    world.runtime.block_on(world.data_dir().write_clean_mark(-1)).expect("no fault");
    let report = check_all(&world);
    assert_eq!((report.findings, report.partitions), (vec![], 3));
    let path = world.segment(0, 0);
    let (first, last, bytes) = &histories[0].batches[2];
    let position: u64 = histories[0].batches[..2].iter().map(|(_, _, bytes)| bytes.len() as u64).sum();
    world.disk.flip_bit(&path, position + bytes.len() as u64 / 2 + 30, 4).expect("it is there");
    let report = check_all(&world);
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((&finding.path, finding.position, finding.offset), (&path, Some(position), Some(*first)));
    assert!(finding.reason.contains(&format!("offsets {first} to {last}")), "{finding:?}");
    assert!(finding.consequence.contains("CORRUPT_MESSAGE"), "{finding:?}");
    let [damaged] = &report.damaged[..] else { panic!("{:?}", report.damaged) };
    let damaged = damaged.clone();
    world.runtime.block_on(world.data_dir().take_clean_mark()).expect("no fault");
    world.runtime.block_on(forget_ends(&world.data_dir())).expect("no fault");
    let repaired =
        world.runtime.block_on(repair_partition(&world.data_dir(), &world.runtime, damaged.clone())).expect("mended");
    let [loss] = &repaired.losses[..] else { panic!("{repaired:?}") };
    assert_eq!((loss.first_offset, loss.last_offset), (*first, Some(*last)));
    let aside = world.disk.peek(loss.aside.as_ref().expect("kept")).expect("it is there");
    assert_eq!(aside.len(), bytes.len());
    assert_eq!(damage(&check_all(&world)), Vec::<String>::new());
    world.end(false);
    let running = world.runtime.block_on(world.start(false, &ends));
    let found = world.runtime.block_on(read_all(&running.logs[0], 0));
    let want: Vec<_> = histories[0].batches.iter().filter(|(base, _, _)| base != first).collect();
    let full: Vec<_> = found.iter().filter(|(base, _, _)| base != first).collect();
    assert_eq!(full, want, "everything else is there");
    let filler = found.iter().find(|(base, _, _)| base == first).expect("an empty batch");
    assert_eq!((filler.1, filler.2.len()), (*last, 61));
    assert_eq!(Some(running.logs[0].log_end_offset()), ends[0]);
    assert!(running.reports.iter().all(|report| report.corruption.is_none()));
}

#[test]
fn damage_of_any_file_is_found_and_mended() {
    // Rule: whatever file of a partition is changed wherever, it is found or means nothing; after the repair nothing is
    // found, the log serves and has every batch that was not hit, with its offsets.
    let mut found_count = 0;
    for seed in seeds(80) {
        let (mut world, histories, ends) = stopped(seed);
        let mut prng = world.runtime.fork_prng();
        let mut hit = Vec::new();
        for _ in 0..prng.between(1, 4) {
            let files =
                files(&world, 0, &[".log", ".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"]);
            let path = files[prng.index(files.len())].clone();
            let len = world.disk.peek(&path).expect("it is there").len() as u64;
            if len == 0 {
                continue;
            }
            let position = prng.below(len);
            let is_log = path.extension().is_some_and(|ending| ending == "log");
            match prng.below(4) {
                0 if is_log => {
                    let len = (len - position).min(2000);
                    world
                        .disk
                        .plant(&path, position, &vec![0; usize::try_from(len).expect("small")])
                        .expect("it is there");
                    hit.push((path, position..position + len));
                }
                _ => {
                    world.disk.flip_bit(&path, position, 6).expect("it is there");
                    hit.push((path, position..position + 1));
                }
            }
        }
        let report = check_all(&world);
        found_count += report.damage_count();
        let is_hit = |base: i64| {
            let base_of = |path: &PathBuf| path.file_stem().and_then(|stem| stem.to_str()?.parse::<i64>().ok());
            let mut positions = std::collections::BTreeMap::<i64, u64>::new();
            let segments: Vec<i64> = self::files(&world, 0, &[".log"]).iter().filter_map(base_of).collect();
            for (first, _, bytes) in &histories[0].batches {
                let segment = *segments.iter().rev().find(|segment| *segment <= first).expect("it is in one");
                let start = *positions.entry(segment).or_default();
                let end = start + bytes.len() as u64;
                positions.insert(segment, end);
                if *first == base {
                    return hit.iter().any(|(path, range)| {
                        let is_segment = base_of(path) == Some(segment) && path.extension().is_some_and(|e| e == "log");
                        is_segment && range.start < end && range.end > start
                    });
                }
            }
            false
        };
        let survivors: Vec<_> = histories[0].batches.iter().filter(|(base, _, _)| !is_hit(*base)).cloned().collect();
        let lost_count = histories[0].batches.len() - survivors.len();
        assert!(lost_count == 0 || report.damage_count() > 0, "seed {seed}: {hit:?}");
        world.runtime.block_on(forget_ends(&world.data_dir())).expect("no fault");
        for damaged in &report.damaged {
            let outcome = world.runtime.block_on(repair_partition(&world.data_dir(), &world.runtime, damaged.clone()));
            outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}; {:?}", report.findings));
        }
        assert_eq!(damage(&check_all(&world)), Vec::<String>::new(), "seed {seed}");
        world.end(false);
        let running = world.runtime.block_on(world.start(false, &ends));
        assert!(running.reports[0].corruption.is_none(), "seed {seed}: {:?}", running.reports[0]);
        let found = world.runtime.block_on(read_all(&running.logs[0], 0));
        let found: Vec<_> = found.into_iter().filter(|(_, _, bytes)| bytes.len() > 61).collect();
        let kept: Vec<_> = found.iter().filter(|batch| survivors.contains(batch)).cloned().collect();
        assert_eq!(kept, survivors, "seed {seed}: {hit:?}");
        assert!(found.iter().all(|batch| histories[0].batches.contains(batch)), "seed {seed}: {hit:?}");
        assert_eq!(Some(running.logs[0].log_end_offset()), ends[0], "seed {seed}: {hit:?}");
    }
    assert!(found_count > 80, "{found_count}");
}

#[test]
fn what_a_kill_leaves_is_no_damage_and_a_damaged_journal_is_mended() {
    // Rule: with records in the journal alone nothing is damaged. With a damaged journal the repair brings all logs back,
    // at or behind the offsets that were acknowledged, and says which are lost.
    let mut losses = 0;
    for seed in seeds(80) {
        let shape = Shape { partitions: 4, segment_bytes: 24_000, batch_bytes_max: 3000, ..Shape::default() };
        let mut world = World::new(seed, shape);
        let running = world.start_anew();
        let mut histories = vec![History::default(); 4];
        let mut prng = world.runtime.fork_prng();
        for _ in 0..prng.between(5, 100) {
            let partition = prng.index(4);
            let len = if prng.chance(1, 8) { prng.between(3000, 9000) } else { prng.between(100, 2500) };
            let batch = batch(&mut prng, 1, usize::try_from(len).expect("small"), NOW);
            append(&running.logs[partition], &mut histories[partition], batch).expect("no fault");
            let log = &running.logs[partition];
            world.runtime.block_on(log.durable(log.log_end_offset())).expect("no fault");
            if prng.chance(1, 12) {
                world.sleep(Duration::from_millis(prng.below(2500)));
            }
        }
        let points: Vec<_> = running.logs.iter().map(|log| Some(log.recovery_point())).collect();
        note_recovery_points(&world, &points);
        for (log, history) in running.logs.iter().zip(&mut histories) {
            history.acknowledged = log.durable_end_offset();
        }
        // The last commit is nobody's loss.
        let last = batch_of(&mut prng, 200);
        let end_offset = append(&running.logs[0], &mut histories[0], last).expect("no fault");
        world.runtime.block_on(running.logs[0].durable(end_offset)).expect("no fault");
        world.end(prng.chance(1, 2));
        let before = check_all(&world);
        assert_eq!(damage(&before), Vec::<String>::new(), "seed {seed}");
        let dir = folder(Path::new(DATA), 0);
        let entries = world.runtime.block_on(world.disk.list_dir(&dir)).expect("no fault");
        let journals: Vec<_> = entries.iter().filter(|entry| !entry.name.starts_with("spare")).collect();
        for _ in 0..prng.between(1, 2) {
            let path = dir.join(&journals[prng.index(journals.len())].name);
            let len = world.disk.peek(&path).map_or(1, |bytes| bytes.len() as u64).min(20_000);
            world.disk.flip_bit(&path, prng.below(len), 5).expect("it is there");
        }
        let is_found = check_all(&world).damage_count() > 0;
        // What a start does, then the repair of what it leaves.
        let running = world.runtime.block_on(world.start(false, &points));
        assert_eq!(is_found, !running.replayed.damaged.is_empty(), "seed {seed}");
        world.end(true);
        let report = check_all(&world);
        world.runtime.block_on(forget_ends(&world.data_dir())).expect("no fault");
        for damaged in &report.damaged {
            let outcome = world.runtime.block_on(repair_partition(&world.data_dir(), &world.runtime, damaged.clone()));
            losses += outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}")).losses.len();
        }
        assert_eq!(damage(&check_all(&world)), Vec::<String>::new(), "seed {seed}");
        world.end(false);
        let running = world.runtime.block_on(world.start(false, &points));
        for (partition, (log, history)) in running.logs.iter().zip(&mut histories).enumerate() {
            let context = format!("seed {seed} partition {partition}");
            assert!(running.reports[partition].corruption.is_none(), "{context}");
            let found = world.runtime.block_on(read_all(log, 0));
            for (base, last, bytes) in found.iter().filter(|(_, _, bytes)| bytes.len() > 61) {
                let appended = history.batches.iter().find(|(first, _, _)| first == base);
                assert_eq!(appended, Some(&(*base, *last, bytes.clone())), "{context}");
            }
            let batch = batch_of(&mut prng, 300);
            append(log, &mut History::default(), batch).unwrap_or_else(|error| panic!("{context}: {error}"));
        }
    }
    println!("{losses} losses");
    assert!(losses > 10, "{losses}");
}

#[test]
fn a_clean_stop_without_its_recovery_points_is_judged_as_a_start_does() {
    // Rule: after a clean stop whose recovery points are gone a start reads what no note speaks of, and a check says what it
    // makes of damage there: appends are kept out, and nothing is cut off.
    for (seed, has_notes) in [(5, true), (5, false), (6, true), (6, false)] {
        let (world, histories, ends) = stopped(seed);
        let (data_dir, context) = (world.data_dir(), format!("seed {seed}, notes {has_notes}"));
        let notes = world.runtime.block_on(async {
            data_dir.write_clean_mark(-1).await.expect("no fault");
            data_dir.remove_checkpoint(RECOVERY_POINT_FILE).await.expect("no fault");
            if !has_notes {
                forget_ends(&data_dir).await.expect("no fault");
            }
            data_dir.read_log_ends().await.expect("no fault")
        });
        assert_eq!(damage(&check_all(&world)), Vec::<String>::new(), "{context}");
        let last = files(&world, 0, &[".log"]).pop().expect("a segment");
        let len_bytes = world.disk.peek(&last).expect("it is there").len() as u64;
        world.disk.flip_bit(&last, len_bytes - 3, 2).expect("it is there");
        let findings = check_all(&world).findings;
        let [finding] = &findings.iter().filter(|finding| finding.is_damage()).collect::<Vec<_>>()[..] else {
            panic!("{context}: {findings:?}")
        };
        let last_base = histories[0].batches.last().map(|(base, _, _)| *base);
        assert_eq!(finding.offset, last_base, "{context}");
        let notes: Vec<Note> = (0..3).map(|at| Some(notes.get(&(TOPIC_ID, at))?.to_vec())).collect();
        let running = world.runtime.block_on(world.start_with_notes(true, &[], &notes));
        let report = &running.reports[0];
        let corrupt_at = report.corruption.as_ref().map(|bad| bad.offset);
        let mut want = ends;
        if has_notes {
            assert!(finding.consequence.contains("CORRUPT_MESSAGE"), "{context}: {finding:?}");
            assert_eq!((corrupt_at, report.scanned_bytes), (None, 0), "{context}: what is noted is believed");
        } else {
            assert!(finding.consequence.contains("takes no appends"), "{context}: {finding:?}");
            assert_eq!((corrupt_at, report.cut.is_none()), (last_base, true), "{context}: {report:?}");
            want[0] = last_base;
        }
        let found: Vec<_> = running.logs.iter().map(|log| Some(log.log_end_offset())).collect();
        assert_eq!(found, want, "{context}");
    }
}
