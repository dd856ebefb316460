//! What DescribeLogDirs says of a broker's directories, and what AlterReplicaLogDirs does to them.

use std::collections::BTreeMap;

use walser_protocol::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse,
};
use walser_protocol::messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use walser_protocol::{ApiKey, ErrorCode};

use crate::raw_client::RawClient;

const VERSION: i16 = 5;
const ALTER_VERSION: i16 = 2;

/// A replica in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    pub bytes: i64,
    pub lag: i64,
    pub is_future: bool,
}

/// One directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub path: String,
    pub error: ErrorCode,
    pub is_cordoned: bool,
    pub total_bytes: i64,
    pub usable_bytes: i64,
    /// By topic and partition; a copy under way and the replica it is of are never in the same directory.
    pub replicas: BTreeMap<(String, i32), Replica>,
}

/// All directories, in the order of their paths.
///
/// # Errors
/// When there is no answer, or one that makes no sense.
pub fn describe(client: &mut RawClient) -> Result<Vec<Described>, String> {
    let request = DescribeLogDirsRequest { topics: None };
    let answer = client.call(ApiKey::DescribeLogDirs, VERSION, &request).map_err(|error| error.to_string())?;
    let answer = DescribeLogDirsResponse::decode(&mut answer.reader(), VERSION).map_err(|error| error.to_string())?;
    let mut described = Vec::new();
    for dir in answer.results {
        let mut replicas = BTreeMap::new();
        for topic in dir.topics {
            for partition in topic.partitions {
                let replica = Replica {
                    bytes: partition.partition_size,
                    lag: partition.offset_lag,
                    is_future: partition.is_future_key,
                };
                replicas.insert((topic.name.to_owned(), partition.partition_index), replica);
            }
        }
        described.push(Described {
            path: dir.log_dir.to_owned(),
            error: ErrorCode::from_wire(dir.error_code).ok_or("an unknown error")?,
            is_cordoned: dir.is_cordoned,
            total_bytes: dir.total_bytes,
            usable_bytes: dir.usable_bytes,
            replicas,
        });
    }
    described.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(described)
}

/// Has a replica moved into a directory; what is answered.
///
/// # Errors
/// When there is no answer, or one that makes no sense.
pub fn alter(client: &mut RawClient, path: &str, name: &str, partition: i32) -> Result<ErrorCode, String> {
    let topic = AlterReplicaLogDirTopic { name, partitions: vec![partition] };
    let request = AlterReplicaLogDirsRequest { dirs: vec![AlterReplicaLogDir { path, topics: vec![topic] }] };
    let answer =
        client.call(ApiKey::AlterReplicaLogDirs, ALTER_VERSION, &request).map_err(|error| error.to_string())?;
    let answer = AlterReplicaLogDirsResponse::decode(&mut answer.reader(), ALTER_VERSION);
    let answer = answer.map_err(|error| error.to_string())?;
    let partition = answer.results.first().and_then(|topic| topic.partitions.first()).ok_or("an empty answer")?;
    ErrorCode::from_wire(partition.error_code).ok_or_else(|| "an unknown error".to_owned())
}
