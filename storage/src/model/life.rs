//! From a start to an end: what a broker does with its data directory, and what of it must hold.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use walser_protocol::types::Uuid;

use super::world::{DATA, SimulatedLog, Slot, World};
use crate::cache::tail::TailBudget;
use crate::checkpoint::{CLEANER_OFFSET_FILE, LOG_START_OFFSET_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE};
use crate::data_dir::log_ends::{self, LogEnds, is_noted};
use crate::data_dir::partition::{DirKind, FoundDir};
use crate::data_dir::plan::{Decision, KnownTopic, plan_directories};
use crate::data_dir::{DataDir, Removal};
use crate::disk::Disk;
use crate::disk::simulated::{SimulatedDisk, SimulatedFile};
use crate::error::{DiskError, OpenError};
use crate::journal::replay::{JournalOwner, ReplayError, Replayed, discard, put_aside, replay_unsettled};
use crate::journal::{Journal, JournalError, JournalHandle, JournalOptions, folder};
use crate::log::known_end::{KnownEnd, forget_journal};
use crate::log::{Log, OpenLog, RecoveryReport};
use crate::open_files::OpenFiles;
use crate::runtime::Runtime;
use crate::runtime::simulated::SimulatedRuntime;

/// Why there is no life. Only a disk that was told to fail, or that is full, is a reason.
#[derive(Debug, thiserror::Error)]
pub(super) enum BootFailure {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A broker that runs.
pub(super) struct Life {
    pub world: Rc<World>,
    pub journals: Vec<Journal<SimulatedDisk, SimulatedRuntime>>,
    pub budget: Rc<TailBudget>,
    pub open_files: Rc<OpenFiles<SimulatedFile>>,
    /// What is noted of the ends of logs, on disk or not.
    pub ends: RefCell<LogEnds>,
}

/// What the checkpoints say, as far as it is of topics there are.
#[derive(Default)]
struct Noted {
    recovery_points: OffsetCheckpoint,
    log_starts: OffsetCheckpoint,
    first_dirty: OffsetCheckpoint,
}

/// A log that was opened, before anybody uses it.
type Opened = (SimulatedLog, RecoveryReport);

/// The start of a broker, in its order.
pub(super) async fn boot(world: &Rc<World>) -> Result<Life, BootFailure> {
    let data_dir = world.data_dir();
    let mut found = data_dir.list_partitions().await?;
    settle(world, &data_dir, &found).await?;
    let is_clean = data_dir.take_clean_mark().await?;
    let ends = data_dir.read_log_ends().await?;
    if !is_clean {
        let replayed = replay_journals(world, &data_dir, &ends).await?;
        let is_new = |dir: &FoundDir| found.binary_search_by(|known| known.dir_name.cmp(&dir.dir_name)).is_err();
        let made: Vec<FoundDir> = replayed.made.into_iter().filter(is_new).collect();
        found.extend(made);
    }
    discard(&data_dir).await?;
    let noted = read_noted(world, &data_dir, &found).await?;
    let ends = keep_ends(world, &data_dir, ends).await?;
    let mut life = Life {
        world: Rc::clone(world),
        journals: Vec::new(),
        budget: TailBudget::new(world.shape.tail_bytes),
        // Fewer than there are segments.
        open_files: OpenFiles::new(3),
        ends: RefCell::new(ends),
    };
    let shard_count = world.between(1, 3) as u16;
    for number in 0..shard_count {
        life.journals.push(life.open_journal(number, shard_count).await?);
    }
    life.open_all(is_clean, &noted).await;
    Ok(life)
}

async fn replay_journals(
    world: &World,
    data_dir: &DataDir<SimulatedDisk>,
    ends: &LogEnds,
) -> Result<Replayed, BootFailure> {
    let slots = world.slots.borrow().clone();
    let name_of = |id: Uuid, _| slots.iter().find(|slot| slot.topic_id == id).map(|slot| slot.name.clone());
    let behind = |owner: JournalOwner| {
        let is_behind = |at: usize| owner.shard_count.is_none_or(|count| at % usize::from(count) == owner.journal);
        let behind = slots.iter().enumerate().filter(|(at, _)| is_behind(*at));
        behind.map(|(_, slot)| (slot.topic_id, 0)).collect()
    };
    let is_settled = |id, partition, sequence| is_noted(ends, id, partition, sequence);
    let replayed = replay_unsettled(data_dir, &world.runtime, name_of, is_settled, behind).await?;
    world.note(|| format!("{replayed:?}"));
    for damaged in &replayed.damaged {
        let is_excused = slots.iter().any(|slot| slot.is_marked.get());
        assert!(is_excused, "nothing has damaged a journal: {replayed:?}");
        put_aside(data_dir, &damaged.folder).await?;
    }
    Ok(replayed)
}

/// Notes of topics there are, on disk with nothing in them about the journals of the last run.
async fn keep_ends(world: &World, data_dir: &DataDir<SimulatedDisk>, found: LogEnds) -> Result<LogEnds, BootFailure> {
    let slots = world.slots.borrow().clone();
    let is_known = |id: Uuid| slots.iter().any(|slot| slot.topic_id == id);
    let has_any = !found.is_empty();
    let mut kept = LogEnds::new();
    for ((id, partition), note) in found.into_iter().filter(|((id, _), _)| is_known(*id)) {
        let mut note = note.to_vec();
        forget_journal(&mut note);
        kept.insert((id, partition), note.into());
    }
    if has_any {
        data_dir.write_log_ends(&encode_ends(&kept)).await?;
    }
    Ok(kept)
}

fn encode_ends(ends: &LogEnds) -> Vec<u8> {
    log_ends::encode(ends.iter().map(|((id, partition), note)| (*id, *partition, &note[..])))
}

/// What is in the data directory is held against the metadata.
async fn settle(world: &World, data_dir: &DataDir<SimulatedDisk>, found: &[FoundDir]) -> Result<(), BootFailure> {
    let mut known = BTreeMap::new();
    for slot in world.slots.borrow().iter() {
        let topic = KnownTopic { name: slot.name.clone(), partitions: BTreeSet::from([0]) };
        known.insert(slot.topic_id, topic);
    }
    let is_new = |dir: &&FoundDir| {
        let current = known.iter().find(|(_, topic)| topic.name == dir.name.topic).map(|(id, _)| *id);
        dir.name.kind == DirKind::Partition && !dir.is_noted_as(current)
    };
    let new: Vec<&str> = found.iter().filter(is_new).map(|dir| dir.name.topic.as_str()).collect();
    if !new.is_empty() {
        if world.is_full.get() {
            // Where there is no room for new checkpoints the old ones go.
            world.slots.borrow().iter().for_each(|slot| {
                slot.noted_recovery_point.set(0);
                slot.noted_start.set(0);
            });
        }
        data_dir.forget_offsets(|topic, _| new.contains(&topic)).await?;
    }
    let unique = || u128::from(world.below(u64::MAX));
    for (dir, decision) in found.iter().zip(plan_directories(found, &known, unique)) {
        let name = dir.dir_name.as_str();
        match decision {
            Decision::Open { .. } | Decision::Leave => {}
            Decision::TakeOver { topic_id } => data_dir.write_topic_id(name, topic_id).await?,
            Decision::PutAside { new_name, .. } => data_dir.rename_partition_dir(name, &new_name).await?,
            Decision::Delete { new_name } => {
                if let Some(new_name) = &new_name {
                    data_dir.rename_partition_dir(name, new_name).await?;
                }
                data_dir.remove_partition_dir(new_name.as_deref().unwrap_or(name), Removal::AtOnce).await?;
            }
        }
    }
    Ok(())
}

/// The checkpoints name topics and not their ids: what they say of a directory of another topic counts for nothing.
async fn read_noted(
    world: &World,
    data_dir: &DataDir<SimulatedDisk>,
    found: &[FoundDir],
) -> Result<Noted, BootFailure> {
    let mut noted = Noted {
        recovery_points: data_dir.read_checkpoint(RECOVERY_POINT_FILE).await?,
        log_starts: data_dir.read_checkpoint(LOG_START_OFFSET_FILE).await?,
        first_dirty: data_dir.read_checkpoint(CLEANER_OFFSET_FILE).await?,
    };
    let slots = world.slots.borrow().clone();
    let mut kept = BTreeSet::new();
    for dir in found.iter().filter(|dir| dir.name.kind == DirKind::Partition) {
        let slot = slots.iter().find(|slot| slot.name == dir.name.topic);
        if slot.is_some_and(|slot| dir.topic_id.is_none_or(|id| id == slot.topic_id)) {
            kept.insert((dir.name.topic.clone(), dir.name.partition));
        }
    }
    let names = [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE];
    let files = [&mut noted.recovery_points, &mut noted.log_starts, &mut noted.first_dirty];
    for (name, file) in names.into_iter().zip(files) {
        let before = file.offsets.len();
        file.offsets.retain(|key, _| kept.contains(key));
        if file.offsets.len() < before {
            // The next start would find the new topic's directory and take them for its own.
            data_dir.write_checkpoint(name, file).await?;
        }
    }
    Ok(noted)
}

impl Life {
    async fn open_journal(
        &self,
        number: u16,
        shard_count: u16,
    ) -> Result<Journal<SimulatedDisk, SimulatedRuntime>, BootFailure> {
        let world = &self.world;
        let options = JournalOptions {
            dir: folder(std::path::Path::new(DATA), usize::from(number)),
            shard_count,
            live_bytes_max: world.shape.live_bytes_max,
            staged_bytes_max: world.shape.staged_bytes_max,
            batch_bytes_max: world.shape.batch_bytes_max,
            salt_seed: world.below(u64::MAX),
        };
        Ok(Journal::open(world.disk(), world.runtime.clone(), options).await?)
    }

    /// Number of the journal of the log at `at`.
    pub fn journal_of(&self, at: usize) -> usize {
        at % self.journals.len()
    }

    /// Opens the logs, at times with one flush for all of them, and holds what is in them against what was promised.
    async fn open_all(&self, is_clean: bool, noted: &Noted) {
        let world = &self.world;
        let slots = world.slots.borrow().clone();
        let defers_sync = world.disk().syncs_all() && world.chance(1, 2);
        let mut opened = Vec::new();
        for (at, slot) in slots.iter().enumerate() {
            let found = self.open(at, slot, (is_clean, defers_sync), noted).await;
            opened.extend(found.map(|found| (slot, found)));
        }
        let needs_sync = opened.iter().any(|(_, (_, report))| report.needs_sync);
        if needs_sync && let Err(error) = world.disk().sync_all(std::path::Path::new(DATA)).await {
            assert!(world.has_failed(), "{error}");
            opened.retain(|(_, (_, report))| !report.needs_sync);
        }
        for (slot, found) in opened {
            self.begin_use(slot, found, is_clean).await;
        }
    }

    async fn begin_use(&self, slot: &Slot, (log, report): Opened, is_clean: bool) {
        self.check_opened(slot, &log, &report, is_clean).await;
        log.begin_epoch(slot.leader_epoch.get());
        *slot.log.borrow_mut() = Some(log);
    }

    /// A log that cannot be opened for a good reason stays closed in this life.
    async fn open(
        &self,
        at: usize,
        slot: &Rc<Slot>,
        (is_clean, defers_sync): (bool, bool),
        noted: &Noted,
    ) -> Option<Opened> {
        let world = &self.world;
        let context = world.context(slot);
        // What is listed was held against the metadata.
        let entries = if world.chance(1, 2) { world.disk().list_dir(&slot.dir()).await.ok() } else { None };
        let dir = match &entries {
            Some(_) => Ok(slot.dir()),
            None => world.data_dir().create_partition(&slot.name, 0, slot.topic_id).await,
        };
        let dir = match dir {
            Ok(dir) => dir,
            Err(error) => {
                assert!(slot.may_fail.get() || world.may_refuse(), "{context}: {error}");
                return None;
            }
        };
        let note = self.ends.borrow().get(&(slot.topic_id, 0)).cloned();
        let journal = self.journals[self.journal_of(at)].clone();
        let key = slot.key();
        let open = OpenLog {
            disk: world.disk(),
            open_files: Rc::clone(&self.open_files),
            runtime: world.runtime.clone(),
            budget: Rc::clone(&self.budget),
            journal: Some(JournalHandle { journal, topic_id: slot.topic_id, partition: 0 }),
            dir,
            entries,
            known_end: note.map(|note| Rc::new(KnownEnd::decode(&note).expect("a note"))),
            config: slot.config.borrow().clone().into(),
            is_clean,
            defers_sync,
            recovery_point: noted.recovery_points.offsets.get(&key).copied(),
            log_start_offset: noted.log_starts.offsets.get(&key).copied(),
            first_dirty_offset: noted.first_dirty.offsets.get(&key).copied(),
            now_ms: world.now_ms(),
        };
        world.note(|| format!("{} has noted {:?} {:?}", slot.name, open.recovery_point, open.log_start_offset));
        match Log::open(open).await {
            Ok(opened) => return Some(opened),
            Err(OpenError::Disk(error)) => {
                assert!(slot.may_fail.get() || world.may_refuse(), "{context}: {error}");
            }
            Err(OpenError::Corrupt(error)) => {
                assert!(slot.is_damaged(), "{context}: {error}");
                slot.is_condemned.set(true);
            }
        }
        None
    }

    /// A clean stop, as far as every log can be closed.
    pub async fn stop(&self) -> bool {
        let world = &self.world;
        let slots = world.slots.borrow().clone();
        let mut closed = Vec::new();
        let mut is_clean = true;
        for slot in slots {
            let Some(log) = slot.live() else {
                is_clean = false;
                continue;
            };
            let context = world.context(&slot);
            match log.close().await {
                Ok(end) => {
                    world.note(|| format!("{} is closed, {end:?}, {} segments", slot.name, log.segment_count()));
                    let mut expected = slot.expected.borrow_mut();
                    if !slot.is_condemned.get() {
                        assert_eq!(end.log_end_offset, expected.end_offset(), "{context}: closed");
                        expected.flushed = end.log_end_offset;
                    }
                    closed.push(Rc::clone(&slot));
                }
                Err(error) => {
                    let is_excused = world.may_refuse() || slot.may_fail.get() || slot.may_serve_part();
                    assert!(is_excused, "{context}: {error}");
                    is_clean = false;
                }
            }
            self.take_note(&slot, &log).await;
        }
        for journal in &self.journals {
            if let Err(error) = journal.close().await {
                assert!(world.is_failing.get() || world.may_refuse(), "{error}");
                is_clean = false;
            }
        }
        world.note(|| format!("stopped, clean: {is_clean}"));
        match self.seal(&closed, is_clean).await {
            Ok(()) => is_clean,
            Err(error) => {
                assert!(world.may_refuse() || world.is_failing.get(), "{error}");
                false
            }
        }
    }

    async fn seal(&self, closed: &[Rc<Slot>], is_clean: bool) -> Result<(), DiskError> {
        self.write_noted(closed).await?;
        self.write_ends().await?;
        if is_clean {
            self.world.data_dir().write_clean_mark(-1).await?;
        }
        Ok(())
    }

    /// The checkpoints, one after the other.
    pub async fn write_noted(&self, slots: &[Rc<Slot>]) -> Result<(), DiskError> {
        let data_dir = self.world.data_dir();
        let mut noted = Noted::default();
        for slot in slots {
            let Some(log) = slot.live().filter(SimulatedLog::is_dir_durable) else { continue };
            noted.recovery_points.offsets.insert(slot.key(), log.recovery_point());
            noted.log_starts.offsets.insert(slot.key(), log.log_start_offset());
            if log.first_dirty_offset() > 0 {
                noted.first_dirty.offsets.insert(slot.key(), log.first_dirty_offset());
            }
        }
        for slot in self.world.slots.borrow().iter() {
            // What was known of a log that is not noted now stays known.
            let known =
                [(&mut noted.recovery_points, &slot.noted_recovery_point), (&mut noted.log_starts, &slot.noted_start)];
            for (file, offset) in known.into_iter().filter(|(_, offset)| offset.get() > 0) {
                file.offsets.entry(slot.key()).or_insert(offset.get());
            }
            // Neither is known to be there until all is done: the file may be the old or the new one.
            let recovery_point = noted.recovery_points.offsets.get(&slot.key()).copied().unwrap_or(0);
            slot.noted_recovery_point.set(slot.noted_recovery_point.get().min(recovery_point));
            let start = noted.log_starts.offsets.get(&slot.key()).copied().unwrap_or(0);
            slot.noted_start.set(slot.noted_start.get().min(start));
        }
        data_dir.write_checkpoint(RECOVERY_POINT_FILE, &noted.recovery_points).await?;
        data_dir.write_checkpoint(LOG_START_OFFSET_FILE, &noted.log_starts).await?;
        data_dir.write_checkpoint(CLEANER_OFFSET_FILE, &noted.first_dirty).await?;
        for slot in self.world.slots.borrow().iter() {
            let offset = |file: &OffsetCheckpoint| file.offsets.get(&slot.key()).copied().unwrap_or(0);
            slot.noted_recovery_point.set(offset(&noted.recovery_points));
            slot.noted_start.set(offset(&noted.log_starts));
        }
        Ok(())
    }

    /// Keeps what there is to note of a log's end; whether there is something.
    pub async fn take_note(&self, slot: &Slot, log: &SimulatedLog) -> bool {
        match log.next_note().await {
            Ok(Some(note)) => drop(self.ends.borrow_mut().insert((slot.topic_id, 0), note.into())),
            Ok(None) => return false,
            Err(error) => {
                let is_excused = slot.may_fail.get() || slot.is_damaged() || self.world.may_refuse();
                assert!(is_excused, "{}: {error}", self.world.context(slot));
                return false;
            }
        }
        true
    }

    /// Writes what is kept of the ends of logs.
    pub async fn write_ends(&self) -> Result<(), DiskError> {
        let ends = self.ends.borrow().clone();
        let slots = self.world.slots.borrow().clone();
        let noted_end = |slot: &Slot| {
            let note = ends.get(&(slot.topic_id, 0)).map(|note| KnownEnd::decode(note).expect("a note"));
            note.map_or(0, |note| note.end_offset)
        };
        // The file may be the old or the new one until this is done.
        slots.iter().for_each(|slot| slot.noted_end.set(slot.noted_end.get().min(noted_end(slot))));
        self.world.data_dir().write_log_ends(&encode_ends(&ends)).await?;
        slots.iter().for_each(|slot| slot.noted_end.set(noted_end(slot)));
        self.world.tally.borrow_mut().notes += 1;
        Ok(())
    }

    /// The topic is deleted, and made again under its name.
    pub async fn recreate(&self, at: usize) {
        let world = &self.world;
        let old = Rc::clone(&world.slots.borrow()[at]);
        let new = world.new_slot(old.name.clone());
        new.may_fail.set(old.may_fail.get());
        // Faults that are on their way meet whatever has the name.
        new.is_astray.set(old.is_astray.get());
        new.expected.borrow_mut().ignores_epochs = old.is_astray.get();
        world.note(|| format!("{} is deleted and made again", old.name));
        world.slots.borrow_mut()[at] = Rc::clone(&new);
        self.ends.borrow_mut().remove(&(old.topic_id, 0));
        let others: Vec<Rc<Slot>> =
            world.slots.borrow().iter().filter(|slot| slot.topic_id != new.topic_id).cloned().collect();
        if let Err(error) = self.write_noted(&others).await {
            assert!(world.may_refuse() || world.is_failing.get(), "{error}");
            for slot in &others {
                slot.noted_recovery_point.set(0);
                slot.noted_start.set(0);
            }
            // What they say of the old topic would be taken for the new one's.
            for file in [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE] {
                world.data_dir().remove_checkpoint(file).await.expect("no fault of these");
            }
        }
        if let Some(log) = old.log.take() {
            if let Err(error) = log.close().await {
                let is_excused = world.may_refuse() || old.may_fail.get() || old.may_serve_part();
                assert!(is_excused, "{}: {error}", world.context(&old));
            }
            log.forget_journal();
        }
        let data_dir = world.data_dir();
        let unique = u128::from_be_bytes(*old.topic_id.as_bytes());
        let aside =
            crate::data_dir::partition::aside_name(&old.name, 0, unique, crate::data_dir::partition::DELETE_SUFFIX);
        let name = crate::data_dir::partition::dir_name(&old.name, 0);
        if let Err(error) = data_dir.rename_partition_dir(&name, &aside).await {
            assert!(old.may_fail.get() || world.is_failing.get() || world.may_refuse(), "{error}");
            // The next start puts it out of the way.
            return;
        }
        world.runtime.spawn(async move { drop(data_dir.remove_partition_dir(&aside, Removal::InSteps).await) });
        if let Some(found) = self.open(at, &new, (false, false), &Noted::default()).await {
            self.begin_use(&new, found, false).await;
        }
    }
}
