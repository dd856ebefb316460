//! What holds of every group after every replayed command.

use std::collections::BTreeSet;

use super::ConsumerGroup;
use crate::group::consumer::member::STATIC_LEAVE_EPOCH;

impl ConsumerGroup {
    /// Panics where an invariant does not hold.
    pub fn verify(&self) {
        let mut rebuilt = Self::new(self.group_id.clone());
        let mut owned = BTreeSet::new();
        for member in self.members.values() {
            for partition in member.current.held() {
                assert!(owned.insert(partition), "{partition:?} is owned twice, also by {}", member.member_id);
            }
            let epoch = member.current.epoch;
            assert!(epoch <= self.group_epoch.epoch, "member {} is ahead of its group", member.member_id);
            assert!(epoch >= 0 || epoch == STATIC_LEAVE_EPOCH, "member {} has gone and is here", member.member_id);
            rebuilt.count_subscription(member);
            rebuilt.count_owned(member);
        }
        assert!(self.target_epoch.epoch <= self.group_epoch.epoch);
        assert_eq!(self.owners, rebuilt.owners);
        assert_eq!(self.static_members, rebuilt.static_members);
        assert_eq!(self.name_counts, rebuilt.name_counts);
        assert_eq!(self.regex_counts, rebuilt.regex_counts);
        assert_eq!(self.assignor_counts, rebuilt.assignor_counts);
        assert_eq!(self.classic_member_count, rebuilt.classic_member_count);
        assert_eq!(self.classic_protocol_counts, rebuilt.classic_protocol_counts);
        let mut targeted = BTreeSet::new();
        for (member_id, target) in &self.targets {
            assert!(self.members.contains_key(member_id), "{member_id} is no member and has a target assignment");
            for partition in target.partitions() {
                assert!(targeted.insert(partition), "{partition:?} is targeted twice, also at {member_id}");
            }
        }
    }

    /// Whether records say the same of both; what is soft does not count.
    pub fn is_same(&self, other: &Self) -> bool {
        let state =
            |group: &Self| (group.group_epoch, group.target_epoch, group.has_partition_metadata, group.regexes.clone());
        state(self) == state(other) && self.members == other.members && self.targets == other.targets
    }
}
