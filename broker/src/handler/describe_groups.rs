//! DescribeGroups, versions 0 to 6: groups of the classic protocol, and their members.
//!
//! From version 6 on a group that is not there is answered GROUP_ID_NOT_FOUND (KIP-1043), before as a dead group.

use walser_machine::group::Command;
use walser_machine::group::command::DescribeGroups;
use walser_machine::group::reply::DescribedGroup as Described;
use walser_protocol::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};

use super::groups::{authorized_operations, reply_as};
use super::{Frame, HandlerOutcome, RequestContext};

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DescribeGroupsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let api_version = context.version;
    let command = |group_ids| Command::DescribeGroups(DescribeGroups { api_version, group_ids });
    let answers = |reply| reply_as!(DescribeGroups, reply);
    let groups = context.ask_each(&request.groups, command, answers).await;
    let groups = groups.iter().map(|group| described(group, request.include_authorized_operations)).collect();
    context.reply(&DescribeGroupsResponse { throttle_time_ms: 0, groups })
}

fn described(group: &Described, with_operations: bool) -> DescribedGroup<'_> {
    let members = group.members.iter().map(|member| DescribedGroupMember {
        member_id: &member.member_id,
        group_instance_id: member.group_instance_id.as_deref(),
        client_id: &member.client_id,
        client_host: &member.client_host,
        member_metadata: &member.member_metadata,
        member_assignment: &member.member_assignment,
    });
    DescribedGroup {
        error_code: group.error.code(),
        error_message: group.error_message.as_deref(),
        group_id: &group.group_id,
        group_state: &group.group_state,
        protocol_type: &group.protocol_type,
        protocol_data: &group.protocol_data,
        members: members.collect(),
        authorized_operations: authorized_operations(with_operations, group.error),
    }
}
