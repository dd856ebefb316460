//! What is on disk held against what the metadata knows. Pure: decides, does nothing.
//!
//! | directory | metadata | decision |
//! | --- | --- | --- |
//! | partition, id known with this name and partition | | keep |
//! | partition without id | name and partition known | take over: made or copied only in half |
//! | partition without id, without data | unknown | delete: half made, and the topic is gone |
//! | partition without id, with data | unknown | put aside |
//! | partition, id unknown or of another name | name may be known under another id | put aside |
//! | partition, id known, partition not | | put aside |
//! | `-delete` | | delete |
//! | `-stray`, `-future` | | leave |

use std::collections::{BTreeMap, BTreeSet};

use walser_protocol::types::Uuid;

use super::partition::{DELETE_SUFFIX, DirKind, FoundDir, STRAY_SUFFIX, aside_name};

/// A topic as far as this broker has replicas of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTopic {
    pub name: String,
    pub partitions: BTreeSet<i32>,
}

/// What is to be done with one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A live partition.
    Open { topic_id: Uuid },
    /// A live partition once its topic id is written.
    TakeOver { topic_id: Uuid },
    /// Rename, report and leave to the operator.
    PutAside { new_name: String, reason: StrayReason },
    /// Rename and remove; without a new name: remove what was renamed before.
    Delete { new_name: Option<String> },
    /// Put aside earlier, or somebody else's to decide.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayReason {
    /// Nobody knows the topic.
    UnknownTopic,
    /// The topic was deleted and made again: the name lives on under another id.
    OldTopicId,
    /// The topic is known, but has no such partition here.
    UnknownPartition,
}

/// One decision per directory, in the order given. `unique` makes names that were never used.
pub fn plan_directories(
    found: &[FoundDir],
    known: &BTreeMap<Uuid, KnownTopic>,
    mut unique: impl FnMut() -> u128,
) -> Vec<Decision> {
    let ids_by_name: BTreeMap<&str, Uuid> = known.iter().map(|(&id, topic)| (topic.name.as_str(), id)).collect();
    let decide = |dir: &FoundDir| match dir.name.kind {
        DirKind::Deleted => Decision::Delete { new_name: None },
        // Whoever knows where the partition is decides about its copy.
        DirKind::Stray | DirKind::Future => Decision::Leave,
        DirKind::Partition => decide_partition(dir, known, &ids_by_name, &mut unique),
    };
    found.iter().map(decide).collect()
}

fn decide_partition(
    dir: &FoundDir,
    known: &BTreeMap<Uuid, KnownTopic>,
    ids_by_name: &BTreeMap<&str, Uuid>,
    unique: &mut impl FnMut() -> u128,
) -> Decision {
    let (topic, partition) = (dir.name.topic.as_str(), dir.name.partition);
    let by_name = ids_by_name.get(topic).copied();
    let has_partition = |id: Uuid| known.get(&id).is_some_and(|known| known.partitions.contains(&partition));
    let mut put_aside = |reason| {
        let new_name = aside_name(topic, partition, unique(), STRAY_SUFFIX);
        Decision::PutAside { new_name, reason }
    };
    match (dir.topic_id, by_name) {
        (Some(id), Some(current)) if id == current && has_partition(id) => Decision::Open { topic_id: id },
        (Some(id), Some(current)) if id == current => put_aside(StrayReason::UnknownPartition),
        (Some(_), Some(_)) => put_aside(StrayReason::OldTopicId),
        (Some(_), None) => put_aside(StrayReason::UnknownTopic),
        (None, Some(current)) if has_partition(current) => Decision::TakeOver { topic_id: current },
        (None, _) if !dir.has_data => {
            Decision::Delete { new_name: Some(aside_name(topic, partition, unique(), DELETE_SUFFIX)) }
        }
        (None, Some(_)) => put_aside(StrayReason::UnknownPartition),
        (None, None) => put_aside(StrayReason::UnknownTopic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::partition::parse_dir_name;

    #[test]
    fn every_directory_is_settled() {
        // Nothing with data in it is ever deleted unless the metadata did so before.
        let id = |n| Uuid::from_bytes([n; 16]);
        let topic = KnownTopic { name: "a".to_owned(), partitions: BTreeSet::from([0, 1]) };
        let known = BTreeMap::from([(id(1), topic)]);
        let hex = "0".repeat(32);
        let aside = |name: &str, reason| Decision::PutAside { new_name: format!("{name}.{hex}-stray"), reason };
        for (name, topic_id, has_data, want) in [
            ("a-0".to_owned(), Some(id(1)), true, Decision::Open { topic_id: id(1) }),
            ("a-1".to_owned(), None, true, Decision::TakeOver { topic_id: id(1) }),
            ("a-0".to_owned(), Some(id(2)), true, aside("a-0", StrayReason::OldTopicId)),
            ("a-2".to_owned(), Some(id(1)), true, aside("a-2", StrayReason::UnknownPartition)),
            ("b-0".to_owned(), Some(id(1)), true, aside("b-0", StrayReason::UnknownTopic)),
            ("b-0".to_owned(), None, true, aside("b-0", StrayReason::UnknownTopic)),
            ("b-0".to_owned(), None, false, Decision::Delete { new_name: Some(format!("b-0.{hex}-delete")) }),
            (format!("a-0.{hex}-delete"), Some(id(1)), true, Decision::Delete { new_name: None }),
            (format!("a-0.{hex}-stray"), Some(id(1)), true, Decision::Leave),
            (format!("a-0.{hex}-future"), Some(id(1)), true, Decision::Leave),
        ] {
            let parsed = parse_dir_name(&name).expect("a partition's name");
            let found =
                FoundDir { dir_name: name.clone(), name: parsed, topic_id, has_data, moved_to: None, copying_to: None };
            assert_eq!(plan_directories(&[found], &known, || 0), [want], "{name} {topic_id:?} {has_data}");
        }
    }
}
