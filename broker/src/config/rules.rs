//! The definitions of configs as the controller asks for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use walser_machine::ids::BrokerId;
use walser_machine::metadata::MetadataImage;
use walser_machine::metadata::controller::{ConfigRejection, ConfigRejectionKind, ConfigRules};
use walser_machine::metadata::records::ConfigResource;

use super::alter::{AlterError, AlterErrorKind, Resource, validate};
use super::broker::BrokerConfig;
use super::dynamic::verify_update;
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

    /// This broker's configs as they are.
    pub fn view<'a>(&'a self, image: &'a MetadataImage) -> BrokerView<'a> {
        let own = BrokerId::from_wire(self.0.node_id).map(ConfigResource::Broker);
        let fixed = BrokerView::fixed(&self.0);
        BrokerView {
            own: own.map_or(fixed.own, |own| image.configs(&own)),
            cluster: image.configs(&ConfigResource::DefaultBroker),
            ..fixed
        }
    }

    fn check(
        &self,
        image: &MetadataImage,
        resource: &ConfigResource,
        after: &BTreeMap<String, String>,
    ) -> Result<(), AlterError> {
        let kind = match resource {
            ConfigResource::Topic(_) => Resource::Topic,
            ConfigResource::Broker(_) => Resource::Broker,
            ConfigResource::DefaultBroker => Resource::Cluster,
            ConfigResource::ClientMetrics(_) => Resource::ClientMetrics,
            ConfigResource::Group(_) => Resource::Group,
        };
        validate(kind, after, &self.0)?;
        let now = self.view(image);
        match kind {
            Resource::Broker => verify_update(&now, &BrokerView { own: after, ..now }),
            Resource::Cluster => verify_update(&now, &BrokerView { cluster: after, ..now }),
            Resource::Topic | Resource::Group | Resource::ClientMetrics => Ok(()),
        }
    }
}

impl ConfigRules for BrokerRules {
    fn is_list(&self, resource: &ConfigResource, key: &str) -> bool {
        match resource {
            // Kafka's controller knows no types of theirs, and appends to nothing.
            ConfigResource::ClientMetrics(_) | ConfigResource::Group(_) => false,
            ConfigResource::Topic(_) | ConfigResource::Broker(_) | ConfigResource::DefaultBroker => {
                Self::key(resource, key).is_some_and(|key| key.kind == ConfigType::List)
            }
        }
    }

    fn is_cordoned(&self, image: &MetadataImage, broker_id: BrokerId) -> bool {
        broker_id.get() == self.0.node_id && self.view(image).cordoned().iter().all(|is_cordoned| *is_cordoned)
    }

    fn is_known(&self, resource: &ConfigResource, key: &str) -> bool {
        Self::key(resource, key).is_some()
    }

    fn default_value(&self, resource: &ConfigResource, name: &str) -> Option<String> {
        // What the broker was started with does not count here, as in Kafka.
        Self::key(resource, name)?.default.map(str::to_owned)
    }

    fn validate(
        &self,
        image: &MetadataImage,
        resource: &ConfigResource,
        after: &BTreeMap<String, String>,
    ) -> Result<(), ConfigRejection> {
        self.check(image, resource, after).map_err(|error| ConfigRejection {
            kind: match error.kind() {
                AlterErrorKind::InvalidConfig => ConfigRejectionKind::InvalidConfig,
                AlterErrorKind::InvalidRequest => ConfigRejectionKind::InvalidRequest,
            },
            message: error.to_string(),
        })
    }
}
