//! A member of a consumer group: what it asked for and where it stands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::group::assignor::Assignment;
use crate::ids::TopicId;

/// The member epoch of a request that leaves the group.
pub const LEAVE_EPOCH: i32 = -1;
/// The member epoch of a static member that will be back: it keeps its partitions for its session.
pub const STATIC_LEAVE_EPOCH: i32 = -2;

/// One member. Cheap to copy: all that may be large is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub member_id: Arc<str>,
    pub subscription: Subscription,
    pub current: CurrentAssignment,
}

impl Member {
    /// One that has asked for nothing yet.
    pub fn new(member_id: Arc<str>) -> Self {
        Self { member_id, subscription: Subscription::default(), current: CurrentAssignment::default() }
    }

    pub fn uses_classic_protocol(&self) -> bool {
        self.subscription.classic.is_some()
    }
}

/// What a member asked for; a record of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub instance_id: Option<Arc<str>>,
    pub rack_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub topic_names: Arc<BTreeSet<Arc<str>>>,
    /// May be the empty string, which says as little as `None`; see [`Self::regex`].
    pub topic_regex: Option<Arc<str>>,
    /// How long the member may take to give up partitions; -1 before it said so.
    pub rebalance_timeout_ms: i32,
    pub server_assignor: Option<Arc<str>>,
    /// Of a member that speaks the classic protocol.
    pub classic: Option<Arc<ClassicMember>>,
}

impl Default for Subscription {
    fn default() -> Self {
        Self {
            instance_id: None,
            rack_id: None,
            client_id: "".into(),
            client_host: "".into(),
            topic_names: Arc::default(),
            topic_regex: Some("".into()),
            rebalance_timeout_ms: -1,
            server_assignor: None,
            classic: None,
        }
    }
}

impl Subscription {
    /// The regular expression, if there is one.
    pub fn regex(&self) -> Option<&Arc<str>> {
        self.topic_regex.as_ref().filter(|regex| !regex.is_empty())
    }
}

/// What only members of the classic protocol have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassicMember {
    pub session_timeout_ms: i32,
    /// In the order of preference.
    pub protocols: Vec<ClassicProtocol>,
}

/// A client-side assignor and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicProtocol {
    pub name: Arc<str>,
    pub metadata: Bytes,
}

/// Where a member stands between what it had and what it shall have; a record of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentAssignment {
    pub epoch: i32,
    /// The epoch before the last change: a member whose answer was lost still names it.
    pub previous_epoch: i32,
    pub state: MemberState,
    pub assigned: EpochAssignment,
    /// What the member was told to give up and has not yet said to have given up.
    pub pending_revocation: EpochAssignment,
}

impl Default for CurrentAssignment {
    fn default() -> Self {
        Self {
            epoch: 0,
            previous_epoch: -1,
            state: MemberState::Stable,
            assigned: EpochAssignment::default(),
            pending_revocation: EpochAssignment::default(),
        }
    }
}

impl CurrentAssignment {
    /// Whether the member has all that the target assignment of this epoch gives it, and nothing else.
    pub fn is_reconciled_to(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == target_epoch
    }

    /// All that the member may be reading.
    pub fn held(&self) -> impl Iterator<Item = (TopicId, i32)> {
        self.assigned.partitions().chain(self.pending_revocation.partitions())
    }

    /// The same partitions, held by a static member that has gone for a while: who comes back may commit for all of them.
    pub fn left_for_a_while(&self) -> Self {
        Self {
            epoch: STATIC_LEAVE_EPOCH,
            assigned: self.assigned.with_epoch(0),
            pending_revocation: EpochAssignment::default(),
            ..self.clone()
        }
    }
}

/// Number in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Has what the target assignment of its epoch gives it.
    Stable,
    /// Has not given up all that it must, and stays in its epoch until then.
    UnrevokedPartitions,
    /// Waits for partitions that others have not given up.
    UnreleasedPartitions,
    /// Written by a version that knows more states.
    Unknown,
}

impl MemberState {
    pub const fn number(self) -> i8 {
        match self {
            Self::Stable => 0,
            Self::UnrevokedPartitions => 1,
            Self::UnreleasedPartitions => 2,
            Self::Unknown => 127,
        }
    }

    pub const fn from_number(number: i8) -> Self {
        match number {
            0 => Self::Stable,
            1 => Self::UnrevokedPartitions,
            2 => Self::UnreleasedPartitions,
            _ => Self::Unknown,
        }
    }
}

/// Partitions with the epoch in which their member got each of them (KIP-1251). Shared until changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochAssignment(Arc<BTreeMap<TopicId, BTreeMap<i32, i32>>>);

impl EpochAssignment {
    pub fn insert(&mut self, topic_id: TopicId, partition_index: i32, epoch: i32) {
        Arc::make_mut(&mut self.0).entry(topic_id).or_default().insert(partition_index, epoch);
    }

    pub fn insert_topic(&mut self, topic_id: TopicId, partitions: BTreeMap<i32, i32>) {
        if !partitions.is_empty() {
            Arc::make_mut(&mut self.0).entry(topic_id).or_default().extend(partitions);
        }
    }

    pub fn remove_topic(&mut self, topic_id: TopicId) -> Option<BTreeMap<i32, i32>> {
        self.0.get(&topic_id)?;
        Arc::make_mut(&mut self.0).remove(&topic_id)
    }

    /// The epoch in which the partition was assigned.
    pub fn epoch(&self, topic_id: TopicId, partition_index: i32) -> Option<i32> {
        self.0.get(&topic_id)?.get(&partition_index).copied()
    }

    pub fn contains(&self, topic_id: TopicId, partition_index: i32) -> bool {
        self.epoch(topic_id, partition_index).is_some()
    }

    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &BTreeMap<i32, i32>)> {
        self.0.iter().map(|(topic_id, partitions)| (*topic_id, partitions))
    }

    pub fn partitions(&self) -> impl Iterator<Item = (TopicId, i32)> {
        self.topics().flat_map(|(topic_id, indexes)| indexes.keys().map(move |index| (topic_id, *index)))
    }

    /// The same partitions, all of one epoch.
    pub fn with_epoch(&self, epoch: i32) -> Self {
        Self::from_assignment(&self.without_epochs(), epoch)
    }

    pub fn from_assignment(assignment: &Assignment, epoch: i32) -> Self {
        let topic = |(topic_id, indexes): (TopicId, &BTreeSet<i32>)| {
            (topic_id, indexes.iter().map(|index| (*index, epoch)).collect())
        };
        Self(Arc::new(assignment.topics().map(topic).collect()))
    }

    pub fn without_epochs(&self) -> Assignment {
        self.partitions().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
