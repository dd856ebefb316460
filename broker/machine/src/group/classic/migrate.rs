//! A classic group that becomes a consumer group, or has been one (KIP-848).

use walser_protocol::ErrorCode;

use super::super::consumer::convert::{MigratingGroup, MigratingMember};
use super::super::context::{Context, Now};
use super::super::record::GroupRecord;
use super::{ClassicGroup, ClassicMember, ClassicState};

impl ClassicGroup {
    /// `None` for a group that is not one of consumers, or has not chosen a protocol.
    pub(in super::super) fn migrating(&self) -> Option<MigratingGroup> {
        let protocol_name = self.protocol_name.as_deref().filter(|_| self.uses_consumer_protocol())?;
        let members = self.members.iter().map(|(member_id, member)| MigratingMember {
            member_id: member_id.clone(),
            instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            protocols: member.protocols.clone(),
            metadata: member.metadata(protocol_name),
            assignment: member.assignment.clone(),
        });
        Some(MigratingGroup { generation_id: self.generation_id, members: members.collect() })
    }

    /// Stable, in the generation that the consumer group's epoch was.
    pub(in super::super) fn migrated(group_id: &str, migrating: MigratingGroup, now: Now) -> Self {
        let mut group = Self::new(group_id, now.wall_ms);
        group.state = ClassicState::Stable;
        group.previous_state = ClassicState::Stable;
        group.protocol_type = Some(super::CONSUMER_PROTOCOL_TYPE.to_owned());
        group.generation_id = migrating.generation_id;
        for member in migrating.members {
            group.count_protocols(&member.protocols, true);
            if let Some(instance_id) = &member.instance_id {
                group.static_members.insert(instance_id.clone(), member.member_id.clone());
            }
            let migrated = ClassicMember {
                group_instance_id: member.instance_id,
                client_id: member.client_id,
                client_host: member.client_host,
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout_ms,
                protocols: member.protocols,
                assignment: member.assignment,
                is_new: false,
                awaiting_join: None,
                awaiting_sync: None,
                session_timer: None,
            };
            group.leader.get_or_insert_with(|| member.member_id.clone());
            group.members.insert(member.member_id, migrated);
        }
        group.protocol_name = group.select_protocol();
        group.subscribed_topics = group.read_subscribed_topics();
        group
    }

    pub(in super::super) fn migrated_record(&self) -> GroupRecord {
        self.record()
    }

    /// Sessions begin; the members join anew where they must.
    pub(in super::super) fn finish_migration(&mut self, context: &mut Context<'_>, rebalances: bool) {
        for (member_id, member) in &mut self.members {
            member.restart_session(context, &self.group_id, member_id);
        }
        if rebalances {
            self.prepare_rebalance(context);
        }
    }

    /// Who waits for the rebalance of the group that was is told to begin anew.
    pub(in super::super) fn abandon_rebalance(&mut self, context: &mut Context<'_>) {
        self.unload(context.output, ErrorCode::RebalanceInProgress);
    }
}
