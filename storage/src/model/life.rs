//! From a start to an end: what a broker does with its data directory, and what of it must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use walser_protocol::types::Uuid;

use super::world::{DATA, Slot, World};
use crate::cache::tail::TailBudget;
use crate::checkpoint::{CLEANER_OFFSET_FILE, LOG_START_OFFSET_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE};
use crate::data_dir::partition::{DirKind, FoundDir};
use crate::data_dir::plan::{Decision, KnownTopic, plan_directories};
use crate::data_dir::{DataDir, Removal};
use crate::disk::simulated::{SimulatedDisk, SimulatedFile};
use crate::error::{DiskError, OpenError};
use crate::journal::replay::{ReplayError, discard, replay};
use crate::journal::{Journal, JournalError, JournalHandle, JournalOptions, folder};
use crate::log::{Log, OpenLog};
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
}

/// What the checkpoints say, as far as it is of topics there are.
#[derive(Default)]
struct Noted {
    recovery_points: OffsetCheckpoint,
    log_starts: OffsetCheckpoint,
    first_dirty: OffsetCheckpoint,
}

/// The start of a broker, in its order.
pub(super) async fn boot(world: &Rc<World>) -> Result<Life, BootFailure> {
    let data_dir = world.data_dir();
    let mut found = data_dir.list_partitions().await?;
    settle(world, &data_dir, &found).await?;
    let is_clean = data_dir.take_clean_mark().await?;
    if !is_clean {
        let names: BTreeMap<Uuid, String> =
            world.slots.borrow().iter().map(|slot| (slot.topic_id, slot.name.clone())).collect();
        let behind = |_| names.keys().map(|id| (*id, 0)).collect();
        let replayed = replay(&data_dir, &world.runtime, |id, _| names.get(&id).cloned(), behind).await?;
        assert!(replayed.damaged.is_empty(), "nothing damages a journal: {replayed:?}");
        world.note(|| format!("{replayed:?}"));
        let is_new = |dir: &FoundDir| found.binary_search_by(|known| known.dir_name.cmp(&dir.dir_name)).is_err();
        let made: Vec<FoundDir> = replayed.made.into_iter().filter(is_new).collect();
        found.extend(made);
    }
    discard(&data_dir).await?;
    let noted = read_noted(world, &data_dir, &found).await?;
    let mut life = Life {
        world: Rc::clone(world),
        journals: Vec::new(),
        budget: TailBudget::new(world.shape.tail_bytes),
        // Fewer than there are segments.
        open_files: OpenFiles::new(3),
    };
    let shard_count = world.between(1, 2) as u16;
    for number in 0..shard_count {
        life.journals.push(life.open_journal(number, shard_count).await?);
    }
    let slots = world.slots.borrow().clone();
    for (at, slot) in slots.iter().enumerate() {
        life.open(at, slot, is_clean, &noted).await;
    }
    Ok(life)
}

/// What is in the data directory is held against the metadata.
async fn settle(world: &World, data_dir: &DataDir<SimulatedDisk>, found: &[FoundDir]) -> Result<(), BootFailure> {
    let mut known = BTreeMap::new();
    for slot in world.slots.borrow().iter() {
        let topic = KnownTopic { name: slot.name.clone(), partitions: BTreeSet::from([0]) };
        known.insert(slot.topic_id, topic);
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

    /// Opens a log and holds what is in it against what was promised. A log that cannot be opened for a good reason stays
    /// closed in this life.
    async fn open(&self, at: usize, slot: &Rc<Slot>, is_clean: bool, noted: &Noted) {
        let world = &self.world;
        let context = world.context(slot);
        let dir = match world.data_dir().create_partition(&slot.name, 0, slot.topic_id).await {
            Ok(dir) => dir,
            Err(error) => {
                assert!(slot.may_fail.get() || world.may_refuse(), "{context}: {error}");
                return;
            }
        };
        let journal = self.journals[self.journal_of(at)].clone();
        let key = slot.key();
        let open = OpenLog {
            disk: world.disk(),
            open_files: Rc::clone(&self.open_files),
            runtime: world.runtime.clone(),
            budget: Rc::clone(&self.budget),
            journal: Some(JournalHandle { journal, topic_id: slot.topic_id, partition: 0 }),
            dir,
            entries: None,
            known_end: None,
            config: slot.config.borrow().clone().into(),
            is_clean,
            defers_sync: false,
            recovery_point: noted.recovery_points.offsets.get(&key).copied(),
            log_start_offset: noted.log_starts.offsets.get(&key).copied(),
            first_dirty_offset: noted.first_dirty.offsets.get(&key).copied(),
            now_ms: world.now_ms(),
        };
        world.note(|| format!("{} has noted {:?} {:?}", slot.name, open.recovery_point, open.log_start_offset));
        match Log::open(open).await {
            Ok((log, report)) => {
                self.check_opened(slot, &log, &report, is_clean).await;
                log.begin_epoch(slot.leader_epoch.get());
                *slot.log.borrow_mut() = Some(log);
            }
            Err(OpenError::Disk(error)) => {
                assert!(slot.may_fail.get() || world.may_refuse(), "{context}: {error}");
            }
            Err(OpenError::Corrupt(error)) => {
                assert!(slot.is_damaged(), "{context}: {error}");
                slot.is_condemned.set(true);
            }
        }
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
                    let is_excused = world.may_refuse() || slot.may_fail.get() || slot.is_damaged();
                    assert!(is_excused, "{context}: {error}");
                    is_clean = false;
                }
            }
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
            let Some(log) = slot.live() else { continue };
            noted.recovery_points.offsets.insert(slot.key(), log.recovery_point());
            noted.log_starts.offsets.insert(slot.key(), log.log_start_offset());
            if log.first_dirty_offset() > 0 {
                noted.first_dirty.offsets.insert(slot.key(), log.first_dirty_offset());
            }
        }
        for slot in self.world.slots.borrow().iter() {
            // What was known of a log that is not open stays known.
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

    /// The topic is deleted, and made again under its name.
    pub async fn recreate(&self, at: usize) {
        let world = &self.world;
        let old = Rc::clone(&world.slots.borrow()[at]);
        let new = world.new_slot(old.name.clone());
        new.may_fail.set(old.may_fail.get());
        world.note(|| format!("{} is deleted and made again", old.name));
        world.slots.borrow_mut()[at] = Rc::clone(&new);
        let others: Vec<Rc<Slot>> =
            world.slots.borrow().iter().filter(|slot| slot.topic_id != new.topic_id).cloned().collect();
        if let Err(error) = self.write_noted(&others).await {
            assert!(world.may_refuse() || world.is_failing.get(), "{error}");
            // What they say of the old topic would be taken for the new one's.
            for file in [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE] {
                world.data_dir().remove_checkpoint(file).await.expect("no fault of these");
            }
            for slot in &others {
                slot.noted_recovery_point.set(0);
                slot.noted_start.set(0);
            }
        }
        if let Some(log) = old.log.take() {
            if let Err(error) = log.close().await {
                let is_excused = world.may_refuse() || old.may_fail.get() || old.is_damaged();
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
        self.open(at, &new, false, &Noted::default()).await;
    }
}
