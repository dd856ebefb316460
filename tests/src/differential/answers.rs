//! Answers decoded into trees, record batches within them included.

use walser_protocol::records::batch::{BatchView, Batches};
use walser_protocol::records::compression::decompress;
use walser_protocol::{ApiKey, DecodeError, Reader};

use super::tree::Tree;

/// No batch of a run is larger.
const BATCH_BYTES_MAX: usize = 16 << 20;

macro_rules! answers {
    ($key:expr, $version:expr, $body:expr, $($variant:ident => $module:ident :: $message:ident),* $(,)?) => {
        match $key {
            $(ApiKey::$variant => {
                let mut reader = Reader::new($body);
                let message = walser_protocol::messages::$module::$message::decode(&mut reader, $version)?;
                reader.expect_end()?;
                Tree::from_debug(&format!("{message:?}"))
            })*
            _ => panic!("{} is asked for, and nothing here reads its answers", $key),
        }
    };
}

/// Decodes the body of an answer; bytes left over are an error.
///
/// # Panics
/// On a key whose answers are not listed here.
pub fn decode(key: ApiKey, version: i16, body: &[u8]) -> Result<Tree, DecodeError> {
    let mut tree = answers!(key, version, body,
        Produce => produce::ProduceResponse,
        Fetch => fetch::FetchResponse,
        ListOffsets => list_offsets::ListOffsetsResponse,
        Metadata => metadata::MetadataResponse,
        OffsetCommit => offset_commit::OffsetCommitResponse,
        OffsetFetch => offset_fetch::OffsetFetchResponse,
        FindCoordinator => find_coordinator::FindCoordinatorResponse,
        JoinGroup => join_group::JoinGroupResponse,
        Heartbeat => heartbeat::HeartbeatResponse,
        LeaveGroup => leave_group::LeaveGroupResponse,
        SyncGroup => sync_group::SyncGroupResponse,
        DescribeGroups => describe_groups::DescribeGroupsResponse,
        ListGroups => list_groups::ListGroupsResponse,
        ApiVersions => api_versions::ApiVersionsResponse,
        CreateTopics => create_topics::CreateTopicsResponse,
        DeleteTopics => delete_topics::DeleteTopicsResponse,
        DeleteRecords => delete_records::DeleteRecordsResponse,
        InitProducerId => init_producer_id::InitProducerIdResponse,
        OffsetForLeaderEpoch => offset_for_leader_epoch::OffsetForLeaderEpochResponse,
        DescribeConfigs => describe_configs::DescribeConfigsResponse,
        AlterConfigs => alter_configs::AlterConfigsResponse,
        AlterReplicaLogDirs => alter_replica_log_dirs::AlterReplicaLogDirsResponse,
        DescribeLogDirs => describe_log_dirs::DescribeLogDirsResponse,
        CreatePartitions => create_partitions::CreatePartitionsResponse,
        DeleteGroups => delete_groups::DeleteGroupsResponse,
        IncrementalAlterConfigs => incremental_alter_configs::IncrementalAlterConfigsResponse,
        OffsetDelete => offset_delete::OffsetDeleteResponse,
        DescribeQuorum => describe_quorum::DescribeQuorumResponse,
        DescribeCluster => describe_cluster::DescribeClusterResponse,
        DescribeProducers => describe_producers::DescribeProducersResponse,
        ConsumerGroupHeartbeat => consumer_group_heartbeat::ConsumerGroupHeartbeatResponse,
        ConsumerGroupDescribe => consumer_group_describe::ConsumerGroupDescribeResponse,
        ListConfigResources => list_config_resources::ListConfigResourcesResponse,
        DescribeTopicPartitions => describe_topic_partitions::DescribeTopicPartitionsResponse,
    );
    if key == ApiKey::Fetch {
        let message = walser_protocol::messages::fetch::FetchResponse::decode(&mut Reader::new(body), version)?;
        let mut all = message
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|partition| partition.records.and_then(walser_protocol::types::Records::as_whole).map(batches));
        tree.visit_mut(&mut String::new(), &mut |path, node| {
            if path == ".responses[].partitions[].records"
                && let Some(Some(found)) = all.next()
            {
                *node = Tree::List(found);
            }
        });
        merge_topics(&mut tree);
    }
    Ok(tree)
}

/// A topic may come in several pieces, for what is in error is listed apart from what is not.
fn merge_topics(tree: &mut Tree) {
    let Tree::Fields(fields) = tree else { return };
    let Some((_, Tree::List(topics))) = fields.iter_mut().find(|(name, _)| name == "responses") else { return };
    let mut merged: Vec<Tree> = Vec::new();
    for topic in topics.drain(..) {
        let same = |other: &&mut Tree| ["topic", "topic_id"].iter().all(|name| other.field(name) == topic.field(name));
        match (merged.iter_mut().find(same), topic.field("partitions")) {
            (Some(Tree::Fields(known)), Some(Tree::List(more))) => {
                for (name, value) in known {
                    if let ("partitions", Tree::List(partitions)) = (name.as_str(), value) {
                        partitions.extend(more.iter().cloned());
                    }
                }
            }
            _ => merged.push(topic),
        }
    }
    *topics = merged;
}

/// Whole batches only: where the last one is cut is up to how a broker reads its files.
fn batches(bytes: &[u8]) -> Vec<Tree> {
    Batches::new(bytes).map_while(Result::ok).map(|batch| batch_tree(&batch)).collect()
}

fn batch_tree(batch: &BatchView<'_>) -> Tree {
    let mut plain = Vec::new();
    let payload = match batch.compression_type() {
        Ok(codec) if decompress(codec, batch.records_bytes(), &mut plain, BATCH_BYTES_MAX).is_ok() => hash(&plain),
        _ => hash(batch.records_bytes()),
    };
    let fields: [(&str, String); 14] = [
        ("base_offset", batch.base_offset().to_string()),
        ("last_offset_delta", batch.last_offset_delta().to_string()),
        ("batch_length", batch.batch_length().to_string()),
        ("partition_leader_epoch", batch.partition_leader_epoch().to_string()),
        ("magic", batch.magic().to_string()),
        ("crc_is_right", batch.verify_crc().is_ok().to_string()),
        ("attributes", batch.attributes().bits().to_string()),
        ("base_timestamp", batch.base_timestamp().to_string()),
        ("max_timestamp", batch.max_timestamp().to_string()),
        ("producer_id", batch.producer_id().to_string()),
        ("producer_epoch", batch.producer_epoch().to_string()),
        ("base_sequence", batch.base_sequence().to_string()),
        ("record_count", batch.record_count().to_string()),
        ("records", payload),
    ];
    Tree::Fields(fields.into_iter().map(|(name, value)| (name.to_owned(), Tree::Value(value))).collect())
}

/// FNV-1a: enough to tell two payloads apart, and short in a report.
fn hash(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    format!("{} bytes {hash:016x}", bytes.len())
}
