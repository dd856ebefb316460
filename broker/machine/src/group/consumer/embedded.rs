//! The blobs that consumers put into JoinGroup and SyncGroup: a version, then a subscription or an assignment.

use bytes::Bytes;
use walser_protocol::messages::records::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition, ConsumerProtocolSubscription,
};
use walser_protocol::{DecodeError, Reader, Writer};

use super::topics::Topics;
use crate::group::assignor::Assignment;

/// Later versions only add fields at the end.
const VERSION_MAX: i16 = 3;

/// The version of a blob, as far as it is known here.
pub fn version(blob: &[u8]) -> Result<i16, DecodeError> {
    let raw = Reader::new(blob).i16("version")?;
    Ok(raw.min(VERSION_MAX))
}

pub fn subscription(blob: &[u8]) -> Result<ConsumerProtocolSubscription<'_>, DecodeError> {
    let version = version(blob)?;
    let mut reader = Reader::new(blob);
    reader.i16("version")?;
    ConsumerProtocolSubscription::decode(&mut reader, version)
}

/// What the member says it has, of topics that exist.
pub fn owned_partitions(subscription: &ConsumerProtocolSubscription<'_>, topics: &Topics) -> Assignment {
    let known = subscription.owned_partitions.iter().filter_map(|topic| Some((topics.id(topic.topic)?, topic)));
    known.flat_map(|(id, topic)| topic.partitions.iter().map(move |index| (id, *index))).collect()
}

/// An assignment of topics that exist, and whether there is more in it than partitions.
pub fn read_assignment(blob: &[u8], topics: &Topics) -> Result<(Assignment, bool), DecodeError> {
    if blob.is_empty() {
        return Ok((Assignment::default(), false));
    }
    let version = version(blob)?;
    let mut reader = Reader::new(blob);
    reader.i16("version")?;
    let assignment = ConsumerProtocolAssignment::decode(&mut reader, version)?;
    let known = assignment.assigned_partitions.iter().filter_map(|topic| Some((topics.id(topic.topic)?, topic)));
    let partitions = known.flat_map(|(id, topic)| topic.partitions.iter().map(move |index| (id, *index))).collect();
    Ok((partitions, assignment.user_data.is_some_and(|user_data| !user_data.is_empty())))
}

/// The blob a client of that version understands. `None` where a topic's name cannot be written.
pub fn write_assignment(assignment: &Assignment, version: i16, topics: &Topics) -> Option<Bytes> {
    let known = assignment.topics().filter_map(|(topic_id, indexes)| {
        let partitions = indexes.iter().copied().collect();
        Some(ConsumerProtocolAssignmentTopicPartition { topic: topics.name(topic_id)?, partitions })
    });
    let body = ConsumerProtocolAssignment { assigned_partitions: known.collect(), user_data: None };
    let version = version.clamp(0, VERSION_MAX);
    let mut writer = Writer::with_capacity(64);
    writer.i16(version);
    body.encode(&mut writer, version).ok()?;
    Some(writer.into_inner().freeze())
}
