//! Why a consumer group refuses a request.

use std::sync::Arc;

use thiserror::Error;
use walser_protocol::ErrorCode;

use super::reconcile::UnknownState;
use super::regex::InvalidRegex;
use crate::group::assignor::AssignorError;
use crate::group::output::AppendRefused;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConsumerGroupError {
    #[error("{0}")]
    InvalidRequest(&'static str),
    #[error("assignor `{name}` is not one of those this broker has: {supported}")]
    UnsupportedAssignor { name: String, supported: String },
    #[error("Group {group_id} not found.")]
    GroupIdNotFound { group_id: String },
    #[error("group `{group_id}` cannot become a consumer group: {reason}")]
    CannotUpgrade { group_id: String, reason: &'static str },
    #[error("the group has as many members as it may have, {max}")]
    GroupMaxSizeReached { max: i32 },
    #[error("`{member_id}` is no member of the group")]
    UnknownMemberId { member_id: String },
    #[error("no member has the instance id `{instance_id}`")]
    UnknownInstanceId { instance_id: String },
    #[error("the member is in epoch {known}, not {given}; it must give up its partitions and join again")]
    FencedMemberEpoch { given: i32, known: i32 },
    #[error(transparent)]
    UnknownState(#[from] UnknownState),
    #[error("member {owner} has the instance id `{instance_id}` and has not left")]
    UnreleasedInstanceId { instance_id: String, owner: Arc<str> },
    #[error("member {owner} has the instance id `{instance_id}`")]
    FencedInstanceId { instance_id: String, owner: Arc<str> },
    #[error(transparent)]
    InvalidRegex(#[from] InvalidRegex),
    #[error("no target assignment: {0}")]
    Assignor(#[from] AssignorError),
    #[error("the decision cannot be logged: {0}")]
    NotLogged(AppendRefused),
    #[error("member epoch {given} does not allow it: {reason}")]
    StaleMemberEpoch { given: i32, reason: &'static str },
    #[error("generation {given} does not allow it: {reason}")]
    IllegalGeneration { given: i32, reason: &'static str },
    #[error("members of the consumer protocol need a newer version of the request")]
    UnsupportedVersion,
    #[error("the protocols of the member do not fit those of the group")]
    InconsistentGroupProtocol,
    #[error("the member is to join with the id `{member_id}`")]
    MemberIdRequired { member_id: String },
    #[error("a rebalance is in progress")]
    RebalanceInProgress,
    #[error("the member does not use the classic protocol")]
    NotClassic,
}

impl From<&ConsumerGroupError> for ErrorCode {
    fn from(error: &ConsumerGroupError) -> Self {
        match error {
            ConsumerGroupError::InvalidRequest(_) => Self::InvalidRequest,
            ConsumerGroupError::UnsupportedAssignor { .. } => Self::UnsupportedAssignor,
            ConsumerGroupError::GroupIdNotFound { .. } | ConsumerGroupError::CannotUpgrade { .. } => {
                Self::GroupIdNotFound
            }
            ConsumerGroupError::GroupMaxSizeReached { .. } => Self::GroupMaxSizeReached,
            ConsumerGroupError::UnknownMemberId { .. }
            | ConsumerGroupError::UnknownInstanceId { .. }
            | ConsumerGroupError::NotClassic => Self::UnknownMemberId,
            ConsumerGroupError::FencedMemberEpoch { .. } | ConsumerGroupError::UnknownState(_) => {
                Self::FencedMemberEpoch
            }
            ConsumerGroupError::UnreleasedInstanceId { .. } => Self::UnreleasedInstanceId,
            ConsumerGroupError::FencedInstanceId { .. } => Self::FencedInstanceId,
            ConsumerGroupError::InvalidRegex(_) => Self::InvalidRegularExpression,
            ConsumerGroupError::Assignor(_) => Self::UnknownServerError,
            ConsumerGroupError::NotLogged(refused) => Self::from(*refused),
            ConsumerGroupError::StaleMemberEpoch { .. } => Self::StaleMemberEpoch,
            ConsumerGroupError::IllegalGeneration { .. } => Self::IllegalGeneration,
            ConsumerGroupError::UnsupportedVersion => Self::UnsupportedVersion,
            ConsumerGroupError::MemberIdRequired { .. } => Self::MemberIdRequired,
            ConsumerGroupError::InconsistentGroupProtocol => Self::InconsistentGroupProtocol,
            ConsumerGroupError::RebalanceInProgress => Self::RebalanceInProgress,
        }
    }
}
