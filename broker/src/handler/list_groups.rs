//! ListGroups, versions 0 to 5: every group that this broker coordinates, from version 4 on of some states (KIP-518), from 5 on of
//! some types (KIP-848).

use walser_machine::group::Command;
use walser_machine::group::command::ListGroups;
use walser_machine::group::reply::{ListGroupsReply, ListedGroup as Listed};
use walser_protocol::ErrorCode;
use walser_protocol::messages::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};

use super::groups::reply_as;
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::coordinator::OFFSETS_TOPIC;
use crate::driver::partition::PartitionId;

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match ListGroupsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let list = ListGroups {
        states_filter: request.states_filter.iter().map(|state| (*state).to_owned()).collect(),
        types_filter: request.types_filter.iter().map(|kind| (*kind).to_owned()).collect(),
    };
    let image = context.shard.image();
    let commands = image.topic(OFFSETS_TOPIC).into_iter().flat_map(|topic| {
        let ids = (0..).zip(&topic.partitions).map(|(index, _)| PartitionId { topic_id: topic.topic_id, index });
        ids.map(|id| (id, Command::ListGroups(list.clone())))
    });
    let (mut error, mut groups) = (ErrorCode::None, Vec::new());
    for outcome in context.ask_coordinators(commands.collect()).await {
        let reply = match outcome {
            Ok(reply) => reply_as!(ListGroups, reply),
            Err(error) => ListGroupsReply { error, groups: Vec::new() },
        };
        // Of a partition that is not here the groups are another broker's to list.
        if reply.error.is_error() && reply.error != ErrorCode::NotCoordinator {
            error = reply.error;
        }
        groups.extend(reply.groups);
    }
    if error.is_error() {
        // Half a list would look like a whole one.
        groups.clear();
    }
    let groups = groups.iter().map(|group: &Listed| ListedGroup {
        group_id: &group.group_id,
        protocol_type: &group.protocol_type,
        group_state: &group.group_state,
        group_type: &group.group_type,
    });
    let groups = groups.collect();
    context.reply(&ListGroupsResponse { throttle_time_ms: 0, error_code: error.code(), groups })
}
