//! The definitions of configs as the controller asks for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use walser_machine::metadata::controller::{ConfigRejection, ConfigRejectionKind, ConfigRules};
use walser_machine::metadata::records::ConfigResource;

use super::alter::{AlterErrorKind, Resource, validate};
use super::broker::BrokerConfig;
use super::key::{ConfigKey, ConfigType};
use super::keys::{BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS};
use super::view::BrokerView;

/// Kafka's keys and ours, with what this broker was started with as defaults.
pub struct BrokerRules(pub Arc<BrokerConfig>);

impl BrokerRules {
    fn key(resource: &ConfigResource, name: &str) -> Option<&'static ConfigKey> {
        match resource {
            ConfigResource::Topic(_) => TOPIC_KEYS.find(name),
            ConfigResource::Broker(_) | ConfigResource::DefaultBroker => BROKER_KEYS.find(name),
            ConfigResource::ClientMetrics(_) => CLIENT_METRICS_KEYS.find(name),
            ConfigResource::Group(_) => GROUP_KEYS.find(name),
        }
    }
}

impl ConfigRules for BrokerRules {
    fn is_list(&self, resource: &ConfigResource, key: &str) -> bool {
        Self::key(resource, key).is_some_and(|key| key.kind == ConfigType::List)
    }

    fn is_known(&self, resource: &ConfigResource, key: &str) -> bool {
        Self::key(resource, key).is_some()
    }

    fn default_value(&self, resource: &ConfigResource, name: &str) -> Option<String> {
        let key = Self::key(resource, name)?;
        let view = BrokerView::fixed(&self.0);
        match resource {
            ConfigResource::Broker(_) | ConfigResource::DefaultBroker => {
                view.value(name).map(|value| value.to_string())
            }
            ConfigResource::Topic(_) | ConfigResource::ClientMetrics(_) | ConfigResource::Group(_) => {
                key.default.map(str::to_owned)
            }
        }
    }

    fn validate(
        &self,
        resource: &ConfigResource,
        _before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> Result<(), ConfigRejection> {
        let resource = match resource {
            ConfigResource::Topic(_) => Resource::Topic,
            ConfigResource::Broker(_) => Resource::Broker,
            ConfigResource::DefaultBroker => Resource::Cluster,
            ConfigResource::ClientMetrics(_) => Resource::ClientMetrics,
            ConfigResource::Group(_) => Resource::Group,
        };
        validate(resource, after, &self.0).map_err(|error| ConfigRejection {
            kind: match error.kind() {
                AlterErrorKind::InvalidConfig => ConfigRejectionKind::InvalidConfig,
                AlterErrorKind::InvalidRequest => ConfigRejectionKind::InvalidRequest,
            },
            message: error.to_string(),
        })
    }
}
