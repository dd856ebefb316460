//! DescribeGroups 0 to 6 and ListGroups 0 to 5.

use bytes::Bytes;
use walser_protocol::ErrorCode;

use super::super::command::{DescribeGroups, ListGroups};
use super::super::coordinator::GroupCoordinator;
use super::super::reply::{DescribedGroup, DescribedMember, ListGroupsReply};
use super::super::state::Group;
use super::{ClassicGroup, ClassicState};

/// From here on a missing group is an error (KIP-1043).
const GROUP_ID_NOT_FOUND_VERSION: i16 = 6;
/// What a group that does not exist is said to be.
const DEAD: &str = "Dead";

impl GroupCoordinator {
    /// Classic groups; to this request others do not exist.
    pub(in super::super) fn describe_groups(&self, describe: &DescribeGroups) -> Vec<DescribedGroup> {
        let groups = describe.group_ids.iter().map(|group_id| match self.group(group_id) {
            Some(Group::Classic(group)) => group.describe(),
            Some(Group::Consumer(_)) => {
                missing(describe, group_id, format!("Group {group_id} is not a classic group."))
            }
            None => missing(describe, group_id, format!("Group {group_id} not found.")),
        });
        groups.collect()
    }

    pub(in super::super) fn list_groups(&self, list: &ListGroups) -> ListGroupsReply {
        let states: Vec<String> = list.states_filter.iter().map(|state| state.trim().to_lowercase()).collect();
        let types: Vec<String> = list.types_filter.iter().map(|name| name.to_lowercase()).collect();
        let is_wanted = |group: &Group| {
            let state = group.state_name().to_lowercase();
            (states.is_empty() || states.contains(&state))
                && (types.is_empty() || types.iter().any(|name| name == group.type_name()))
        };
        let groups = self.groups().iter().filter(|(_, group)| is_wanted(group));
        ListGroupsReply { error: ErrorCode::None, groups: groups.map(|(id, group)| group.list(id)).collect() }
    }
}

fn missing(describe: &DescribeGroups, group_id: &str, message: String) -> DescribedGroup {
    let is_error = describe.api_version >= GROUP_ID_NOT_FOUND_VERSION;
    let error = if is_error { ErrorCode::GroupIdNotFound } else { ErrorCode::None };
    DescribedGroup {
        group_state: DEAD.to_owned(),
        error_message: is_error.then_some(message),
        ..DescribedGroup::failed(group_id, error)
    }
}

impl ClassicGroup {
    /// What members told the leader is shown only of a stable group: before, nobody has chosen among it.
    fn describe(&self) -> DescribedGroup {
        let chosen = self.protocol_name.as_deref().filter(|_| self.state == ClassicState::Stable);
        let members = self.members.iter().map(|(member_id, member)| DescribedMember {
            member_id: member_id.to_string(),
            group_instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            member_metadata: chosen.map_or(Bytes::new(), |name| member.metadata(name)),
            member_assignment: member.assignment.clone(),
        });
        DescribedGroup {
            error: ErrorCode::None,
            error_message: None,
            group_id: self.group_id.to_string(),
            group_state: self.state.name().to_owned(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol_data: chosen.unwrap_or_default().to_owned(),
            members: members.collect(),
        }
    }
}
