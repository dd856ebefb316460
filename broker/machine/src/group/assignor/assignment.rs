//! Partitions of topics, as an assignor reads and writes them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TopicId;

/// Partitions by topic, both in ascending order. No topic is listed without a partition, so two equal sets are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment(BTreeMap<TopicId, BTreeSet<i32>>);

impl Assignment {
    /// False if it was there already.
    pub fn insert(&mut self, topic_id: TopicId, partition_index: i32) -> bool {
        self.0.entry(topic_id).or_default().insert(partition_index)
    }

    pub fn insert_topic(&mut self, topic_id: TopicId, partition_indexes: BTreeSet<i32>) {
        if !partition_indexes.is_empty() {
            self.0.insert(topic_id, partition_indexes);
        }
    }

    /// False if it was not there.
    pub fn remove(&mut self, topic_id: TopicId, partition_index: i32) -> bool {
        let Some(partition_indexes) = self.0.get_mut(&topic_id) else { return false };
        let removed = partition_indexes.remove(&partition_index);
        if partition_indexes.is_empty() {
            self.0.remove(&topic_id);
        }
        removed
    }

    pub fn contains(&self, topic_id: TopicId, partition_index: i32) -> bool {
        self.0.get(&topic_id).is_some_and(|partition_indexes| partition_indexes.contains(&partition_index))
    }

    /// Partitions of one topic.
    pub fn topic(&self, topic_id: TopicId) -> Option<&BTreeSet<i32>> {
        self.0.get(&topic_id)
    }

    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &BTreeSet<i32>)> {
        self.0.iter().map(|(topic_id, partition_indexes)| (*topic_id, partition_indexes))
    }

    pub fn partitions(&self) -> impl Iterator<Item = (TopicId, i32)> {
        self.topics().flat_map(|(topic_id, indexes)| indexes.iter().map(move |index| (topic_id, *index)))
    }

    /// Counted in partitions.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(TopicId, i32)> for Assignment {
    fn from_iter<I: IntoIterator<Item = (TopicId, i32)>>(partitions: I) -> Self {
        let mut assignment = Self::default();
        for (topic_id, partition_index) in partitions {
            assignment.insert(topic_id, partition_index);
        }
        assignment
    }
}
