//! More partitions, and where replicas go.

use std::collections::{BTreeMap, BTreeSet};

use super::{ConfigRules, ControlError, Controller, PARTITIONS_PER_REQUEST_MAX, PlacementProblem};
use crate::ids::{BrokerId, DirectoryId, IdGenerator, LeaderEpoch, TopicId};
use crate::metadata::image::{MetadataImage, TopicImage};
use crate::metadata::records::{BrokerRegistration, MetadataRecord, PartitionRecord};

/// Give topics more partitions. Each succeeds or fails for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatePartitions {
    pub topics: Vec<CreatePartitionsTopic>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// One topic as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatePartitionsTopic {
    pub name: String,
    /// Partitions afterwards, the existing ones included.
    pub count: i32,
    /// One replica list per new partition; `None`: the controller places them.
    pub assignments: Option<Vec<Vec<i32>>>,
}

/// The answer for one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatePartitionsResult {
    pub name: String,
    pub result: Result<(), ControlError>,
}

impl Controller {
    pub(super) fn create_partitions(
        &mut self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        request: CreatePartitions,
    ) -> (Vec<CreatePartitionsResult>, Vec<MetadataRecord>) {
        let mut seen = BTreeSet::new();
        let repeats = request.topics.iter().filter(|topic| !seen.insert(topic.name.as_str()));
        let duplicates: BTreeSet<String> = repeats.map(|topic| topic.name.clone()).collect();
        let mut answered = BTreeSet::new();
        let mut results = Vec::new();
        let mut records = Vec::new();
        for topic in request.topics {
            if !answered.insert(topic.name.clone()) {
                continue;
            }
            let result = if duplicates.contains(&topic.name) {
                Err(ControlError::DuplicateTopicName)
            } else {
                self.add_partitions(image, rules, &topic).map(|added| records.extend(added))
            };
            results.push(CreatePartitionsResult { name: topic.name, result });
        }
        if request.validate_only {
            records.clear();
        }
        (results, records)
    }

    fn add_partitions(
        &mut self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        request: &CreatePartitionsTopic,
    ) -> Result<Vec<MetadataRecord>, ControlError> {
        let topic = image.topic(&request.name).ok_or(ControlError::UnknownTopicToGrow)?;
        let count = topic.partitions.len();
        let requested = usize::try_from(request.count).unwrap_or(0);
        if requested == count {
            return Err(ControlError::PartitionCountUnchanged { count });
        }
        let Some(additional) = requested.checked_sub(count) else {
            let name = request.name.clone();
            return Err(ControlError::PartitionCountLower { name, count, requested: request.count });
        };
        let replicas = self.additional_replicas(image, rules, topic, request, additional)?;
        let first = i32::try_from(count).unwrap_or(i32::MAX);
        (first..).zip(replicas).map(|(index, replicas)| new_partition(image, topic.topic_id, index, replicas)).collect()
    }

    fn additional_replicas(
        &mut self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        topic: &TopicImage,
        request: &CreatePartitionsTopic,
        additional: usize,
    ) -> Result<Vec<Vec<BrokerId>>, ControlError> {
        let replication_factor = topic.partitions.first().map_or(1, |partition| partition.replicas.len());
        if let Some(assignments) = &request.assignments
            && assignments.len() != additional
        {
            return Err(ControlError::AssignmentCountDiffers { additional, given: assignments.len() });
        }
        let requested = i64::try_from(additional).unwrap_or(i64::MAX);
        if requested > PARTITIONS_PER_REQUEST_MAX {
            return Err(ControlError::TooManyAdditionalPartitions { requested });
        }
        let Some(assignments) = &request.assignments else {
            let replication_factor = i16::try_from(replication_factor).unwrap_or(i16::MAX);
            let first = topic.partitions.len();
            return place_replicas(image, rules, &mut self.ids, first..first + additional, replication_factor)
                .map_err(ControlError::NotPlaced);
        };
        let first = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let mut replicas = Vec::with_capacity(assignments.len());
        for (partition_index, assignment) in (first..).zip(assignments) {
            let brokers = validate_assignment(image, rules, assignment, Some(replication_factor))?;
            if in_sync_at_start(image, &brokers).is_empty() {
                return Err(ControlError::AssignmentToFencedBrokers { partition_index });
            }
            replicas.push(brokers);
        }
        Ok(replicas)
    }
}

/// `expected`: how many replicas the partitions before this one have.
pub(super) fn validate_assignment(
    image: &MetadataImage,
    rules: &dyn ConfigRules,
    broker_ids: &[i32],
    expected: Option<usize>,
) -> Result<Vec<BrokerId>, ControlError> {
    if broker_ids.is_empty() {
        return Err(ControlError::AssignmentEmpty);
    }
    // In ascending order, so that of several mistakes the same one is named as in Kafka.
    let mut sorted = broker_ids.to_vec();
    sorted.sort_unstable();
    let mut previous = None;
    let mut brokers_by_number = BTreeMap::new();
    for broker_id in sorted {
        let registered = BrokerId::from_wire(broker_id).filter(|id| image.broker(*id).is_some());
        brokers_by_number.insert(broker_id, registered.ok_or(ControlError::AssignmentToUnknownBroker { broker_id })?);
        if previous == Some(broker_id) {
            return Err(ControlError::AssignmentToSameBroker { broker_id });
        }
        if registered.is_some_and(|registered| rules.is_cordoned(image, registered)) {
            return Err(ControlError::AssignmentToCordonedBroker { broker_id });
        }
        previous = Some(broker_id);
    }
    match expected {
        Some(expected) if expected != broker_ids.len() => {
            Err(ControlError::AssignmentSizeDiffers { given: broker_ids.len(), expected })
        }
        Some(_) | None => Ok(broker_ids.iter().filter_map(|number| brokers_by_number.get(number).copied()).collect()),
    }
}

/// Replicas for `partitions` of one topic: leaders go round the brokers that are up, from a random
/// one for a new topic; followers are the next brokers, shifted once per round so that the load of a failed broker spreads.
pub(super) fn place_replicas(
    image: &MetadataImage,
    rules: &dyn ConfigRules,
    ids: &mut IdGenerator,
    partitions: std::ops::Range<usize>,
    replication_factor: i16,
) -> Result<Vec<Vec<BrokerId>>, PlacementProblem> {
    let up = image.brokers().filter(|broker| !broker.fenced).map(|broker| broker.broker_id);
    let usable: Vec<BrokerId> = up.filter(|broker_id| !rules.is_cordoned(image, *broker_id)).collect();
    let Some(last) = usable.len().checked_sub(1) else {
        return Err(PlacementProblem::AllFenced);
    };
    let replicas = usize::try_from(replication_factor).unwrap_or(0);
    if replicas > usable.len() {
        let registered = image.brokers().count();
        return Err(PlacementProblem::TooFewBrokers { requested: replication_factor, registered });
    }
    let start = ids.index_below(usable.len());
    let placed = partitions.map(|partition| {
        let leader = (start + partition) % usable.len();
        let shift = partition / usable.len();
        let followers = (1..replicas).map(|replica| {
            // Distinct for distinct replicas: each is another step, taken modulo the number of other brokers.
            let step = 1 + (shift + replica - 1) % last.max(1);
            usable[(leader + step) % usable.len()]
        });
        std::iter::once(usable[leader]).chain(followers).collect()
    });
    Ok(placed.collect())
}

/// Replicas on brokers that are up count as in sync from the start: the partition is empty on all of them.
pub(super) fn in_sync_at_start(image: &MetadataImage, replicas: &[BrokerId]) -> Vec<BrokerId> {
    let is_up = |id: &BrokerId| image.broker(*id).is_some_and(|broker| !broker.fenced);
    replicas.iter().copied().filter(is_up).collect()
}

pub(super) fn new_partition(
    image: &MetadataImage,
    topic_id: TopicId,
    partition_index: i32,
    replicas: Vec<BrokerId>,
) -> Result<MetadataRecord, ControlError> {
    let in_sync_replicas = in_sync_at_start(image, &replicas);
    let Some(&leader) = in_sync_replicas.first() else {
        return Err(ControlError::AssignmentToFencedBrokers { partition_index });
    };
    let directories = replicas.iter().map(|id| only_directory(image.broker(*id).map(AsRef::as_ref))).collect();
    Ok(MetadataRecord::Partition(PartitionRecord {
        topic_id,
        partition_index,
        replicas,
        in_sync_replicas,
        leader: Some(leader),
        leader_epoch: LeaderEpoch::ZERO,
        partition_epoch: 0,
        directories,
    }))
}

/// A broker with several directories chooses by itself and tells later.
fn only_directory(broker: Option<&BrokerRegistration>) -> DirectoryId {
    match broker.map(|broker| broker.directories.as_slice()) {
        Some([only]) => *only,
        Some(_) | None => DirectoryId::UNASSIGNED,
    }
}
