//! In which log directory each partition's log is: what the start finds, and where new ones go. Pure.
//!
//! A new partition goes where there are fewest, as in Kafka (`LogManager.java`), the first such directory of the configuration;
//! not where something has failed. Where a log lies is known from the directories alone. One that is in none of them, while
//! one of those that this broker had is not there, is not made anew: its records may be in that one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use walser_machine::ids::TopicId;
use walser_machine::metadata::image::TopicImage;
use walser_machine::metadata::{MetadataDelta, MetadataImage};
use walser_protocol::types::Uuid;
use walser_storage::data_dir::moved::MovedTo;
use walser_storage::data_dir::partition::{DirKind, FoundDir};
use walser_storage::data_dir::plan::KnownTopic;

use super::partition::PartitionId;
use super::partition::moves::FoundMove;
use super::partition::reconcile::Homes;
use crate::log_dirs::{LogDirIndex, LogDirs};

pub mod moved;

/// What lies in each directory that is online.
pub type FoundDirs = BTreeMap<LogDirIndex, Vec<FoundDir>>;

/// Why nobody knows where a partition is.
#[derive(Debug, thiserror::Error)]
pub enum HomesError {
    #[error(
        "partition {name} is in {} and in {}: it may be that one of them failed while the partition was moved, or that one is a copy; remove or rename the one that is not to be used",
        one.display(), other.display()
    )]
    Twice { name: String, one: PathBuf, other: PathBuf },
}

/// Where the partitions are that the metadata knows. A directory that says its partition was moved does not count.
///
/// # Errors
/// When one is in two directories, both with something to lose.
pub fn find_homes(
    found: &FoundDirs,
    known: &BTreeMap<Uuid, KnownTopic>,
    log_dirs: &LogDirs,
) -> Result<Homes, HomesError> {
    let by_name = by_name(known);
    let mut candidates: BTreeMap<PartitionId, Vec<(LogDirIndex, &FoundDir)>> = BTreeMap::new();
    for (dir, found) in found.iter().flat_map(|(dir, found)| found.iter().map(|found| (*dir, found))) {
        let Some(id) = partition_of(found, &by_name, known).filter(|_| found.moved_to.is_none()) else { continue };
        candidates.entry(id).or_default().push((dir, found));
    }
    let mut homes = Homes::new();
    for (id, mut candidates) in candidates {
        // One that was half made counts where there is no other.
        candidates.sort_by_key(|(dir, found)| (found.topic_id.is_none(), !found.has_data, *dir));
        let mut real = candidates.iter().filter(|(_, found)| found.topic_id.is_some() || found.has_data);
        if let (Some((one, found)), Some((other, _))) = (real.next(), real.next()) {
            let path = |dir: LogDirIndex| log_dirs.dir(dir).path().join(&found.dir_name);
            return Err(HomesError::Twice { name: found.dir_name.clone(), one: path(*one), other: path(*other) });
        }
        homes.extend(candidates.first().map(|(dir, _)| (id, *dir)));
    }
    Ok(homes)
}

/// Copies under way, of replicas that are in other directories and say so, and directories of copies that are of no use. `id_of`
/// gives the id of a data directory that is online.
pub fn find_moves(
    found: &FoundDirs,
    known: &BTreeMap<Uuid, KnownTopic>,
    homes: &Homes,
    id_of: impl Fn(LogDirIndex) -> Uuid,
) -> (BTreeMap<PartitionId, FoundMove>, Vec<(LogDirIndex, String)>) {
    let by_name = by_name(known);
    let (mut moves, mut useless) = (BTreeMap::new(), Vec::new());
    let copying = moved::each(found).filter_map(|(dir, found)| {
        let to = found.copying_to.as_ref()?;
        Some(((partition_of(found, &by_name, known)?, dir), to))
    });
    let copying: BTreeMap<(PartitionId, LogDirIndex), &MovedTo> = copying.collect();
    let is_said = |id: PartitionId, home: LogDirIndex, dir, copy: &str| {
        let to = copying.get(&(id, home));
        to.is_some_and(|to| to.directory_id == id_of(dir) && to.copy == copy)
    };
    for (dir, found) in found.iter().flat_map(|(dir, found)| found.iter().map(|found| (*dir, found))) {
        if found.name.kind != DirKind::Future {
            continue;
        }
        let id = partition_named(found, &by_name, known).filter(|_| found.topic_id.is_some());
        match id.map(|id| (id, homes.get(&id))) {
            // Where the replica is not there, its copy may still be of use once it is.
            Some((_, None)) => {}
            Some((id, Some(home))) if is_said(id, *home, dir, &found.dir_name) => {
                moves.insert(id, FoundMove { to: dir, dir_name: found.dir_name.clone() });
            }
            Some(_) | None => useless.push((dir, found.dir_name.clone())),
        }
    }
    (moves, useless)
}

fn by_name(known: &BTreeMap<Uuid, KnownTopic>) -> BTreeMap<&str, Uuid> {
    known.iter().map(|(id, topic)| (topic.name.as_str(), *id)).collect()
}

/// The partition that the metadata has for a directory.
fn partition_of(
    found: &FoundDir,
    by_name: &BTreeMap<&str, Uuid>,
    known: &BTreeMap<Uuid, KnownTopic>,
) -> Option<PartitionId> {
    let is_partition = found.name.kind == DirKind::Partition;
    is_partition.then(|| partition_named(found, by_name, known)).flatten()
}

/// The same for a copy, too.
fn partition_named(
    found: &FoundDir,
    by_name: &BTreeMap<&str, Uuid>,
    known: &BTreeMap<Uuid, KnownTopic>,
) -> Option<PartitionId> {
    let topic_id = *by_name.get(found.name.topic.as_str())?;
    let is_its = found.topic_id.is_none_or(|found| found == topic_id);
    let is_there = known.get(&topic_id).is_some_and(|topic| topic.partitions.contains(&found.name.partition));
    let topic_id = TopicId::from_wire(topic_id).filter(|_| is_its && is_there)?;
    Some(PartitionId { topic_id, index: found.name.partition })
}

/// The topics as far as a directory has their partitions, or may have had.
pub fn topics_in(known: &BTreeMap<Uuid, KnownTopic>, homes: &Homes, dir: LogDirIndex) -> BTreeMap<Uuid, KnownTopic> {
    let is_in = |topic_id, index: &i32| {
        let home =
            TopicId::from_wire(topic_id).and_then(|topic_id| homes.get(&PartitionId { topic_id, index: *index }));
        home.is_none_or(|home| *home == dir)
    };
    known
        .iter()
        .map(|(topic_id, topic)| {
            let partitions = topic.partitions.iter().copied().filter(|index| is_in(*topic_id, index)).collect();
            (*topic_id, KnownTopic { name: topic.name.clone(), partitions })
        })
        .collect()
}

/// Notes the homes of directories that were made by a replay.
pub fn add_made(homes: &mut Homes, dir: LogDirIndex, made: &[FoundDir]) {
    for made in made {
        let Some(topic_id) = made.topic_id.and_then(TopicId::from_wire) else { continue };
        homes.entry(PartitionId { topic_id, index: made.name.partition }).or_insert(dir);
    }
}

/// Where partitions are, while the broker runs.
#[derive(Debug, Default)]
pub struct Placing {
    node_id: i32,
    homes: Homes,
    /// Logs in each directory, copies included.
    counts: Vec<usize>,
    copies: Homes,
    /// What was asked for before there was such a partition.
    preferred: BTreeMap<(String, i32), LogDirIndex>,
}

/// Wishes of clients for partitions that may never be made.
const PREFERRED_MAX: usize = 10_000;

impl Placing {
    /// `moves`: copies count as logs, as in Kafka.
    pub fn new(node_id: i32, dir_count: usize, homes: Homes, moves: &BTreeMap<PartitionId, FoundMove>) -> Self {
        let mut counts = vec![0; dir_count];
        for dir in homes.values().copied().chain(moves.values().map(|copy| copy.to)) {
            counts[dir.index()] += 1;
        }
        let copies = moves.iter().map(|(id, copy)| (*id, copy.to)).collect();
        Self { node_id, homes, counts, copies, preferred: BTreeMap::new() }
    }

    /// A replica is on its way to `to`, or to no other directory.
    pub fn note_copy(&mut self, id: PartitionId, to: Option<LogDirIndex>) {
        let to = to.filter(|to| self.homes.get(&id).is_some_and(|home| home != to));
        if let Some(before) = self.copies.remove(&id) {
            self.counts[before.index()] -= 1;
        }
        if let Some(to) = to {
            self.counts[to.index()] += 1;
            self.copies.insert(id, to);
        }
    }

    /// A replica is where its copy was.
    pub fn note_moved(&mut self, id: PartitionId, to: LogDirIndex) {
        self.note_copy(id, None);
        if let Some(home) = self.homes.get_mut(&id) {
            self.counts[home.index()] -= 1;
            self.counts[to.index()] += 1;
            *home = to;
        }
    }

    /// Where a partition is to be made that is not there yet, by topic and index. The oldest wishes are forgotten when there
    /// are very many.
    pub fn prefer(&mut self, topic: &str, index: i32, dir: LogDirIndex) {
        while self.preferred.len() >= PREFERRED_MAX {
            self.preferred.pop_first();
        }
        self.preferred.insert((topic.to_owned(), index), dir);
    }

    /// Where everything is.
    pub fn homes(&self) -> &Homes {
        &self.homes
    }

    /// Partitions of this broker that are nowhere.
    pub fn homeless(&self, image: &MetadataImage) -> Vec<PartitionId> {
        let ids = image.topics().flat_map(|topic| self.ours(topic, 0));
        ids.filter(|id| !self.homes.contains_key(id)).collect()
    }

    /// Gives partitions a home; in vain where there is no directory. `cordoned`: which of the directories are.
    pub fn place(
        &mut self,
        ids: impl IntoIterator<Item = PartitionId>,
        log_dirs: &LogDirs,
        cordoned: &[bool],
    ) -> Homes {
        let mut placed = Homes::new();
        for id in ids {
            if let Some(dir) = self.emptiest(log_dirs, cordoned) {
                self.settle(id, dir);
                placed.insert(id, dir);
            }
        }
        placed
    }

    /// Where there are fewest logs. The controller makes none where all are cordoned, and where everything has failed new
    /// ones are made all the same, unless nothing can be: a log behind another journal may work.
    fn emptiest(&self, log_dirs: &LogDirs, cordoned: &[bool]) -> Option<LogDirIndex> {
        let is_cordoned = |index: LogDirIndex| cordoned.get(index.index()).is_some_and(|is_cordoned| *is_cordoned);
        let online = log_dirs.iter().filter(|(_, dir)| !dir.is_offline());
        let best = online.min_by_key(|(index, dir)| (!dir.is_good(), is_cordoned(*index), self.counts[index.index()]));
        best.map(|(index, _)| index)
    }

    /// Goes with the metadata; homes of the partitions that are new.
    pub fn follow(&mut self, delta: &MetadataDelta, log_dirs: &LogDirs, cordoned: &[bool]) -> Homes {
        for topic in &delta.topics_deleted {
            for id in self.ours(topic, 0) {
                self.note_copy(id, None);
                if let Some(dir) = self.homes.remove(&id) {
                    self.counts[dir.index()] -= 1;
                }
            }
        }
        let created = delta.topics_created.iter().map(|topic| (topic, 0));
        let grown = delta.topics_changed.iter().map(|change| (&change.after, change.before.partitions.len()));
        let mut placed = Homes::new();
        for (topic, from) in created.chain(grown) {
            for id in self.ours(topic, from) {
                let wish = self.preferred.remove(&(topic.name.to_string(), id.index));
                match wish.filter(|dir| !log_dirs.dir(*dir).is_offline()) {
                    Some(dir) => {
                        self.settle(id, dir);
                        placed.insert(id, dir);
                    }
                    None => placed.extend(self.place([id], log_dirs, cordoned)),
                }
            }
        }
        placed
    }

    fn settle(&mut self, id: PartitionId, dir: LogDirIndex) {
        self.counts[dir.index()] += 1;
        self.homes.insert(id, dir);
    }

    /// Partitions of this broker from index `from` on.
    fn ours(&self, topic: &TopicImage, from: usize) -> Vec<PartitionId> {
        let is_ours = |replicas: &[walser_machine::ids::BrokerId]| replicas.iter().any(|id| id.get() == self.node_id);
        let topic_id = topic.topic_id;
        (0..)
            .zip(&topic.partitions)
            .skip(from)
            .filter(|(_, partition)| is_ours(&partition.replicas))
            .map(|(index, _)| PartitionId { topic_id, index })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use walser_storage::data_dir::partition::parse_dir_name;

    use super::*;

    fn dirs() -> LogDirs {
        LogDirs::new(&["/no/a".into(), "/no/b".into(), "/no/c".into()], "/no/a".as_ref(), 0)
    }

    fn topic_id(number: u8) -> TopicId {
        TopicId::from_wire(Uuid::from_bytes([number; 16])).unwrap()
    }

    fn id(number: u8, index: i32) -> PartitionId {
        PartitionId { topic_id: topic_id(number), index }
    }

    fn dir(index: u16) -> LogDirIndex {
        LogDirIndex::new(index)
    }

    fn found(name: &str, topic_id: Option<u8>, has_data: bool) -> FoundDir {
        let topic_id = topic_id.map(|number| Uuid::from_bytes([number; 16]));
        FoundDir {
            dir_name: name.to_owned(),
            name: parse_dir_name(name).unwrap(),
            topic_id,
            has_data,
            moved_to: None,
            copying_to: None,
        }
    }

    fn known() -> BTreeMap<Uuid, KnownTopic> {
        let topic = KnownTopic { name: "t".into(), partitions: BTreeSet::from([0, 1, 2]) };
        BTreeMap::from([(topic_id(1).get(), topic)])
    }

    #[test]
    fn partitions_are_where_their_directories_are() {
        // Rule: what is another topic's, deleted or stray is nobody's home; one that was half made yields to a whole one.
        let stray = format!("t-0.{}-stray", "0".repeat(32));
        let in_a = vec![found("t-0", None, false), found("t-1", Some(1), true), found("u-0", Some(2), true)];
        let in_b = vec![found("t-0", Some(1), true), found("t-1", Some(9), true), found(&stray, Some(1), true)];
        let found = FoundDirs::from([(dir(0), in_a), (dir(1), in_b)]);
        let homes = find_homes(&found, &known(), &dirs()).unwrap();
        assert_eq!(homes, Homes::from([(id(1, 0), dir(1)), (id(1, 1), dir(0))]));
        let partitions = |index| topics_in(&known(), &homes, dir(index))[&topic_id(1).get()].partitions.clone();
        assert_eq!(partitions(0), BTreeSet::from([1, 2]), "what is nowhere may have been here");
        assert_eq!(partitions(1), BTreeSet::from([0, 2]));
    }

    #[test]
    fn copies_go_on_where_their_replicas_are_elsewhere() {
        // Rule: one copy of each replica, in another directory than that; what is of no use is named, and what may be of use once a
        // replica is there again is left alone.
        let future = |name: &str| format!("{name}.{}-future", "1".repeat(32));
        let dir_id = |dir: LogDirIndex| Uuid::from_bytes([u8::try_from(dir.index()).unwrap() + 20; 16]);
        let mut replica = found("t-0", Some(1), true);
        replica.copying_to = Some(MovedTo { directory_id: dir_id(dir(1)), copy: future("t-0") });
        let in_a = vec![replica, found(&future("t-0"), Some(1), true)];
        let in_b = vec![found(&future("t-0"), Some(1), true), found(&future("t-1"), Some(1), true)];
        let in_c = vec![found(&future("t-0"), Some(1), true), found(&future("u-0"), Some(2), true)];
        let found = FoundDirs::from([(dir(0), in_a), (dir(1), in_b), (dir(2), in_c)]);
        let homes = find_homes(&found, &known(), &dirs()).unwrap();
        let (moves, useless) = find_moves(&found, &known(), &homes, dir_id);
        let copy = FoundMove { to: dir(1), dir_name: future("t-0") };
        assert_eq!(moves, BTreeMap::from([(id(1, 0), copy)]));
        let names = [(dir(0), future("t-0")), (dir(2), future("t-0")), (dir(2), future("u-0"))];
        assert_eq!(useless, names);
        let mut found = found;
        found.get_mut(&dir(0)).unwrap()[0].copying_to = None;
        let (moves, useless) = find_moves(&found, &known(), &homes, dir_id);
        assert_eq!((moves.len(), useless.len()), (0, 4), "the replica knows of none");
    }

    #[test]
    fn copies_count_and_wishes_are_kept() {
        // Rule: a copy counts where it is, a moved replica where it is now.
        let dirs = dirs();
        let mut placing = Placing::new(1, 3, Homes::from([(id(7, 0), dir(0))]), &BTreeMap::new());
        placing.note_copy(id(7, 0), Some(dir(1)));
        placing.note_copy(id(7, 0), Some(dir(0)));
        assert_eq!(placing.counts, [1, 0, 0], "to where it is");
        placing.note_copy(id(7, 0), Some(dir(1)));
        placing.note_copy(id(7, 0), Some(dir(2)));
        assert_eq!(placing.counts, [1, 0, 1]);
        placing.note_moved(id(7, 0), dir(2));
        assert_eq!(placing.counts, [0, 0, 1]);
        assert_eq!(placing.place([id(8, 0)], &dirs, &[])[&id(8, 0)], dir(0));
        assert_eq!(placing.place([id(8, 1)], &dirs, &[false, true])[&id(8, 1)], dir(0), "the empty one is cordoned");
    }

    #[test]
    fn a_partition_in_two_directories_is_an_error() {
        // Rule: nobody guesses which one has what was acknowledged.
        for other in [found("t-0", Some(1), true), found("t-0", None, true)] {
            let found = FoundDirs::from([(dir(0), vec![found("t-0", Some(1), true)]), (dir(2), vec![other])]);
            let error = find_homes(&found, &known(), &dirs()).unwrap_err().to_string();
            assert!(error.contains("/no/a/t-0") && error.contains("/no/c/t-0"), "{error}");
        }
    }

    #[test]
    fn new_partitions_go_where_there_are_fewest() {
        // Rule: the first of those with fewest; one that has failed only where there is no other, one that is offline never.
        let dirs = dirs();
        let homes = Homes::from([(id(7, 0), dir(0)), (id(7, 1), dir(1))]);
        let mut placing = Placing::new(1, 3, homes, &BTreeMap::new());
        let mut place = |index| placing.place([id(8, index)], &dirs, &[]).get(&id(8, index)).copied();
        assert_eq!([place(0), place(1), place(2)], [Some(dir(2)), Some(dir(0)), Some(dir(1))]);
        dirs.dir(dir(2)).fail("a test");
        assert_eq!([place(3), place(4)], [Some(dir(0)), Some(dir(1))], "two in each, and one in the third");
        dirs.dir(dir(0)).take_offline("a test");
        dirs.dir(dir(1)).take_offline("a test");
        assert_eq!(place(5), Some(dir(2)));
        let gone = LogDirs::new(&["/no/a".into()], "/no/a".as_ref(), 0);
        gone.dir(dir(0)).take_offline("a test");
        assert!(Placing::new(1, 1, Homes::new(), &BTreeMap::new()).place([id(1, 0)], &gone, &[]).is_empty());
    }
}
