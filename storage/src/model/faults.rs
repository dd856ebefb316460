//! What the disk does to a broker.

use std::path::Path;
use std::time::Duration;

use walser_protocol::records::batch::Batches;

use super::life::Life;
use super::world::{DATA, Slot, World};
use crate::checkpoint::{LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE};
use crate::data_dir::log_ends::LOG_ENDS_FILE;
use crate::disk::simulated::{FaultRates, Operation};
use crate::disk::{Disk, File, OpenMode};
use crate::journal::folder;
use crate::journal::tests::records::{JournalRecord, journal_records};
use crate::log::known_end::KnownEnd;
use crate::runtime::Runtime;
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_path, parse_file_name};

const OPERATIONS: [Operation; 9] = [
    Operation::Read,
    Operation::Write,
    Operation::SyncData,
    Operation::Truncate,
    Operation::Allocate,
    Operation::Create,
    Operation::Rename,
    Operation::Remove,
    Operation::SyncDir,
];

impl World {
    /// Before a life begins, in some of them: an operation that will fail.
    pub(super) fn plan_faults(&self) {
        if self.chance(1, 12) {
            self.fail_some();
        }
    }

    /// Lets an operation fail that comes soon, of one log or of a journal.
    fn fail_some(&self) {
        self.tally.borrow_mut().faults += 1;
        let slots = self.slots.borrow();
        let nth = 1 + self.below(12);
        let operation = match self.below(4) {
            0 => Operation::Write,
            1 => Operation::SyncData,
            _ => OPERATIONS[self.index(OPERATIONS.len())],
        };
        let at = self.index(slots.len() + 4);
        let path = match slots.get(at) {
            Some(slot) => {
                slot.may_fail.set(true);
                format!("/{}-0", slot.name)
            }
            None if at == slots.len() + 3 => {
                self.is_failing.set(true);
                format!("{DATA}/{}.tmp", [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, LOG_ENDS_FILE][self.index(3)])
            }
            None => {
                self.is_failing.set(true);
                slots.iter().for_each(|slot| slot.may_fail.set(true));
                format!("/journal/{}", at - slots.len())
            }
        };
        self.note(|| format!("{operation:?} number {nth} in {path} will fail"));
        self.disk().fail_nth(operation, &path, nth, libc::EIO);
    }

    /// While nothing runs, a bit flips in a record of a journal that is known to have been acknowledged: another one that was
    /// written later says so.
    pub(super) fn damage_journal(&self) {
        if !self.chance(1, 15) {
            return;
        }
        let disk = self.disk();
        let mut records = journal_records(&disk, &folder(Path::new(DATA), self.index(3)));
        let durable_through = records.iter().map(|record| record.durable_through).max().unwrap_or(0);
        records.retain(|record| record.sequence <= durable_through);
        if records.is_empty() {
            return;
        }
        let JournalRecord { path, bytes, sequence, .. } = &records[self.index(records.len())];
        let (position, bit) = (self.between(bytes.start, bytes.end - 1), self.below(8) as u32);
        self.note(|| format!("bit {bit} of byte {position} of {}, record {sequence}, flips", path.display()));
        disk.flip_bit(path, position, bit).expect("it is there");
        self.tally.borrow_mut().faults += 1;
        self.slots.borrow().iter().for_each(|slot| slot.is_marked.set(true));
    }

    /// While nothing runs, an index file may be lost, emptied, cut or overwritten: it only speeds up.
    pub(super) async fn damage_indexes(&self) {
        if !self.chance(1, 6) {
            return;
        }
        let slots = self.slots.borrow().clone();
        let slot = &slots[self.index(slots.len())];
        let disk = self.disk();
        let Ok(entries) = disk.list_dir(&slot.dir()).await else { return };
        for entry in entries {
            let is_index = matches!(parse_file_name(&entry.name), Some((_, INDEX_SUFFIX | TIME_INDEX_SUFFIX)));
            if !is_index || self.chance(1, 2) {
                continue;
            }
            let path = slot.dir().join(&entry.name);
            let how = self.below(4);
            self.note(|| format!("{} is damaged, {how}", path.display()));
            match how {
                0 => disk.remove_file(&path).await.expect("no fault"),
                1 | 2 => {
                    let file = disk.open(&path, OpenMode::ReadWrite).await.expect("no fault");
                    let len_bytes = if how == 1 { 0 } else { entry.len_bytes.saturating_sub(1) / 12 * 12 + 5 };
                    file.truncate(len_bytes).await.expect("no fault");
                    file.sync_data().await.expect("no fault");
                }
                _ => disk.plant(&path, 0, &[0xff; 3]).expect("it is there"),
            }
        }
        disk.sync_dir(&slot.dir()).await.expect("no fault");
    }
}

impl World {
    /// While nothing runs, the recovery points may be lost, or be no text any more.
    pub(super) async fn damage_recovery_points(&self) {
        if !self.chance(1, 20) {
            return;
        }
        let (disk, path) = (self.disk(), Path::new(DATA).join(RECOVERY_POINT_FILE));
        if disk.peek(&path).is_err() {
            return;
        }
        let is_lost = self.chance(1, 2);
        self.note(|| format!("the recovery points are {}", if is_lost { "lost" } else { "damaged" }));
        if is_lost {
            disk.remove_file(&path).await.expect("no fault");
            disk.sync_dir(Path::new(DATA)).await.expect("no fault");
        } else {
            disk.plant(&path, 0, &[0xff]).expect("it is there");
        }
        self.tally.borrow_mut().faults += 1;
        self.slots.borrow().iter().for_each(|slot| slot.noted_recovery_point.set(0));
    }
}

impl Life {
    /// In some lives; most go on undisturbed.
    pub(super) async fn cause_trouble(&self, at: usize) {
        let world = &self.world;
        match world.below(8) {
            0 => world.fail_some(),
            1..3 => self.fill_disk(),
            3 => self.rot(at).await,
            4 => self.misdirect(at),
            5 => self.stall(),
            _ => world.runtime.sleep(Duration::from_micros(world.below(100_000))).await,
        }
    }

    /// No room, or hardly any, for a while.
    fn fill_disk(&self) {
        let world = &self.world;
        if world.is_full.replace(true) {
            return;
        }
        world.tally.borrow_mut().faults += 1;
        let disk = world.disk();
        disk.set_capacity(disk.used_bytes() + world.below(60_000));
        let wait = Duration::from_millis(world.below(20_000));
        world.note(|| format!("the disk is full for {wait:?}"));
        let (task_world, runtime) = (std::rc::Rc::clone(world), world.runtime.clone());
        world.runtime.spawn(async move {
            runtime.sleep(wait).await;
            task_world.note(|| "there is room again".to_owned());
            disk.set_capacity(1 << 40);
            task_world.is_full.set(false);
            task_world.room_since.set(Some(runtime.now()));
        });
    }

    /// One of the next writes of a log goes astray.
    fn misdirect(&self, at: usize) {
        let world = &self.world;
        let slot = std::rc::Rc::clone(&world.slots.borrow()[at]);
        if world.chance(3, 4) {
            return;
        }
        world.tally.borrow_mut().faults += 1;
        let nth = 1 + world.below(8);
        world.note(|| format!("write number {nth} of {} goes astray", slot.name));
        slot.is_astray.set(true);
        slot.expected.borrow_mut().ignores_epochs = true;
        world.disk().misdirect_nth(&format!("/{}-0/0", slot.name), nth);
    }

    /// Some operations take very long from now on.
    fn stall(&self) {
        let stall = self.world.below(50_000) as u32;
        self.world.disk().set_faults(FaultRates { stall, ..FaultRates::default() });
    }

    /// A bit flips of a closed segment that is known to be durable, or of what is noted of the active one.
    async fn rot(&self, at: usize) {
        let world = &self.world;
        let slot = std::rc::Rc::clone(&world.slots.borrow()[at]);
        let Ok(entries) = world.disk().list_dir(&slot.dir()).await else { return };
        let bases: Vec<i64> = entries
            .iter()
            .filter_map(|entry| parse_file_name(&entry.name))
            .filter(|(_, suffix)| *suffix == LOG_SUFFIX)
            .map(|(base_offset, _)| base_offset)
            .collect();
        let closed = bases.windows(2).filter(|pair| pair[1] <= slot.noted_recovery_point.get()).count();
        let path = |base_offset| file_path(&slot.dir(), base_offset, LOG_SUFFIX);
        let len_bytes = |base_offset| world.disk().peek(&path(base_offset)).map_or(0, |bytes| bytes.len() as u64);
        let noted = self.durable_note(&slot).filter(|note| bases.last() == Some(&note.base_offset));
        let (base_offset, end) = match noted.filter(|_| world.chance(1, 3)) {
            Some(note) => (note.base_offset, note.position.min(len_bytes(note.base_offset))),
            None if closed > 0 => {
                let base_offset = bases[world.index(closed)];
                (base_offset, len_bytes(base_offset))
            }
            None => return,
        };
        if end == 0 || slot.is_damaged() {
            return;
        }
        let path = path(base_offset);
        let (position, bit) = (world.below(end), world.below(8) as u32);
        // Between what compaction has left, nothing says where a batch should begin to count.
        let content = world.disk().peek(&path).unwrap_or_default();
        if slot.expected.borrow().is_compacted() && is_of_base_offset(&content, position) {
            return;
        }
        world.note(|| format!("bit {bit} of byte {position} of {} flips", path.display()));
        if world.disk().flip_bit(&path, position, bit).is_ok() {
            world.tally.borrow_mut().faults += 1;
            slot.is_rotten.set(true);
            slot.expected.borrow_mut().ignores_epochs = true;
        }
    }

    /// What is noted of a log's end on disk.
    fn durable_note(&self, slot: &Slot) -> Option<KnownEnd> {
        let ends = self.ends.borrow();
        let note = KnownEnd::decode(ends.get(&(slot.topic_id, 0))?).expect("a note");
        (note.end_offset == slot.noted_end.get()).then_some(note)
    }
}

/// Whether a byte of a segment is one of a base offset.
fn is_of_base_offset(content: &[u8], position: u64) -> bool {
    let mut start = 0;
    for batch in Batches::new(content).map_while(Result::ok) {
        if (start..start + 8).contains(&position) {
            return true;
        }
        start += batch.total_len() as u64;
    }
    false
}
