//! A group of either protocol, and what offsets, listings and deletions ask of both.

use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::classic::ClassicGroup;
use super::consumer::ConsumerGroup;
use super::consumer::leave::tombstones;
use super::context::Context;
use super::record::{GroupRecord, OffsetCommitValue};
use super::reply::ListedGroup;
use crate::ids::TopicId;

/// One group.
#[derive(Clone, Debug)]
pub(super) enum Group {
    /// Rebalances by JoinGroup and SyncGroup, or has no members at all: a simple group, that only keeps offsets.
    Classic(ClassicGroup),
    /// Reconciles by ConsumerGroupHeartbeat (KIP-848).
    Consumer(ConsumerGroup),
}

/// From when on the retention of an offset counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiresFrom {
    Commit,
    /// Wall-clock time, in milliseconds.
    Time(i64),
}

/// Who wants to commit, as the request says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Committer<'c> {
    pub(super) api_version: i16,
    pub(super) member_id: &'c str,
    pub(super) group_instance_id: Option<&'c str>,
    pub(super) generation_id_or_member_epoch: i32,
    pub(super) is_transactional: bool,
}

impl Group {
    /// Kafka's name of the protocol, as ListGroups has it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Classic(_) => "classic",
            Self::Consumer(_) => "consumer",
        }
    }

    pub(super) fn state_name(&self) -> &'static str {
        match self {
            Self::Classic(group) => group.state().name(),
            Self::Consumer(group) => group.state().name(),
        }
    }

    pub(super) fn protocol_type(&self) -> &str {
        match self {
            Self::Classic(group) => group.protocol_type().unwrap_or_default(),
            Self::Consumer(_) => super::CONSUMER_PROTOCOL_TYPE,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty(),
            Self::Consumer(group) => group.is_empty(),
        }
    }

    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        match self {
            Self::Classic(group) => group.is_subscribed_to(topic),
            Self::Consumer(group) => group.is_subscribed_to(topic),
        }
    }

    /// `None`: no offset of the group expires now.
    pub(super) fn offsets_expire_from(&self) -> Option<ExpiresFrom> {
        match self {
            Self::Classic(group) => group.offsets_expire_from(),
            Self::Consumer(_) => Some(ExpiresFrom::Commit),
        }
    }

    /// Whether a group may be deleted at an admin's word.
    pub(super) fn validate_delete(&self) -> Result<(), ErrorCode> {
        if self.is_empty() { Ok(()) } else { Err(ErrorCode::NonEmptyGroup) }
    }

    /// Whether offsets of topics that nobody is subscribed to may be deleted at an admin's word.
    pub(super) fn validate_offset_delete(&self) -> Result<(), ErrorCode> {
        match self {
            Self::Classic(group) if !group.is_empty() && !group.uses_consumer_protocol() => {
                Err(ErrorCode::NonEmptyGroup)
            }
            Self::Classic(_) | Self::Consumer(_) => Ok(()),
        }
    }

    pub(super) fn validate_offset_commit(&self, committer: &Committer<'_>) -> Result<(), ErrorCode> {
        match self {
            Self::Classic(group) => group.validate_offset_commit(committer),
            Self::Consumer(group) => match group.verify_offset_commit(committer) {
                Ok(_) => Ok(()),
                Err(error) => Err(ErrorCode::from(&error)),
            },
        }
    }

    /// Whether a committer that was let pass may commit for one partition.
    pub(super) fn validate_committed_partition(
        &self,
        committer: &Committer<'_>,
        topic_id: Uuid,
        partition_index: i32,
    ) -> Result<(), ErrorCode> {
        let Self::Consumer(group) = self else { return Ok(()) };
        let permit = group.verify_offset_commit(committer);
        let verified = permit.and_then(|permit| permit.verify(TopicId::from_wire(topic_id), partition_index));
        verified.map_err(|error| ErrorCode::from(&error))
    }

    pub(super) fn validate_offset_fetch(&self, member_id: Option<&str>, member_epoch: i32) -> Result<(), ErrorCode> {
        match self {
            Self::Classic(_) => Ok(()),
            Self::Consumer(group) => {
                group.verify_offset_fetch(member_id, member_epoch).map_err(|error| ErrorCode::from(&error))
            }
        }
    }

    /// Records that remove the group; its offsets are another matter.
    pub(super) fn tombstones(&self, group_id: &str) -> Vec<GroupRecord> {
        match self {
            Self::Classic(_) => vec![GroupRecord::GroupMetadata { group_id: group_id.to_owned(), value: None }],
            Self::Consumer(group) => tombstones(group).iter().map(|change| change.to_record(group_id)).collect(),
        }
    }

    pub(super) fn cancel_timers(&mut self, context: &mut Context<'_>) {
        match self {
            Self::Classic(group) => group.cancel_timers(context),
            Self::Consumer(group) => group.cancel_timers(context),
        }
    }

    pub(super) fn list(&self, group_id: &str) -> ListedGroup {
        ListedGroup {
            group_id: group_id.to_owned(),
            protocol_type: self.protocol_type().to_owned(),
            group_state: self.state_name().to_owned(),
            group_type: self.type_name().to_owned(),
        }
    }
}

impl ExpiresFrom {
    pub(super) fn is_expired(self, committed: &OffsetCommitValue, now_ms: i64, retention_ms: i64) -> bool {
        if let Some(expire_timestamp_ms) = committed.expire_timestamp_ms {
            return now_ms >= expire_timestamp_ms;
        }
        let from_ms = match self {
            Self::Commit => committed.commit_timestamp_ms,
            Self::Time(from_ms) => from_ms,
        };
        now_ms.saturating_sub(from_ms) >= retention_ms
    }
}
