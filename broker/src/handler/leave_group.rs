//! LeaveGroup, versions 0 to 5: members leave, from version 3 on several at once (KIP-345).

use walser_machine::group::Command;
use walser_machine::group::command::{LeaveGroup, LeavingMember};
use walser_protocol::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};

use super::groups::reply_as;
use super::{Frame, HandlerOutcome, RequestContext};

/// First version that names several members.
const MEMBERS_FROM: i16 = 3;

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match LeaveGroupRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let several = context.version >= MEMBERS_FROM;
    let command = || {
        let members = if several {
            let member = |member: &walser_protocol::messages::leave_group::MemberIdentity<'_>| LeavingMember {
                member_id: member.member_id.to_owned(),
                group_instance_id: member.group_instance_id.map(str::to_owned),
            };
            request.members.iter().map(member).collect()
        } else {
            vec![LeavingMember { member_id: request.member_id.to_owned(), group_instance_id: None }]
        };
        Command::LeaveGroup(LeaveGroup { group_id: request.group_id.to_owned(), members })
    };
    let reply = reply_as!(LeaveGroup, context.ask_coordinator(request.group_id, command).await);
    if !several {
        let of_member = reply.members.first().map_or(reply.error, |member| member.error);
        let error = if reply.error.is_error() { reply.error } else { of_member };
        return context.reply(&LeaveGroupResponse { error_code: error.code(), ..LeaveGroupResponse::default() });
    }
    let members = reply.members.iter().map(|member| MemberResponse {
        member_id: &member.member_id,
        group_instance_id: member.group_instance_id.as_deref(),
        error_code: member.error.code(),
    });
    context.reply(&LeaveGroupResponse {
        throttle_time_ms: 0,
        error_code: reply.error.code(),
        members: members.collect(),
    })
}
