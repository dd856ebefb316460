//! SyncGroup, versions 0 to 5: the leader hands out assignments, members fetch theirs.
//!
//! Answered when the leader's has come; the connection waits meanwhile. From version 5 on the member names the protocol it believes
//! in (KIP-559).

use bytes::Bytes;
use walser_machine::group::Command;
use walser_machine::group::command::{MemberAssignment, SyncGroup};
use walser_machine::group::reply::SyncGroupReply;
use walser_protocol::ErrorCode;
use walser_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};

use super::groups::reply_as;
use super::{Frame, HandlerOutcome, RequestContext};

/// First version that names a protocol.
const PROTOCOL_FROM: i16 = 5;

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match SyncGroupRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let is_named = request.protocol_type.is_some() && request.protocol_name.is_some();
    if context.version >= PROTOCOL_FROM && !is_named {
        return answer(&context, &SyncGroupReply::failed(ErrorCode::InconsistentGroupProtocol));
    }
    let sync = command(&request);
    let group_id = sync.group_id.clone();
    drop(request);
    drop(frame);
    match context.ask_coordinator_once(&group_id, Command::SyncGroup(sync)).await {
        Ok(reply) => answer(&context, &reply_as!(SyncGroup, reply)),
        Err(error) => answer(&context, &SyncGroupReply::failed(error)),
    }
}

fn command(request: &SyncGroupRequest<'_>) -> SyncGroup {
    SyncGroup {
        group_id: request.group_id.to_owned(),
        generation_id: request.generation_id,
        member_id: request.member_id.to_owned(),
        group_instance_id: request.group_instance_id.map(str::to_owned),
        protocol_type: request.protocol_type.map(str::to_owned),
        protocol_name: request.protocol_name.map(str::to_owned),
        assignments: request
            .assignments
            .iter()
            .map(|assignment| MemberAssignment {
                member_id: assignment.member_id.to_owned(),
                assignment: Bytes::copy_from_slice(assignment.assignment),
            })
            .collect(),
    }
}

fn answer(context: &RequestContext, reply: &SyncGroupReply) -> HandlerOutcome {
    context.reply(&SyncGroupResponse {
        throttle_time_ms: 0,
        error_code: reply.error.code(),
        protocol_type: reply.protocol_type.as_deref(),
        protocol_name: reply.protocol_name.as_deref(),
        assignment: &reply.assignment,
    })
}
