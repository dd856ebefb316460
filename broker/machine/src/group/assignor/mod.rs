//! Who of a group gets which partitions: the assignors a broker has for groups of the consumer protocol (KIP-848).
//!
//! Pure functions. Members are walked in the order given, which is that of their ids, topics by id, partitions by index, so the
//! same input gives the same assignment on every broker. Racks are not looked at, as in Kafka 4.4.
//!
//! | assignor | spreads | keeps |
//! | --- | --- | --- |
//! | `uniform` | all partitions evenly over the members | every partition that need not move for that |
//! | `range` | each topic evenly, in contiguous ranges, the same indexes of all topics to the same member | nothing |

mod assignment;
mod range;
mod uniform;
mod uniform_mixed;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

pub use assignment::Assignment;

use crate::ids::TopicId;

/// The assignors by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assignor {
    Uniform,
    Range,
}

impl Assignor {
    pub const ALL: &'static [Self] = &[Self::Uniform, Self::Range];

    /// As in `group.consumer.assignors` and in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|assignor| assignor.name() == name)
    }

    /// One assignment per member, in the same order. Every partition of every topic that somebody subscribes to is in exactly one.
    pub fn assign(self, group: &GroupSpec<'_>) -> Result<Vec<Assignment>, AssignorError> {
        group.verify_topics()?;
        Ok(match self {
            Self::Range => range::assign(group),
            Self::Uniform if group.is_homogeneous() => uniform::assign(group),
            Self::Uniform => uniform_mixed::assign(group),
        })
    }
}

/// What an assignor knows of a group.
#[derive(Clone, Debug)]
pub struct GroupSpec<'a> {
    /// In ascending order of member ids, each once.
    pub members: Vec<MemberSpec<'a>>,
    /// How many partitions each topic has.
    pub partition_counts: BTreeMap<TopicId, usize>,
}

/// What an assignor knows of a member.
#[derive(Clone, Debug)]
pub struct MemberSpec<'a> {
    pub member_id: &'a str,
    /// Of a static member.
    pub instance_id: Option<&'a str>,
    pub subscribed_topic_ids: &'a BTreeSet<TopicId>,
    /// What the last assignment gave it.
    pub assigned: &'a Assignment,
}

/// Why nothing was assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AssignorError {
    #[error("a member subscribes to topic {topic_id}, whose partitions are not known")]
    UnknownTopic { topic_id: TopicId },
}

impl GroupSpec<'_> {
    fn verify_topics(&self) -> Result<(), AssignorError> {
        let mut seen: Option<&BTreeSet<TopicId>> = None;
        for member in &self.members {
            let topic_ids = member.subscribed_topic_ids;
            // Members of one group share their subscription more often than not.
            if seen.is_some_and(|seen| std::ptr::eq(seen, topic_ids)) {
                continue;
            }
            if let Some(topic_id) = topic_ids.iter().find(|topic_id| !self.partition_counts.contains_key(topic_id)) {
                return Err(AssignorError::UnknownTopic { topic_id: *topic_id });
            }
            seen = Some(topic_ids);
        }
        Ok(())
    }

    /// Whether all members subscribe to the same topics.
    fn is_homogeneous(&self) -> bool {
        let mut subscriptions = self.members.iter().map(|member| member.subscribed_topic_ids);
        let Some(first) = subscriptions.next() else { return true };
        subscriptions.all(|other| std::ptr::eq(first, other) || first == other)
    }

    fn partition_count(&self, topic_id: TopicId) -> usize {
        self.partition_counts.get(&topic_id).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
