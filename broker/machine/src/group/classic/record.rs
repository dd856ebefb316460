//! A classic group to its record and back.

use std::sync::Arc;

use super::super::command::GroupProtocol;
use super::super::context::Context;
use super::super::record::{GroupMetadataValue, GroupRecord, MemberMetadata};
use super::{ClassicGroup, ClassicMember, ClassicState};

impl ClassicGroup {
    /// The group as it is now.
    pub(super) fn record(&self) -> GroupRecord {
        let protocol_name = self.protocol_name.as_deref().unwrap_or_default();
        let members = self.members.iter().map(|(member_id, member)| MemberMetadata {
            member_id: member_id.to_string(),
            group_instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            subscription: member.metadata(protocol_name),
            assignment: member.assignment.clone(),
        });
        let value = GroupMetadataValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation_id: self.generation_id,
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.as_deref().map(str::to_owned),
            current_state_timestamp_ms: self.state_since_ms.unwrap_or(-1),
            members: members.collect(),
        };
        GroupRecord::GroupMetadata { group_id: self.group_id.to_string(), value: Some(value) }
    }

    /// A group that somebody is about to join for the first time: it exists, and that is all.
    pub(super) fn empty_record(&self) -> GroupRecord {
        let value = GroupMetadataValue {
            protocol_type: String::new(),
            generation_id: 0,
            protocol_name: None,
            leader: None,
            current_state_timestamp_ms: self.state_since_ms.unwrap_or(-1),
            members: Vec::new(),
        };
        GroupRecord::GroupMetadata { group_id: self.group_id.to_string(), value: Some(value) }
    }

    /// About what the record takes in a batch.
    pub(super) fn record_bytes(&self) -> usize {
        const OF_GROUP_BYTES: usize = 256;
        const OF_MEMBER_BYTES: usize = 64;
        let protocol_name = self.protocol_name.as_deref().unwrap_or_default();
        let members = self.members.iter().map(|(member_id, member)| {
            let texts = member_id.len() + member.client_id.len() + member.client_host.len();
            let instance_id = member.group_instance_id.as_deref().unwrap_or_default();
            let blobs = member.metadata(protocol_name).len() + member.assignment.len();
            OF_MEMBER_BYTES + texts + instance_id.len() + blobs
        });
        let leader = self.leader.as_deref().unwrap_or_default();
        let protocol_type = self.protocol_type.as_deref().unwrap_or_default();
        let texts = 2 * self.group_id.len() + protocol_type.len() + protocol_name.len() + leader.len();
        OF_GROUP_BYTES + texts + members.sum::<usize>()
    }

    /// The group as the log has it: stable where it has members. Its members support what the group had chosen.
    pub(in super::super) fn from_record(group_id: &str, value: GroupMetadataValue) -> Self {
        let mut group = Self::new(group_id, 0);
        group.state_since_ms = (value.current_state_timestamp_ms != -1).then_some(value.current_state_timestamp_ms);
        group.protocol_type = Some(value.protocol_type).filter(|protocol_type| !protocol_type.is_empty());
        group.generation_id = value.generation_id;
        let chosen = value.protocol_name.clone().unwrap_or_default();
        group.protocol_name = value.protocol_name;
        for member in value.members {
            let member_id: Arc<str> = member.member_id.as_str().into();
            group.load_member(member_id, member, &chosen);
        }
        if !group.members.is_empty() {
            group.state = ClassicState::Stable;
            group.supported.insert(chosen, group.members.len());
        }
        // A leader that is no member cannot lead; the next one that joins will.
        group.leader = value.leader.and_then(|leader| group.members.get_key_value(&*leader)).map(|(id, _)| id.clone());
        group.subscribed_topics = group.read_subscribed_topics();
        group
    }

    #[cfg(test)]
    pub(in super::super) fn is_rebalancing(&self) -> bool {
        matches!(self.state, ClassicState::PreparingRebalance | ClassicState::CompletingRebalance)
    }

    /// What the log has to tell of the group, as text. When it became stable, or simple, is not logged.
    #[cfg(test)]
    pub(in super::super) fn durable(&self) -> String {
        let mut record = self.record();
        if let GroupRecord::GroupMetadata { value: Some(value), .. } = &mut record
            && (self.state == ClassicState::Stable || self.protocol_type.is_none())
        {
            value.current_state_timestamp_ms = 0;
        }
        format!("{:?} {record:#?} {:?} {:?}", self.state, self.static_members, self.subscribed_topics)
    }

    fn load_member(&mut self, member_id: Arc<str>, member: MemberMetadata, chosen: &str) {
        if let Some(instance_id) = &member.group_instance_id {
            // Two members of one instance id: the later one is the living one.
            if let Some(former) = self.static_members.insert(instance_id.clone(), member_id.clone()) {
                self.members.remove(&former);
            }
        }
        let rebalance_timeout_ms = match member.rebalance_timeout_ms {
            -1 => member.session_timeout_ms,
            timeout_ms => timeout_ms,
        };
        let loaded = ClassicMember {
            group_instance_id: member.group_instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            protocols: vec![GroupProtocol { name: chosen.to_owned(), metadata: member.subscription }],
            assignment: member.assignment,
            is_new: false,
            awaiting_join: None,
            awaiting_sync: None,
            session_timer: None,
        };
        self.members.insert(member_id, loaded);
    }

    /// Members have their whole session to show up. A group that is larger than is allowed now rebalances, so that its members
    /// can commit before some are turned away.
    pub(in super::super) fn finish_loading(&mut self, context: &mut Context<'_>) {
        for (member_id, member) in &mut self.members {
            member.restart_session(context, &self.group_id, member_id);
        }
        if i32::try_from(self.members.len()).unwrap_or(i32::MAX) > context.settings.group_max_size {
            self.prepare_rebalance(context);
        }
    }
}
