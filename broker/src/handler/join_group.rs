//! JoinGroup, versions 0 to 9: a member enters the classic rebalance.
//!
//! Answered when the group has its members; the connection waits meanwhile, and holds no memory for the request. From version 4 on
//! a member that comes without an id is given one and has to come again (KIP-394), from 5 on members may be static (KIP-345).

use bytes::Bytes;
use walser_machine::group::Command;
use walser_machine::group::command::{GroupProtocol, JoinGroup};
use walser_machine::group::reply::JoinGroupReply;
use walser_protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};

use super::groups::{client_host, reply_as};
use super::{Frame, HandlerOutcome, RequestContext};

/// First version with a rebalance timeout of its own.
const REBALANCE_TIMEOUT_FROM: i16 = 1;
/// First version in which no protocol is null.
const NULL_PROTOCOL_FROM: i16 = 7;

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match JoinGroupRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let join = command(&context, &request);
    let group_id = join.group_id.clone();
    drop(request);
    drop(frame);
    let reply = match context.ask_coordinator_once(&group_id, Command::JoinGroup(join)).await {
        Ok(reply) => reply_as!(JoinGroup, reply),
        Err(error) => JoinGroupReply::failed("", error),
    };
    let protocol_name = reply.protocol_name.as_deref();
    context.reply(&JoinGroupResponse {
        throttle_time_ms: 0,
        error_code: reply.error.code(),
        generation_id: reply.generation_id,
        protocol_type: reply.protocol_type.as_deref(),
        protocol_name: if context.version < NULL_PROTOCOL_FROM {
            Some(protocol_name.unwrap_or_default())
        } else {
            protocol_name
        },
        leader: &reply.leader,
        skip_assignment: reply.skip_assignment,
        member_id: &reply.member_id,
        members: reply
            .members
            .iter()
            .map(|member| JoinGroupResponseMember {
                member_id: &member.member_id,
                group_instance_id: member.group_instance_id.as_deref(),
                metadata: &member.metadata,
            })
            .collect(),
    })
}

fn command(context: &RequestContext, request: &JoinGroupRequest<'_>) -> JoinGroup {
    let has_rebalance_timeout = context.version >= REBALANCE_TIMEOUT_FROM;
    JoinGroup {
        api_version: context.version,
        group_id: request.group_id.to_owned(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: if has_rebalance_timeout {
            request.rebalance_timeout_ms
        } else {
            request.session_timeout_ms
        },
        member_id: request.member_id.to_owned(),
        group_instance_id: request.group_instance_id.map(str::to_owned),
        protocol_type: request.protocol_type.to_owned(),
        protocols: request
            .protocols
            .iter()
            .map(|protocol| GroupProtocol {
                name: protocol.name.to_owned(),
                metadata: Bytes::copy_from_slice(protocol.metadata),
            })
            .collect(),
        client_id: context.client_id.as_deref().unwrap_or_default().to_owned(),
        client_host: client_host(context.connection.peer.ip()),
        member_uuid: context.shard.member_ids.borrow_mut().uuid(),
    }
}
