//! What changed from one image to a later one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::image::{MetadataImage, TopicImage};
use super::records::ConfigResource;
use crate::ids::TopicId;

/// The difference of two images, for shards that reconcile what they own. A topic deleted and made again under its old name is one
/// deletion and one creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataDelta {
    pub topics_created: Vec<Arc<TopicImage>>,
    /// As they last were.
    pub topics_deleted: Vec<Arc<TopicImage>>,
    pub topics_changed: Vec<TopicChange>,
    /// Resources whose keys changed; those of deleted topics included.
    pub configs_changed: BTreeSet<ConfigResource>,
    pub brokers_changed: bool,
    pub features_changed: bool,
}

/// A topic in both images that differs: more partitions, other leaders, other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicChange {
    pub before: Arc<TopicImage>,
    pub after: Arc<TopicImage>,
}

impl MetadataDelta {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Collects what replay touches.
#[derive(Debug, Default)]
pub(super) struct DeltaBuilder {
    /// The topic as the base image has it; `None` where it has none of this id.
    touched: BTreeMap<TopicId, Option<Arc<TopicImage>>>,
    pub(super) configs_changed: BTreeSet<ConfigResource>,
    pub(super) brokers_changed: bool,
    pub(super) features_changed: bool,
}

impl DeltaBuilder {
    /// Only the first touch counts: later ones see states that no image ever had.
    pub(super) fn touch_topic(&mut self, topic_id: TopicId, before: Option<Arc<TopicImage>>) {
        self.touched.entry(topic_id).or_insert(before);
    }

    pub(super) fn touch_topic_before_change(&mut self, topic: &Arc<TopicImage>) {
        self.touched.entry(topic.topic_id).or_insert_with(|| Some(topic.clone()));
    }

    pub(super) fn finish(self, next: &MetadataImage) -> MetadataDelta {
        let mut delta = MetadataDelta {
            configs_changed: self.configs_changed,
            brokers_changed: self.brokers_changed,
            features_changed: self.features_changed,
            ..MetadataDelta::default()
        };
        for (topic_id, before) in self.touched {
            match (before, next.topic_by_id(topic_id).cloned()) {
                (None, Some(created)) => delta.topics_created.push(created),
                (Some(deleted), None) => delta.topics_deleted.push(deleted),
                (Some(before), Some(after)) => {
                    if before != after {
                        delta.topics_changed.push(TopicChange { before, after });
                    }
                }
                (None, None) => {}
            }
        }
        delta
    }
}
