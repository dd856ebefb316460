//! Changing configs of topics, brokers and whatever else has some.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use walser_protocol::reader::STRING_LEN_MAX;

use super::{ControlError, Controller};
use crate::ids::BrokerId;
use crate::metadata::image::MetadataImage;
use crate::metadata::records::{ConfigResource, MetadataRecord};
use crate::metadata::topic_name::validate_topic_name;

const MIN_IN_SYNC_REPLICAS: &str = "min.insync.replicas";
const ELIGIBLE_LEADER_REPLICAS: &str = "eligible.leader.replicas.version";

/// What the controller needs to know of config definitions, which live with the broker's settings.
pub trait ConfigRules {
    /// Whether values of this key are comma-separated lists, which APPEND and SUBTRACT work on.
    fn is_list(&self, resource: &ConfigResource, key: &str) -> bool;

    /// Whether the key is defined at all; undefined ones may be set on brokers, but not appended to.
    fn is_known(&self, resource: &ConfigResource, key: &str) -> bool;

    /// What holds where the resource sets nothing: APPEND and SUBTRACT start from it.
    fn default_value(&self, resource: &ConfigResource, key: &str) -> Option<String>;

    /// Whether `resource` may have the keys and values of `after`. `image`: what it and all others have now.
    fn validate(
        &self,
        image: &MetadataImage,
        resource: &ConfigResource,
        after: &BTreeMap<String, String>,
    ) -> Result<(), ConfigRejection>;

    /// Whether every log directory of a broker is cordoned: it takes no new replicas (KIP-1066).
    fn is_cordoned(&self, image: &MetadataImage, broker_id: BrokerId) -> bool;
}

/// A key or value that the definitions do not allow.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ConfigRejection {
    pub kind: ConfigRejectionKind,
    /// For the client: key, value and what is allowed.
    pub message: String,
}

/// Which of Kafka's two error codes a rejected config gets: it depends on the resource, not on the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigRejectionKind {
    InvalidConfig,
    InvalidRequest,
}

/// Change some keys of some resources. Each resource succeeds or fails for itself, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncrementalAlterConfigs {
    pub resources: Vec<IncrementalAlterConfigsResource>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// One resource as the request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncrementalAlterConfigsResource {
    pub resource_type: i8,
    pub resource_name: String,
    pub operations: Vec<ConfigOperation>,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigOperation {
    pub key: String,
    /// 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT.
    pub operation: i8,
    pub value: Option<String>,
}

impl ConfigOperation {
    pub const SET: i8 = 0;
    pub const DELETE: i8 = 1;
    pub const APPEND: i8 = 2;
    pub const SUBTRACT: i8 = 3;
    const KNOWN: [i8; 4] = [Self::SET, Self::DELETE, Self::APPEND, Self::SUBTRACT];
}

/// Give resources exactly these keys; all others fall back to their defaults. Each resource succeeds or fails for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterConfigs {
    pub resources: Vec<ReplaceConfigsResource>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// One resource as the request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaceConfigsResource {
    pub resource_type: i8,
    pub resource_name: String,
    pub configs: Vec<(String, Option<String>)>,
}

/// The answer for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterConfigsResourceResult {
    pub resource_type: i8,
    pub resource_name: String,
    pub result: Result<(), ControlError>,
}

impl Controller {
    pub(super) fn incremental_alter_configs(
        &self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        request: IncrementalAlterConfigs,
    ) -> (Vec<AlterConfigsResourceResult>, Vec<MetadataRecord>) {
        let names = request.resources.iter().map(|resource| (resource.resource_type, resource.resource_name.as_str()));
        let duplicates = repeated_resources(names);
        let mut records = Vec::new();
        let mut results = Vec::new();
        for IncrementalAlterConfigsResource { resource_type, resource_name, operations } in request.resources {
            let result = if duplicates.contains(&(resource_type, resource_name.clone())) {
                Err(ControlError::DuplicateResource)
            } else {
                self.alter_resource(image, rules, resource_type, &resource_name, &operations)
                    .map(|changed| records.extend(changed))
            };
            results.push(AlterConfigsResourceResult { resource_type, resource_name, result });
        }
        if request.validate_only {
            records.clear();
        }
        (results, records)
    }

    fn alter_resource(
        &self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        resource_type: i8,
        resource_name: &str,
        operations: &[ConfigOperation],
    ) -> Result<Vec<MetadataRecord>, ControlError> {
        verify_distinct_keys(operations.iter().map(|operation| operation.key.as_str()))?;
        verify_values(operations.iter().filter_map(|change| {
            (change.operation != ConfigOperation::DELETE && change.value.is_none()).then_some(change.key.as_str())
        }))?;
        if resource_type == ConfigResource::TYPE_BROKER_LOGGER {
            self.broker_by_name(resource_name)?;
            return verify_loggers(operations.iter().map(|operation| operation.key.as_str()));
        }
        let resource = self.resource(resource_type, resource_name)?;
        if matches!(resource, ConfigResource::Broker(_) | ConfigResource::DefaultBroker)
            && let Some(change) = operations.iter().find(|change| !ConfigOperation::KNOWN.contains(&change.operation))
        {
            return Err(ControlError::UnknownBrokerConfigOperation { operation: change.operation });
        }
        let before = image.configs(&resource).clone();
        let mut after = before.as_ref().clone();
        for change in operations {
            apply(rules, &resource, &mut after, change)?;
        }
        finish_change(image, rules, resource, &before, &after)
    }

    pub(super) fn alter_configs(
        &self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        request: AlterConfigs,
    ) -> (Vec<AlterConfigsResourceResult>, Vec<MetadataRecord>) {
        let names = request.resources.iter().map(|resource| (resource.resource_type, resource.resource_name.as_str()));
        let duplicates = repeated_resources(names);
        let mut records = Vec::new();
        let mut results = Vec::new();
        for ReplaceConfigsResource { resource_type, resource_name, configs } in request.resources {
            let result = if duplicates.contains(&(resource_type, resource_name.clone())) {
                Err(ControlError::DuplicateResource)
            } else {
                self.replace_resource(image, rules, resource_type, &resource_name, configs)
                    .map(|changed| records.extend(changed))
            };
            results.push(AlterConfigsResourceResult { resource_type, resource_name, result });
        }
        if request.validate_only {
            records.clear();
        }
        (results, records)
    }

    fn replace_resource(
        &self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        resource_type: i8,
        resource_name: &str,
        configs: Vec<(String, Option<String>)>,
    ) -> Result<Vec<MetadataRecord>, ControlError> {
        verify_distinct_keys(configs.iter().map(|(key, _)| key.as_str()))?;
        verify_values(configs.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.as_str()))?;
        let resource = self.resource(resource_type, resource_name)?;
        let before = image.configs(&resource).clone();
        let after: BTreeMap<String, String> =
            configs.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        finish_change(image, rules, resource, &before, &after)
    }

    /// The resource that a request names. Only of brokers it is known to be there: what is wrong with the changes asked for
    /// comes before what is wrong with a name.
    fn resource(&self, resource_type: i8, resource_name: &str) -> Result<ConfigResource, ControlError> {
        let name = resource_name.to_owned();
        match resource_type {
            ConfigResource::TYPE_TOPIC => Ok(ConfigResource::Topic(name)),
            ConfigResource::TYPE_BROKER if name.is_empty() => Ok(ConfigResource::DefaultBroker),
            ConfigResource::TYPE_BROKER => self.broker_by_name(&name).map(ConfigResource::Broker),
            ConfigResource::TYPE_CLIENT_METRICS => Ok(ConfigResource::ClientMetrics(name)),
            ConfigResource::TYPE_GROUP => Ok(ConfigResource::Group(name)),
            _ => Err(ControlError::UnknownResourceType { resource_type }),
        }
    }

    /// Clients send changes of a broker's configs to that broker.
    fn broker_by_name(&self, name: &str) -> Result<BrokerId, ControlError> {
        let Ok(received) = name.parse::<i32>() else {
            return Err(ControlError::NodeIdNotANumber { name: name.to_owned() });
        };
        let expected = self.settings().node_id;
        if BrokerId::from_wire(received) != Some(expected) {
            return Err(ControlError::UnexpectedBrokerId { expected, received });
        }
        Ok(expected)
    }
}

fn repeated_resources<'a>(names: impl Iterator<Item = (i8, &'a str)>) -> BTreeSet<(i8, String)> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).map(|(number, name)| (number, name.to_owned())).collect()
}

fn verify_distinct_keys<'a>(mut keys: impl Iterator<Item = &'a str>) -> Result<(), ControlError> {
    let mut seen = BTreeSet::new();
    if keys.all(|key| seen.insert(key)) { Ok(()) } else { Err(ControlError::DuplicateConfigKeys) }
}

fn verify_values<'a>(null_keys: impl Iterator<Item = &'a str>) -> Result<(), ControlError> {
    let keys: Vec<&str> = null_keys.collect();
    if keys.is_empty() { Ok(()) } else { Err(ControlError::NullConfigValues { keys: keys.join(", ") }) }
}

/// There are no loggers whose level could be changed by name.
fn verify_loggers<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<Vec<MetadataRecord>, ControlError> {
    match names.next() {
        Some(name) => Err(ControlError::UnknownLogger { name: name.to_owned() }),
        None => Ok(Vec::new()),
    }
}

fn apply(
    rules: &dyn ConfigRules,
    resource: &ConfigResource,
    configs: &mut BTreeMap<String, String>,
    change: &ConfigOperation,
) -> Result<(), ControlError> {
    let value = change.value.as_deref().unwrap_or_default();
    match change.operation {
        ConfigOperation::SET => drop(configs.insert(change.key.clone(), value.to_owned())),
        ConfigOperation::DELETE => drop(configs.remove(&change.key)),
        operation @ (ConfigOperation::APPEND | ConfigOperation::SUBTRACT) => {
            let appends = operation == ConfigOperation::APPEND;
            if !rules.is_list(resource, &change.key) {
                return Err(not_a_list(rules, resource, &change.key, appends));
            }
            let known = configs.get(&change.key).cloned();
            let known = known.or_else(|| rules.default_value(resource, &change.key)).unwrap_or_default();
            let mut elements: Vec<&str> = split_list(&known).filter(|element| !element.is_empty()).collect();
            for element in split_list(value) {
                let known = elements.iter().position(|known| *known == element);
                match (appends, known) {
                    (true, None) => elements.push(element),
                    (false, Some(index)) => drop(elements.remove(index)),
                    (true, Some(_)) | (false, None) => {}
                }
            }
            configs.insert(change.key.clone(), elements.join(","));
        }
        operation => return Err(ControlError::UnknownConfigOperation { operation }),
    }
    Ok(())
}

fn not_a_list(rules: &dyn ConfigRules, resource: &ConfigResource, key: &str, appends: bool) -> ControlError {
    let key = key.to_owned();
    match resource {
        ConfigResource::Broker(_) | ConfigResource::DefaultBroker if !rules.is_known(resource, &key) => {
            ControlError::UnknownBrokerKey { key }
        }
        ConfigResource::Broker(_) | ConfigResource::DefaultBroker => {
            ControlError::NotAListOfBroker { operation: if appends { "append" } else { "subtract" }, key }
        }
        ConfigResource::Topic(_) | ConfigResource::ClientMetrics(_) | ConfigResource::Group(_) => {
            ControlError::NotAList { operation: if appends { "APPEND" } else { "SUBTRACT" }, key }
        }
    }
}

/// The parts of a list as Kafka's controller sees them: spaces count, and so does an empty part that is not at the end, so that
/// appending nothing is not the same as changing nothing.
fn split_list(list: &str) -> impl Iterator<Item = &str> {
    let kept = list.trim_end_matches(',');
    let nothing = kept.is_empty() && !list.is_empty();
    kept.split(',').filter(move |_| !nothing)
}

/// Checks the outcome and says what differs. The order is Kafka's: the name, the configs, and only then whether there is such a
/// topic.
fn finish_change(
    image: &MetadataImage,
    rules: &dyn ConfigRules,
    resource: ConfigResource,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Result<Vec<MetadataRecord>, ControlError> {
    verify_lengths(after)?;
    verify_name(&resource)?;
    rules.validate(image, &resource, after)?;
    verify_exists(image, &resource)?;
    verify_min_in_sync_replicas(image, &resource, before, after)?;
    let removed = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key, None));
    let set =
        after.iter().filter(|(key, value)| before.get(*key) != Some(value)).map(|(key, value)| (key, Some(value)));
    let changed = removed.chain(set);
    Ok(changed
        .map(|(key, value)| MetadataRecord::Config {
            resource: resource.clone(),
            key: key.clone(),
            value: value.cloned(),
        })
        .collect())
}

fn verify_name(resource: &ConfigResource) -> Result<(), ControlError> {
    match resource {
        ConfigResource::Topic(name) if name.is_empty() => {
            Err(ControlError::DefaultResourceNotAllowed { what: "topic" })
        }
        ConfigResource::Topic(name) => Ok(validate_topic_name(name)?),
        ConfigResource::ClientMetrics(name) if name.is_empty() => Err(ControlError::SubscriptionNameEmpty),
        ConfigResource::Group(name) if name.is_empty() => {
            Err(ControlError::DefaultResourceNotAllowed { what: "group" })
        }
        ConfigResource::ClientMetrics(_)
        | ConfigResource::Group(_)
        | ConfigResource::Broker(_)
        | ConfigResource::DefaultBroker => Ok(()),
    }
}

/// Groups and subscriptions need not be there, and a broker's own changes come from that broker.
fn verify_exists(image: &MetadataImage, resource: &ConfigResource) -> Result<(), ControlError> {
    match resource {
        ConfigResource::Topic(name) if image.topic(name).is_none() => {
            Err(ControlError::UnknownTopicOfConfig { name: name.clone() })
        }
        ConfigResource::Topic(_)
        | ConfigResource::ClientMetrics(_)
        | ConfigResource::Group(_)
        | ConfigResource::Broker(_)
        | ConfigResource::DefaultBroker => Ok(()),
    }
}

/// A request cannot carry a longer text, but appending to a list, again and again, can make one.
fn verify_lengths(configs: &BTreeMap<String, String>) -> Result<(), ControlError> {
    match configs.iter().find(|(_, value)| value.len() > STRING_LEN_MAX) {
        Some((key, value)) => Err(ControlError::ConfigValueTooLong { key: key.clone(), len: value.len() }),
        None => Ok(()),
    }
}

/// With eligible leader replicas (KIP-966) the least size of the in-sync set is one number for the whole cluster.
fn verify_min_in_sync_replicas(
    image: &MetadataImage,
    resource: &ConfigResource,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Result<(), ControlError> {
    if image.feature_level(ELIGIBLE_LEADER_REPLICAS) == 0 {
        return Ok(());
    }
    let changes = before.get(MIN_IN_SYNC_REPLICAS) != after.get(MIN_IN_SYNC_REPLICAS);
    match resource {
        ConfigResource::Broker(_) if changes => Err(ControlError::BrokerMinInSyncReplicas),
        ConfigResource::DefaultBroker if changes && !after.contains_key(MIN_IN_SYNC_REPLICAS) => {
            Err(ControlError::ClusterMinInSyncReplicasRemoved)
        }
        ConfigResource::Topic(_)
        | ConfigResource::Broker(_)
        | ConfigResource::DefaultBroker
        | ConfigResource::ClientMetrics(_)
        | ConfigResource::Group(_) => Ok(()),
    }
}
