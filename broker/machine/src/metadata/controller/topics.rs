//! Making and deleting topics.

use std::collections::{BTreeMap, BTreeSet};

use super::partitions::{place_replicas, validate_assignment};
use super::{ConfigRules, ControlError, Controller, PARTITIONS_PER_REQUEST_MAX};
use crate::ids::{BrokerId, TopicId, Uuid};
use crate::metadata::image::{MetadataImage, TopicImage};
use crate::metadata::records::{ConfigResource, MetadataRecord};
use crate::metadata::topic_name::{
    CLUSTER_METADATA_TOPIC, has_collision_characters, unify_collision_characters, validate_topic_name,
};

/// Make topics. Each succeeds or fails for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTopics {
    pub topics: Vec<CreatableTopic>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// One topic as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatableTopic {
    pub name: String,
    /// -1: the broker's default.
    pub num_partitions: i32,
    /// -1: the broker's default.
    pub replication_factor: i16,
    /// Empty: the controller places the replicas.
    pub assignments: Vec<ManualAssignment>,
    pub configs: Vec<(String, Option<String>)>,
}

impl CreatableTopic {
    /// With the broker's default numbers of partitions and replicas, as topics are that a Metadata request makes.
    pub fn with_defaults(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: Vec::new(),
            configs: Vec::new(),
        }
    }
}

/// Which brokers hold one partition, the preferred leader first. Raw numbers: nobody has looked at them yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualAssignment {
    pub partition_index: i32,
    pub broker_ids: Vec<i32>,
}

/// The answer for one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatableTopicResult {
    pub name: String,
    pub result: Result<CreatedTopic, ControlError>,
}

/// A topic as it was made, or would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    pub topic_id: TopicId,
    pub num_partitions: i32,
    pub replication_factor: i16,
    /// What the request set; everything else is the broker's.
    pub configs: BTreeMap<String, String>,
}

/// Delete topics. Each succeeds or fails for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteTopics {
    pub topics: Vec<TopicSelector>,
}

/// A topic as a request names it: by exactly one of the two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicSelector {
    pub name: Option<String>,
    /// Zero: by name.
    pub topic_id: Uuid,
}

impl TopicSelector {
    pub fn by_name(name: &str) -> Self {
        Self { name: Some(name.to_owned()), topic_id: Uuid::ZERO }
    }

    pub fn by_id(topic_id: TopicId) -> Self {
        Self { name: None, topic_id: topic_id.get() }
    }
}

/// The answer for one topic; name and id are both there when it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletableTopicResult {
    pub name: Option<String>,
    pub topic_id: Uuid,
    pub result: Result<(), ControlError>,
}

impl Controller {
    pub(super) fn create_topics(
        &mut self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        request: CreateTopics,
    ) -> (Vec<CreatableTopicResult>, Vec<MetadataRecord>) {
        let duplicates = repeated(request.topics.iter().map(|topic| topic.name.as_str()));
        let effective = request.topics.iter().filter(|topic| !duplicates.contains(&topic.name));
        let requested = effective.map(|topic| self.requested_partitions(topic)).sum::<i64>();
        let collisions = collision_names(image, &request.topics);
        let mut records = Vec::new();
        let mut results = Vec::new();
        let mut answered = BTreeSet::new();
        for topic in request.topics {
            if !answered.insert(topic.name.clone()) {
                continue;
            }
            let result = if duplicates.contains(&topic.name) {
                Err(ControlError::DuplicateTopicName)
            } else if requested > PARTITIONS_PER_REQUEST_MAX {
                Err(ControlError::TooManyPartitions { requested })
            } else {
                validate_new_name(image, &collisions, &topic.name)
                    .and_then(|()| self.create_topic(image, rules, &topic, &mut records))
            };
            results.push(CreatableTopicResult { name: topic.name, result });
        }
        if request.validate_only {
            records.clear();
        }
        (results, records)
    }

    fn requested_partitions(&self, topic: &CreatableTopic) -> i64 {
        match topic.num_partitions {
            -1 if topic.assignments.is_empty() => i64::from(self.settings.num_partitions),
            count if count > 0 => i64::from(count),
            _ => i64::try_from(topic.assignments.len()).unwrap_or(i64::MAX),
        }
    }

    fn create_topic(
        &mut self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        topic: &CreatableTopic,
        records: &mut Vec<MetadataRecord>,
    ) -> Result<CreatedTopic, ControlError> {
        let configs = new_topic_configs(image, rules, topic)?;
        let replicas = if topic.assignments.is_empty() {
            self.plan_replicas(image, rules, topic)?
        } else {
            assigned_replicas(image, rules, topic)?
        };
        let topic_id = self.ids.topic_id();
        let mut made = vec![MetadataRecord::Topic { topic_id, name: topic.name.clone() }];
        // Kafka writes the configs right behind the topic, so that no state exists in which it lacks them.
        made.extend(configs.iter().map(|(key, value)| MetadataRecord::Config {
            resource: ConfigResource::Topic(topic.name.clone()),
            key: key.clone(),
            value: Some(value.clone()),
        }));
        let created = CreatedTopic {
            topic_id,
            num_partitions: i32::try_from(replicas.len()).unwrap_or(i32::MAX),
            replication_factor: i16::try_from(replicas.first().map_or(0, Vec::len)).unwrap_or(i16::MAX),
            configs,
        };
        for (partition_index, replicas) in (0..).zip(replicas) {
            made.push(super::partitions::new_partition(image, topic_id, partition_index, replicas)?);
        }
        records.append(&mut made);
        Ok(created)
    }

    fn plan_replicas(
        &mut self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        topic: &CreatableTopic,
    ) -> Result<Vec<Vec<BrokerId>>, ControlError> {
        let replication_factor = match topic.replication_factor {
            -1 => self.settings.default_replication_factor,
            requested if requested > 0 => requested,
            requested => return Err(ControlError::ReplicationFactorNotPositive { requested }),
        };
        let num_partitions = match topic.num_partitions {
            -1 => self.settings.num_partitions,
            requested if requested > 0 => requested,
            requested => return Err(ControlError::PartitionCountNotPositive { requested }),
        };
        let count = usize::try_from(num_partitions).unwrap_or(0);
        place_replicas(image, rules, &mut self.ids, 0..count, replication_factor)
            .map_err(|reason| ControlError::ReplicationFactorOutOfReach { requested: replication_factor, reason })
    }

    pub(super) fn delete_topics(
        &self,
        image: &MetadataImage,
        request: DeleteTopics,
    ) -> (Vec<DeletableTopicResult>, Vec<MetadataRecord>) {
        let names = request.topics.iter().filter(|topic| topic.topic_id.is_zero());
        let names: Vec<&str> = names.filter_map(|topic| topic.name.as_deref()).collect();
        let ids = request.topics.iter().filter(|topic| topic.name.is_none() && !topic.topic_id.is_zero());
        let ids: Vec<Uuid> = ids.map(|topic| topic.topic_id).collect();
        let duplicate_names = repeated(names.iter().copied());
        // A name that is refused for itself does not stand in the way of an id.
        let named = names.iter().filter(|name| !duplicate_names.contains(**name)).filter_map(|name| image.topic(name));
        let named: BTreeSet<Uuid> = named.map(|topic| topic.topic_id.get()).collect();
        let asked = Asked {
            duplicate_names,
            duplicate_ids: repeated(ids.iter()),
            twice: ids.iter().copied().filter(|id| named.contains(id)).collect(),
        };
        let mut answered = BTreeSet::new();
        let mut results = Vec::new();
        let mut records = Vec::new();
        for selector in request.topics {
            let result = match self.select_for_deletion(image, &selector, &asked) {
                Ok(topic) => {
                    records.push(MetadataRecord::RemoveTopic { topic_id: topic.topic_id });
                    let (name, topic_id) = (Some(topic.name.to_string()), topic.topic_id.get());
                    DeletableTopicResult { name, topic_id, result: Ok(()) }
                }
                Err((selector, error)) => {
                    DeletableTopicResult { name: selector.name, topic_id: selector.topic_id, result: Err(error) }
                }
            };
            // A topic that is named several times is answered once, but not where an answer is about how it was named.
            let subject = TopicSelector { name: result.name.clone(), topic_id: result.topic_id };
            let each =
                matches!(result.result, Ok(()) | Err(ControlError::NoTopicNameOrId | ControlError::TopicNameAndId));
            if each || answered.insert(subject) {
                results.push(result);
            }
        }
        (results, records)
    }

    /// The error comes with what the answer names.
    fn select_for_deletion<'a>(
        &self,
        image: &'a MetadataImage,
        selector: &TopicSelector,
        asked: &Asked,
    ) -> Result<&'a TopicImage, (TopicSelector, ControlError)> {
        let refuse = |error| Err((selector.clone(), error));
        if !self.settings.delete_topic_enable {
            return refuse(ControlError::TopicDeletionDisabled);
        }
        let found = match (selector.name.as_deref(), selector.topic_id.is_zero()) {
            (None, true) => return refuse(ControlError::NoTopicNameOrId),
            (Some(_), false) => return refuse(ControlError::TopicNameAndId),
            (Some(name), true) if asked.duplicate_names.contains(name) => {
                return refuse(ControlError::DuplicateTopicName);
            }
            (None, false) if asked.duplicate_ids.contains(&selector.topic_id) => {
                return refuse(ControlError::DuplicateTopicId);
            }
            (Some(name), true) => image.topic(name).ok_or(ControlError::UnknownTopic),
            (None, false) => {
                let topic_id = selector.topic_id;
                let topic = TopicId::from_wire(topic_id).and_then(|id| image.topic_by_id(id));
                topic.ok_or(ControlError::UnknownTopicId { topic_id })
            }
        };
        match found {
            Ok(topic) if asked.twice.contains(&topic.topic_id.get()) => {
                let named = TopicSelector { name: Some(topic.name.to_string()), topic_id: topic.topic_id.get() };
                Err((named, ControlError::TopicNameAndIdMeet))
            }
            Ok(topic) => Ok(topic),
            Err(error) => refuse(error),
        }
    }
}

/// What one DeleteTopics request asks for more than once.
struct Asked {
    duplicate_names: BTreeSet<String>,
    duplicate_ids: BTreeSet<Uuid>,
    /// Named by name and by id.
    twice: BTreeSet<Uuid>,
}

/// Values that appear more than once.
fn repeated<'a, T: Ord + ToOwned + ?Sized + 'a>(values: impl Iterator<Item = &'a T>) -> BTreeSet<T::Owned>
where
    T::Owned: Ord,
{
    let mut seen = BTreeSet::new();
    values.filter(|value| !seen.insert(*value)).map(ToOwned::to_owned).collect()
}

/// Existing topics under the unified form of those names in the request that have `.` or `_`. One walk over all topics, and
/// only where a name could collide.
fn collision_names(image: &MetadataImage, topics: &[CreatableTopic]) -> BTreeMap<String, String> {
    let candidates = topics.iter().filter(|topic| has_collision_characters(&topic.name));
    let unified: BTreeSet<String> = candidates.map(|topic| unify_collision_characters(&topic.name)).collect();
    if unified.is_empty() {
        return BTreeMap::new();
    }
    let existing = image.topics().filter(|topic| has_collision_characters(&topic.name));
    existing
        .map(|topic| (unify_collision_characters(&topic.name), topic.name.to_string()))
        .filter(|(form, _)| unified.contains(form))
        .collect()
}

fn validate_new_name(
    image: &MetadataImage,
    collisions: &BTreeMap<String, String>,
    name: &str,
) -> Result<(), ControlError> {
    if name == CLUSTER_METADATA_TOPIC {
        return Err(ControlError::TopicReserved { name: name.to_owned() });
    }
    validate_topic_name(name)?;
    if image.topic(name).is_some() {
        return Err(ControlError::TopicExists { name: name.to_owned() });
    }
    if !has_collision_characters(name) {
        return Ok(());
    }
    match collisions.get(&unify_collision_characters(name)) {
        Some(existing) => Err(ControlError::TopicNameCollides { name: name.to_owned(), existing: existing.clone() }),
        None => Ok(()),
    }
}

/// Of a key that is given twice the last value counts, as in Kafka.
fn new_topic_configs(
    image: &MetadataImage,
    rules: &dyn ConfigRules,
    topic: &CreatableTopic,
) -> Result<BTreeMap<String, String>, ControlError> {
    let nulls = topic.configs.iter().filter(|(_, value)| value.is_none());
    let nulls: Vec<&str> = nulls.map(|(key, _)| key.as_str()).collect();
    if !nulls.is_empty() {
        return Err(ControlError::NullTopicConfigValues { keys: nulls.join(",") });
    }
    let set = topic.configs.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
    let configs: BTreeMap<String, String> = set.collect();
    if !configs.is_empty() {
        rules.validate(image, &ConfigResource::Topic(topic.name.clone()), &configs)?;
    }
    Ok(configs)
}

/// The replicas of each partition in order of index.
fn assigned_replicas(
    image: &MetadataImage,
    rules: &dyn ConfigRules,
    topic: &CreatableTopic,
) -> Result<Vec<Vec<BrokerId>>, ControlError> {
    if topic.replication_factor != -1 {
        return Err(ControlError::AssignmentWithReplicationFactor);
    }
    if topic.num_partitions != -1 {
        return Err(ControlError::AssignmentWithPartitionCount);
    }
    let mut replicas = BTreeMap::new();
    let mut expected = None;
    for assignment in &topic.assignments {
        let partition_index = assignment.partition_index;
        if replicas.contains_key(&partition_index) {
            return Err(ControlError::AssignmentRepeated { partition_index });
        }
        let brokers = validate_assignment(image, rules, &assignment.broker_ids, expected)?;
        expected = Some(brokers.len());
        if super::partitions::in_sync_at_start(image, &brokers).is_empty() {
            return Err(ControlError::AssignmentToFencedBrokers { partition_index });
        }
        replicas.insert(partition_index, brokers);
    }
    if !replicas.keys().copied().eq(0..i32::try_from(replicas.len()).unwrap_or(i32::MAX)) {
        return Err(ControlError::AssignmentNotConsecutive);
    }
    Ok(replicas.into_values().collect())
}
