//! Every setting once: its Kafka name, type, default, range, where it may change, and a sentence.
//!
//! | module | subject |
//! | --- | --- |
//! | [`key`] | what a key is and how its values are read and shown |
//! | [`keys`] | the declarations |
//! | [`properties`], [`listeners`], [`broker`] | what a broker starts with |
//! | [`view`] | what counts now: dynamic values over static ones over defaults |
//! | [`describe`] | answers of DescribeConfigs |
//! | [`alter`], [`dynamic`], `java_pattern` | checks of changes: of each value, and of what they come to together |
//! | [`topic`] | a topic's configs, typed |
//! | [`group`] | what coordinators of groups are told |

pub mod alter;
pub mod broker;
pub mod describe;
pub mod dynamic;
pub mod group;
mod java_pattern;
pub mod key;
pub mod keys;
pub mod listeners;
pub mod properties;
pub mod rules;
pub mod topic;
pub mod view;

pub use broker::{BrokerConfig, Notice, Settings, SettingsError};
pub use listeners::Endpoint;
pub use topic::{Durability, TopicConfig};
pub use view::BrokerView;
