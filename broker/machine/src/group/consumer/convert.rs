//! Groups that change their protocol while they have members.
//!
//! A member of the consumer protocol that joins a classic group makes it a consumer group: the generation becomes the epoch, the
//! leader's last assignment the target and what members have. When all members of a consumer group speak the classic protocol
//! again, it becomes a classic one with the epoch as its generation.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::embedded;
use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::member::{
    ClassicMember, ClassicProtocol, CurrentAssignment, EpochAssignment, Member, MemberState, Subscription,
};
use super::plan::{Downgrade, Environment};
use super::records::{Change, GroupEpoch, TargetEpoch};
use crate::group::assignor::Assignment;
use crate::group::command::GroupProtocol;
use crate::ids::TopicId;

/// A classic group, as far as it goes over.
#[derive(Clone, Debug)]
pub struct MigratingGroup {
    pub generation_id: i32,
    pub members: Vec<MigratingMember>,
}

/// One of its members.
#[derive(Clone, Debug)]
pub struct MigratingMember {
    pub member_id: Arc<str>,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub protocols: Vec<GroupProtocol>,
    /// What it told the leader for the protocol the group has chosen.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

/// Records that make a consumer group of a classic one with members. `None` is a group that is not one of consumers, or has
/// chosen no protocol yet.
pub fn upgrade(
    group_id: &str,
    group: Option<&MigratingGroup>,
    environment: &Environment<'_>,
) -> Result<Vec<Change>, ConsumerGroupError> {
    let refused = |reason| ConsumerGroupError::CannotUpgrade { group_id: group_id.to_owned(), reason };
    if !environment.settings.migration_policy.is_upgrade_enabled() {
        return Err(refused("group.consumer.migration.policy does not allow it"));
    }
    let group = group.ok_or_else(|| refused("its members are not consumers that agree on a protocol"))?;
    if group.members.len() > usize::try_from(environment.settings.max_size).unwrap_or(0) {
        return Err(refused("it has more members than a consumer group may have"));
    }
    let mut taken = BTreeSet::new();
    let mut members = Vec::new();
    for member in &group.members {
        members.push(upgraded(member, group.generation_id, environment, &mut taken).map_err(refused)?);
    }
    let names = members.iter().flat_map(|member| member.subscription.topic_names.iter()).map(AsRef::as_ref).collect();
    let metadata_hash = environment.topics.hash(&names);
    let epoch = group.generation_id;
    let mut changes: Vec<Change> = members.iter().map(subscription_change).collect();
    changes.push(Change::Group(Some(GroupEpoch { epoch, metadata_hash })));
    changes.extend(members.iter().map(|member| Change::TargetMember {
        member_id: member.member_id.clone(),
        assignment: Some(Arc::new(member.current.assigned.without_epochs())),
    }));
    changes.push(Change::Target(Some(TargetEpoch { epoch, timestamp_ms: 0 })));
    changes.extend(
        members
            .into_iter()
            .map(|member| Change::CurrentMember { member_id: member.member_id, current: Some(member.current) }),
    );
    Ok(changes)
}

fn subscription_change(member: &Member) -> Change {
    let subscription = Some(member.subscription.clone());
    Change::Member { member_id: member.member_id.clone(), subscription }
}

/// A partition that the leader gave to several members stays with the first of them.
fn upgraded(
    member: &MigratingMember,
    generation_id: i32,
    environment: &Environment<'_>,
    taken: &mut BTreeSet<(TopicId, i32)>,
) -> Result<Member, &'static str> {
    let unreadable = "what its members tell each other cannot be read";
    let embedded = embedded::subscription(&member.metadata).map_err(|_| unreadable)?;
    let (assigned, has_more) =
        embedded::read_assignment(&member.assignment, environment.topics).map_err(|_| unreadable)?;
    if has_more {
        return Err("its assignor keeps data of its own in the assignment");
    }
    let assigned: Assignment = assigned.partitions().filter(|partition| taken.insert(*partition)).collect();
    let protocols = member
        .protocols
        .iter()
        .map(|protocol| ClassicProtocol { name: protocol.name.as_str().into(), metadata: protocol.metadata.clone() });
    let classic = ClassicMember { session_timeout_ms: member.session_timeout_ms, protocols: protocols.collect() };
    Ok(Member {
        member_id: member.member_id.clone(),
        subscription: Subscription {
            instance_id: member.instance_id.as_deref().map(Into::into),
            rack_id: embedded.rack_id.map(Into::into),
            client_id: member.client_id.as_str().into(),
            client_host: member.client_host.as_str().into(),
            topic_names: Arc::new(embedded.topics.iter().map(|name| Arc::from(*name)).collect()),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            classic: Some(Arc::new(classic)),
            ..Subscription::default()
        },
        current: CurrentAssignment {
            epoch: generation_id,
            previous_epoch: generation_id,
            state: MemberState::Stable,
            assigned: EpochAssignment::from_assignment(&assigned, generation_id),
            pending_revocation: EpochAssignment::default(),
        },
    })
}

/// The members that stay, as a classic group has them, with their targets as what they have been assigned. `None` where one of
/// them does not speak the classic protocol after all.
pub fn downgrade(
    group: &ConsumerGroup,
    downgrade: &Downgrade,
    environment: &Environment<'_>,
) -> Option<MigratingGroup> {
    let staying = group.members().filter(|member| !downgrade.leaving.contains(&member.member_id));
    let members: Option<Vec<_>> = staying.map(|member| downgraded(group, member, environment)).collect();
    Some(MigratingGroup { generation_id: group.group_epoch(), members: members? })
}

fn downgraded(group: &ConsumerGroup, member: &Member, environment: &Environment<'_>) -> Option<MigratingMember> {
    let subscription = &member.subscription;
    let classic = subscription.classic.as_ref()?;
    let protocols = classic
        .protocols
        .iter()
        .map(|protocol| GroupProtocol { name: protocol.name.to_string(), metadata: protocol.metadata.clone() });
    let metadata = classic.protocols.first()?.metadata.clone();
    let version = embedded::version(&metadata).ok()?;
    let target = group.target(&member.member_id, None);
    Some(MigratingMember {
        member_id: member.member_id.clone(),
        instance_id: subscription.instance_id.as_ref().map(ToString::to_string),
        client_id: subscription.client_id.to_string(),
        client_host: subscription.client_host.to_string(),
        rebalance_timeout_ms: subscription.rebalance_timeout_ms,
        session_timeout_ms: classic.session_timeout_ms,
        protocols: protocols.collect(),
        metadata,
        assignment: embedded::write_assignment(&target, version, environment.topics)?,
    })
}
