//! One member's step from what it has towards its target assignment.
//!
//! A partition has one owner at a time: a member gives up what the target does not give it, says so, and only then moves to the
//! target's epoch; what others have not given up yet it gets when they have.
//!
//! | state | it goes on when | to |
//! | --- | --- | --- |
//! | stable | there is a newer target | unrevoked, if it must give something up; else unreleased or stable in the new epoch |
//! | unrevoked | its heartbeat names none of what it must give up | as from stable, against the newest target |
//! | unreleased | at every heartbeat | stable, when nothing is missing any more |
//!
//! A change of its subscription takes topics away at once, whatever the target still says.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::member::{CurrentAssignment, EpochAssignment, MemberState};
use crate::group::assignor::Assignment;
use crate::ids::TopicId;

/// All that one step depends on.
pub struct Step<'a> {
    pub current: &'a CurrentAssignment,
    pub target_epoch: i32,
    pub target: &'a Assignment,
    /// Topics the member subscribes to and that exist.
    pub subscribed: &'a BTreeSet<TopicId>,
    pub subscription_changed: bool,
    /// What the member says it has; `None` where it did not say.
    pub owned: Option<&'a Assignment>,
    /// Whether a member of the group has the partition, or has not given it up.
    pub is_owned_by_any: &'a dyn Fn(TopicId, i32) -> bool,
}

/// The member's state is one this version does not know; without partitions it may start anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the member is in a state this broker does not know; it must give up its partitions and join again")]
pub struct UnknownState;

impl Step<'_> {
    /// The next state, or the same.
    pub fn next(&self) -> Result<CurrentAssignment, UnknownState> {
        let current = self.current;
        Ok(match current.state {
            MemberState::Stable if current.epoch != self.target_epoch => self.towards_target(current.epoch),
            MemberState::UnrevokedPartitions if !self.owns_any(&current.pending_revocation) => {
                self.towards_target(current.epoch)
            }
            MemberState::Stable | MemberState::UnrevokedPartitions if self.subscription_changed => {
                self.without_unsubscribed()
            }
            MemberState::Stable | MemberState::UnrevokedPartitions => current.clone(),
            MemberState::UnreleasedPartitions => self.towards_target(current.epoch),
            MemberState::Unknown if self.owned.is_some_and(Assignment::is_empty) => {
                self.towards_target(self.target_epoch)
            }
            MemberState::Unknown => return Err(UnknownState),
        })
    }

    /// A member that does not say what it has may have everything.
    fn owns_any(&self, partitions: &EpochAssignment) -> bool {
        let owned = |owned: &Assignment| {
            partitions.partitions().any(|(topic_id, partition_index)| owned.contains(topic_id, partition_index))
        };
        self.owned.is_none_or(owned)
    }

    /// Takes away topics that are not subscribed to any more; the rest waits for the next target.
    fn without_unsubscribed(&self) -> CurrentAssignment {
        let current = self.current;
        let gone = current.assigned.topics().map(|(topic_id, _)| topic_id);
        let gone: Vec<TopicId> = gone.filter(|topic_id| !self.subscribed.contains(topic_id)).collect();
        if gone.is_empty() {
            return current.clone();
        }
        let mut next = CurrentAssignment { previous_epoch: current.epoch, ..current.clone() };
        let mut pending_revocation = current.pending_revocation.clone();
        for topic_id in gone {
            if let Some(partitions) = next.assigned.remove_topic(topic_id) {
                pending_revocation.insert_topic(topic_id, partitions);
            }
        }
        if self.owns_any(&pending_revocation) {
            next.state = MemberState::UnrevokedPartitions;
            next.pending_revocation = pending_revocation;
        }
        next
    }

    fn towards_target(&self, epoch: i32) -> CurrentAssignment {
        let Difference { mut kept, revoked, added, unreleased } = self.difference();
        if !revoked.is_empty() && self.owns_any(&revoked) {
            return CurrentAssignment {
                epoch,
                previous_epoch: self.current.epoch,
                state: MemberState::UnrevokedPartitions,
                assigned: kept,
                pending_revocation: revoked,
            };
        }
        for (topic_id, partition_index) in added {
            kept.insert(topic_id, partition_index, self.target_epoch);
        }
        CurrentAssignment {
            epoch: self.target_epoch,
            previous_epoch: self.current.epoch,
            state: if unreleased { MemberState::UnreleasedPartitions } else { MemberState::Stable },
            assigned: kept,
            pending_revocation: EpochAssignment::default(),
        }
    }

    fn difference(&self) -> Difference {
        let mut difference = Difference::default();
        let nothing = BTreeSet::new();
        let target = |topic_id: TopicId| {
            let subscribed = self.subscribed.contains(&topic_id);
            self.target.topic(topic_id).filter(|_| subscribed).unwrap_or(&nothing)
        };
        for (topic_id, partitions) in self.current.assigned.topics() {
            let target = target(topic_id);
            let (kept, revoked): (BTreeMap<i32, i32>, BTreeMap<i32, i32>) =
                partitions.iter().map(|(index, epoch)| (*index, *epoch)).partition(|(index, _)| target.contains(index));
            difference.kept.insert_topic(topic_id, kept);
            difference.revoked.insert_topic(topic_id, revoked);
        }
        for (topic_id, _) in self.target.topics() {
            for partition_index in target(topic_id) {
                if self.current.assigned.contains(topic_id, *partition_index) {
                    continue;
                }
                // What this member itself has yet to give up is not somebody else's.
                let own = self.current.pending_revocation.contains(topic_id, *partition_index);
                if own || !(self.is_owned_by_any)(topic_id, *partition_index) {
                    difference.added.push((topic_id, *partition_index));
                } else {
                    difference.unreleased = true;
                }
            }
        }
        difference
    }
}

/// What sets a member apart from its target.
#[derive(Default)]
struct Difference {
    kept: EpochAssignment,
    revoked: EpochAssignment,
    added: Vec<(TopicId, i32)>,
    /// Whether partitions of the target are still with others.
    unreleased: bool,
}
