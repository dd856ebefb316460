//! Who may commit offsets for a consumer group and read them.
//!
//! A member commits with its epoch. With an older one it may still commit for partitions it has had since then (KIP-1251): the
//! answer that told it of the newer epoch may not have arrived, and nobody else can have had them meanwhile.

use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::member::Member;
use crate::group::state::Committer;
use crate::ids::TopicId;

/// The first version of OffsetCommit with which a member of the consumer protocol may commit.
const MEMBER_EPOCH_VERSION: i16 = 9;

/// What a committer may commit for.
#[derive(Clone, Copy, Debug)]
pub enum CommitPermit<'a> {
    All,
    /// Partitions the member got in this epoch or before.
    AssignedBy {
        member: &'a Member,
        epoch: i32,
    },
}

impl CommitPermit<'_> {
    /// Whether it holds for one partition. A topic that does not exist is assigned to nobody.
    pub fn verify(&self, topic_id: Option<TopicId>, partition_index: i32) -> Result<(), ConsumerGroupError> {
        let Self::AssignedBy { member, epoch } = self else { return Ok(()) };
        let current = &member.current;
        let assigned_in = topic_id.and_then(|topic_id| {
            let pending = || current.pending_revocation.epoch(topic_id, partition_index);
            current.assigned.epoch(topic_id, partition_index).or_else(pending)
        });
        match assigned_in {
            None => Err(refused(member, *epoch, "the partition is not the member's")),
            Some(assigned_in) if *epoch < assigned_in => {
                Err(refused(member, *epoch, "the member got the partition in a later one"))
            }
            Some(_) => Ok(()),
        }
    }
}

impl ConsumerGroup {
    pub fn verify_offset_commit(&self, committer: &Committer<'_>) -> Result<CommitPermit<'_>, ConsumerGroupError> {
        let epoch = committer.generation_id_or_member_epoch;
        let is_admin = epoch < 0 && self.is_empty();
        // A producer that does not say for which member it commits.
        let is_old_producer = committer.is_transactional
            && epoch == -1
            && committer.member_id.is_empty()
            && committer.group_instance_id.is_none();
        if is_admin || is_old_producer {
            return Ok(CommitPermit::All);
        }
        let member = self.known_member(committer.member_id)?;
        let is_new_enough = committer.is_transactional || committer.api_version >= MEMBER_EPOCH_VERSION;
        if !is_new_enough && !member.uses_classic_protocol() {
            return Err(ConsumerGroupError::UnsupportedVersion);
        }
        if epoch == member.current.epoch {
            Ok(CommitPermit::All)
        } else if epoch > member.current.epoch {
            Err(refused(member, epoch, "the member is in an earlier one"))
        } else {
            Ok(CommitPermit::AssignedBy { member, epoch })
        }
    }

    pub fn verify_offset_fetch(&self, member_id: Option<&str>, member_epoch: i32) -> Result<(), ConsumerGroupError> {
        if member_id.is_none() && member_epoch < 0 {
            return Ok(());
        }
        let member = self.known_member(member_id.unwrap_or_default())?;
        if member.current.epoch == member_epoch {
            Ok(())
        } else {
            Err(refused(member, member_epoch, "the member is in another one"))
        }
    }

    fn known_member(&self, member_id: &str) -> Result<&Member, ConsumerGroupError> {
        let unknown = || ConsumerGroupError::UnknownMemberId { member_id: member_id.to_owned() };
        self.member(member_id).ok_or_else(unknown)
    }
}

/// In the words of the protocol the member speaks.
fn refused(member: &Member, given: i32, reason: &'static str) -> ConsumerGroupError {
    if member.uses_classic_protocol() {
        ConsumerGroupError::IllegalGeneration { given, reason }
    } else {
        ConsumerGroupError::StaleMemberEpoch { given, reason }
    }
}
