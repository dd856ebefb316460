//! Which directory of a partition is the replica, where some say that the partition was moved to another data directory. Pure.
//!
//! | where the copy was to get its name | another directory of the partition | the one that says so |
//! | --- | --- | --- |
//! | online, and the copy is there | | is the replica: the copy did not get the name |
//! | online, and the copy is not there | says nothing | is old, and goes |
//! | online, and the copy is not there | none | is old, and is kept: the newer one is away |
//! | away | says nothing | is old, and is kept |
//! | away | none | may be either, and is kept |
//!
//! It holds because at every moment at most one directory says nothing, and that is the replica: the one with the name says
//! that it was moved before its copy gets the name, and takes that back only while the copy has not got it.

use std::collections::{BTreeMap, BTreeSet};

use walser_protocol::types::Uuid;
use walser_storage::data_dir::partition::{DirKind, FoundDir};
use walser_storage::data_dir::plan::KnownTopic;

use super::{FoundDirs, partition_of};
use crate::driver::partition::PartitionId;
use crate::driver::partition::reconcile::Homes;
use crate::log_dirs::LogDirIndex;

/// What a start does with one directory of a partition that says it was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is the replica, and says nothing any more.
    Stay { dir: LogDirIndex, dir_name: String },
    /// It goes, once the other one's name is durable.
    Leave { dir: LogDirIndex, dir_name: String, replica: LogDirIndex },
}

/// The next step, until there is none. `ids` are those of the data directories that are online.
pub fn next_step(
    found: &FoundDirs,
    known: &BTreeMap<Uuid, KnownTopic>,
    ids: &BTreeMap<Uuid, LogDirIndex>,
) -> Option<Step> {
    if each(found).all(|(_, found)| found.moved_to.is_none()) {
        return None;
    }
    let copies: BTreeSet<(LogDirIndex, &str)> = each(found)
        .filter(|(_, found)| found.name.kind == DirKind::Future)
        .map(|(dir, found)| (dir, &*found.dir_name))
        .collect();
    let by_name = super::by_name(known);
    let replicas: BTreeMap<PartitionId, LogDirIndex> = each(found)
        .filter(|(_, found)| found.moved_to.is_none() && found.topic_id.is_some())
        .filter_map(|(dir, found)| Some((partition_of(found, &by_name, known)?, dir)))
        .collect();
    each(found).find_map(|(dir, found)| {
        let id = partition_of(found, &by_name, known)?;
        let moved_to = found.moved_to.as_ref()?;
        let to = ids.get(&moved_to.directory_id)?;
        let dir_name = found.dir_name.clone();
        match (copies.contains(&(*to, &moved_to.copy)), replicas.get(&id)) {
            (true, None) => Some(Step::Stay { dir, dir_name }),
            (false, Some(&replica)) => Some(Step::Leave { dir, dir_name, replica }),
            // With a copy and a replica somebody has put one of them there.
            (true, Some(_)) | (false, None) => None,
        }
    })
}

/// Partitions of which there are only directories that say they were moved, and one of those.
pub fn held(found: &FoundDirs, known: &BTreeMap<Uuid, KnownTopic>, homes: &Homes) -> Homes {
    let by_name = super::by_name(known);
    let moved = each(found).filter(|(_, found)| found.moved_to.is_some());
    let held = moved.filter_map(|(dir, found)| Some((partition_of(found, &by_name, known)?, dir)));
    held.filter(|(id, _)| !homes.contains_key(id)).collect()
}

/// All directories that were found, with where they are.
pub fn each(found: &FoundDirs) -> impl Iterator<Item = (LogDirIndex, &FoundDir)> {
    found.iter().flat_map(|(dir, found)| found.iter().map(|found| (*dir, found)))
}

#[cfg(test)]
mod tests {
    use walser_machine::ids::TopicId;
    use walser_storage::data_dir::moved::MovedTo;
    use walser_storage::data_dir::partition::parse_dir_name;

    use super::*;

    const TOPIC_ID: Uuid = Uuid::from_bytes([1; 16]);

    fn dir(index: u16) -> LogDirIndex {
        LogDirIndex::new(index)
    }

    fn dir_id(index: u16) -> Uuid {
        Uuid::from_bytes([10 + u8::try_from(index).unwrap(); 16])
    }

    fn copy(number: u8) -> String {
        format!("t-0.{number:032x}-future")
    }

    fn found(name: &str, moved_to: Option<(u16, u8)>) -> FoundDir {
        let moved_to = moved_to.map(|(index, number)| MovedTo { directory_id: dir_id(index), copy: copy(number) });
        let name_parsed = parse_dir_name(name).unwrap();
        FoundDir {
            dir_name: name.to_owned(),
            name: name_parsed,
            topic_id: Some(TOPIC_ID),
            has_data: true,
            copying_to: moved_to.clone(),
            moved_to,
        }
    }

    #[test]
    fn every_row_of_the_table() {
        // Rule: the module's table, and what follows from one step after the other; what is away is no row of its own.
        let known = BTreeMap::from([(TOPIC_ID, KnownTopic { name: "t".to_owned(), partitions: BTreeSet::from([0]) })]);
        let id = PartitionId { topic_id: TopicId::from_wire(TOPIC_ID).unwrap(), index: 0 };
        let stay = |at| Some(Step::Stay { dir: dir(at), dir_name: "t-0".to_owned() });
        let leave = |at, to| Some(Step::Leave { dir: dir(at), dir_name: "t-0".to_owned(), replica: dir(to) });
        let (plain, moved) = (|| found("t-0", None), |to, number| found("t-0", Some((to, number))));
        let future = |number| found(&copy(number), None);
        // What lies in the directories 0, 1 and 2, of which there are those that are given.
        for (case, places, want, want_held) in [
            ("nothing was moved", vec![(0, vec![plain()]), (1, vec![future(1)])], None, None),
            ("the copy has not got the name", vec![(0, vec![moved(1, 1)]), (1, vec![future(1)])], stay(0), Some(0)),
            ("another copy is there", vec![(0, vec![moved(1, 1)]), (1, vec![future(2)])], None, Some(0)),
            (
                "a copy of that name elsewhere",
                vec![(0, vec![moved(1, 1)]), (1, vec![]), (2, vec![future(1)])],
                None,
                Some(0),
            ),
            ("it has got it", vec![(0, vec![moved(1, 1)]), (1, vec![plain()])], leave(0, 1), None),
            (
                "it has got it, and gone on",
                vec![(0, vec![moved(1, 1)]), (1, vec![]), (2, vec![plain()])],
                leave(0, 2),
                None,
            ),
            ("the newer one is away", vec![(0, vec![moved(1, 1)]), (1, vec![])], None, Some(0)),
            ("the other directory is away", vec![(0, vec![moved(1, 1)])], None, Some(0)),
            ("it is away, and the replica not", vec![(0, vec![moved(1, 1)]), (2, vec![plain()])], None, None),
            ("a chain", vec![(0, vec![moved(1, 1)]), (1, vec![moved(2, 2)]), (2, vec![future(2)])], stay(1), Some(1)),
        ] {
            let places: FoundDirs = places.into_iter().map(|(at, found)| (dir(at), found)).collect();
            let ids = places.keys().map(|at| (dir_id(u16::try_from(at.index()).unwrap()), *at)).collect();
            assert_eq!(next_step(&places, &known, &ids), want, "{case}");
            let log_dirs =
                crate::log_dirs::LogDirs::new(&["/no/a".into(), "/no/b".into(), "/no/c".into()], "/no/a".as_ref(), 0);
            let homes = super::super::find_homes(&places, &known, &log_dirs).unwrap();
            let held = held(&places, &known, &homes).get(&id).copied();
            assert_eq!(held, want_held.map(dir), "{case}");
            assert!(homes.contains_key(&id) != held.is_some(), "{case}");
        }
    }
}
