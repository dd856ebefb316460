//! A small blocking client of any Kafka-compatible broker, over our own protocol crate.
//!
//! One request at a time and connection, but for fetches, which are sent to all leaders before the first answer is
//! awaited. Requests go in the newest version that names topics by name and that both sides know.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use walser_protocol::frame::{SIZE_LEN, frame_len};
use walser_protocol::header::{ResponseHeader, encode_request};
use walser_protocol::messages::Body;
use walser_protocol::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use walser_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use walser_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use walser_protocol::{ApiKey, DecodeError, ErrorCode, Reader, Uuid};

use super::error::CliError;
use crate::driver::clock;

/// The largest answer taken: more than any `fetch.max.bytes` in use, less than what hurts.
const RESPONSE_BYTES_MAX: usize = 512 << 20;
const RETRY_BACKOFF: Duration = Duration::from_millis(100);
const DEFAULT_PORT: u16 = 9092;

/// Which broker, and how patiently. Part of every command that talks to one.
#[derive(Clone, Debug, clap::Args)]
pub struct ConnectArgs {
    /// Brokers to ask first, comma separated
    #[arg(
        short = 'b',
        long = "bootstrap-server",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9092",
        global = true
    )]
    pub bootstrap: String,
    /// Seconds to wait for a broker before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400), global = true)]
    pub timeout: u64,
    /// Name sent to the broker with every request
    #[arg(long, value_name = "NAME", default_value = "walser-cli", global = true)]
    pub client_id: String,
}

impl ConnectArgs {
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// A request's own timeout field.
    pub fn timeout_ms(&self) -> i32 {
        i32::try_from(self.timeout().as_millis()).unwrap_or(i32::MAX)
    }
}

/// An answer, still encoded: what is decoded from it borrows from it.
pub struct Response {
    frame: Vec<u8>,
    body_at: usize,
    version: i16,
    api: ApiKey,
    address: String,
}

impl Response {
    pub fn decode<'a, T>(
        &'a self,
        decode: impl FnOnce(&mut Reader<'a>, i16) -> Result<T, DecodeError>,
    ) -> Result<T, CliError> {
        let mut reader = Reader::new(self.frame.get(self.body_at..).unwrap_or_default());
        decode(&mut reader, self.version).map_err(|source| CliError::Decode {
            address: self.address.clone(),
            api: self.api,
            source,
        })
    }
}

/// A request on its way.
#[derive(Clone, Copy)]
pub struct Sent {
    api: ApiKey,
    version: i16,
    correlation_id: i32,
}

/// One connection, its versions negotiated.
pub struct Connection {
    stream: TcpStream,
    address: String,
    client_id: String,
    next_correlation_id: i32,
    versions: Vec<ApiVersion>,
}

impl Connection {
    fn open(address: &str, args: &ConnectArgs) -> Result<Self, CliError> {
        let stream = connect(address, args.timeout())
            .map_err(|source| CliError::Connect { address: address.to_owned(), source })?;
        let mut connection = Self {
            stream,
            address: address.to_owned(),
            client_id: args.client_id.clone(),
            next_correlation_id: 0,
            versions: Vec::new(),
        };
        connection.negotiate()?;
        Ok(connection)
    }

    /// A broker that does not know our version of ApiVersions answers in version 0 with its own range.
    fn negotiate(&mut self) -> Result<(), CliError> {
        let request = ApiVersionsRequest {
            client_software_name: "walser",
            client_software_version: env!("CARGO_PKG_VERSION"),
            ..ApiVersionsRequest::default()
        };
        for version in [3, 0] {
            let sent = self.send(ApiKey::ApiVersions, version, &request)?;
            let response = self.receive(sent)?;
            let code = response.decode(|reader, _| reader.i16("error_code"))?;
            if code == ErrorCode::UnsupportedVersion.code() && version > 0 {
                continue;
            }
            CliError::check(code, || format!("ApiVersions of {}", self.address), None)?;
            self.versions = response.decode(ApiVersionsResponse::decode)?.api_keys;
            return Ok(());
        }
        Ok(())
    }

    /// The newest version both sides know, at most `newest`.
    pub fn version(&self, api: ApiKey, newest: i16) -> Result<i16, CliError> {
        let spec = api.spec();
        let newest = newest.min(spec.version_max);
        let served = self.versions.iter().find(|served| served.api_key == api.code());
        let common = served.map(|served| newest.min(served.max_version));
        let oldest = served.map_or(0, |served| spec.version_min.max(served.min_version));
        common.filter(|version| *version >= oldest).ok_or_else(|| CliError::UnsupportedApi {
            address: self.address.clone(),
            api,
            min: spec.version_min,
            max: newest,
        })
    }

    pub fn send(&mut self, api: ApiKey, version: i16, body: &dyn Body) -> Result<Sent, CliError> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = self.next_correlation_id.wrapping_add(1);
        let frame = encode_request(api, version, correlation_id, Some(&self.client_id), body)?;
        self.stream.write_all(&frame).map_err(|source| self.lost(source))?;
        Ok(Sent { api, version, correlation_id })
    }

    /// Answers come in the order of their requests.
    pub fn receive(&mut self, sent: Sent) -> Result<Response, CliError> {
        let malformed = CliError::Frame { address: self.address.clone() };
        let mut size = [0; SIZE_LEN];
        self.stream.read_exact(&mut size).map_err(|source| self.lost(source))?;
        let Ok(len) = frame_len(size, SIZE_LEN, RESPONSE_BYTES_MAX) else { return Err(malformed) };
        // Grows with what arrives, so that a size alone costs nothing.
        let mut frame = Vec::new();
        let read = Read::by_ref(&mut self.stream).take(len as u64).read_to_end(&mut frame);
        read.map_err(|source| self.lost(source))?;
        if frame.len() < len {
            return Err(self.lost(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut reader = Reader::new(&frame);
        let header_version = sent.api.response_header_version(sent.version);
        match ResponseHeader::decode(&mut reader, header_version) {
            Ok(header) if header.correlation_id == sent.correlation_id => {}
            _ => return Err(malformed),
        }
        let body_at = frame.len() - reader.left().len();
        Ok(Response { frame, body_at, version: sent.version, api: sent.api, address: self.address.clone() })
    }

    fn lost(&self, source: io::Error) -> CliError {
        CliError::Connection { address: self.address.clone(), source }
    }
}

fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// `host` alone gets Kafka's port.
fn with_port(address: &str) -> String {
    let has_port = match address.rsplit_once(':') {
        Some((host, port)) => port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')),
        None => false,
    };
    if has_port { address.to_owned() } else { format!("{address}:{DEFAULT_PORT}") }
}

/// What a cluster says about itself, owned.
#[derive(Clone, Debug, Default)]
pub struct ClusterMetadata {
    pub topics: Vec<TopicMetadata>,
}

#[derive(Clone, Debug)]
pub struct TopicMetadata {
    pub name: String,
    pub topic_id: Uuid,
    pub error_code: i16,
    pub is_internal: bool,
    /// In the order of their index.
    pub partitions: Vec<PartitionMetadata>,
}

#[derive(Clone, Debug)]
pub struct PartitionMetadata {
    pub index: i32,
    pub error_code: i16,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub in_sync: Vec<i32>,
    pub offline: Vec<i32>,
}

/// Connections to the brokers of one cluster, opened when first needed.
pub struct Client {
    args: ConnectArgs,
    bootstrap: Option<Connection>,
    nodes: BTreeMap<i32, Connection>,
    addresses: BTreeMap<i32, String>,
    controller_id: i32,
}

impl Client {
    pub fn connect(args: &ConnectArgs) -> Result<Self, CliError> {
        let mut client = Self {
            args: args.clone(),
            bootstrap: None,
            nodes: BTreeMap::new(),
            addresses: BTreeMap::new(),
            controller_id: -1,
        };
        client.any()?;
        Ok(client)
    }

    pub fn args(&self) -> &ConnectArgs {
        &self.args
    }

    /// A connection to whichever bootstrap broker answers first.
    fn any(&mut self) -> Result<&mut Connection, CliError> {
        let connection = match self.bootstrap.take() {
            Some(open) => open,
            None => self.open_bootstrap()?,
        };
        Ok(self.bootstrap.insert(connection))
    }

    fn open_bootstrap(&self) -> Result<Connection, CliError> {
        let mut last = CliError::Usage("--bootstrap-server is empty".to_owned());
        for address in self.args.bootstrap.split(',').map(str::trim).filter(|address| !address.is_empty()) {
            match Connection::open(&with_port(address), &self.args) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A connection to one broker of the last metadata answer.
    pub fn node(&mut self, node_id: i32) -> Result<&mut Connection, CliError> {
        let connection = match (self.nodes.remove(&node_id), self.addresses.get(&node_id)) {
            (Some(open), _) => open,
            (None, Some(address)) => Connection::open(address, &self.args)?,
            (None, None) => {
                let code = ErrorCode::LeaderNotAvailable.code();
                return Err(CliError::Kafka { subject: format!("broker {node_id}"), code, message: None });
            }
        };
        Ok(self.nodes.entry(node_id).or_insert(connection))
    }

    /// Drops all connections: after an error it is not known what is still on its way.
    pub fn disconnect(&mut self) {
        self.bootstrap = None;
        self.nodes.clear();
    }

    pub fn request_any(&mut self, api: ApiKey, newest: i16, body: &dyn Body) -> Result<Response, CliError> {
        let connection = self.any()?;
        let version = connection.version(api, newest)?;
        let sent = connection.send(api, version, body)?;
        connection.receive(sent)
    }

    pub fn request_node(
        &mut self,
        node_id: i32,
        api: ApiKey,
        newest: i16,
        body: &dyn Body,
    ) -> Result<Response, CliError> {
        let connection = self.node(node_id)?;
        let version = connection.version(api, newest)?;
        let sent = connection.send(api, version, body)?;
        connection.receive(sent)
    }

    /// For what only a controller may change; any broker of a KRaft cluster passes it on.
    pub fn request_controller(&mut self, api: ApiKey, newest: i16, body: &dyn Body) -> Result<Response, CliError> {
        if self.controller_id < 0 {
            self.metadata(Some(&[]), false)?;
        }
        if self.addresses.contains_key(&self.controller_id) {
            return self.request_node(self.controller_id, api, newest, body);
        }
        self.request_any(api, newest, body)
    }

    /// Of all topics for `None`.
    pub fn metadata(&mut self, topics: Option<&[&str]>, auto_create: bool) -> Result<ClusterMetadata, CliError> {
        let request = MetadataRequest {
            topics: topics.map(|names| {
                names.iter().map(|name| MetadataRequestTopic { name: Some(name), ..Default::default() }).collect()
            }),
            allow_auto_topic_creation: auto_create,
            ..MetadataRequest::default()
        };
        let response = self.request_any(ApiKey::Metadata, 12, &request)?;
        let answer = response.decode(MetadataResponse::decode)?;
        self.controller_id = answer.controller_id;
        self.addresses =
            answer.brokers.iter().map(|broker| (broker.node_id, host_port(broker.host, broker.port))).collect();
        Ok(ClusterMetadata { topics: answer.topics.iter().map(TopicMetadata::from_wire).collect() })
    }

    /// Waits until the topic is there and each of its partitions has a leader.
    pub fn topic(&mut self, name: &str, auto_create: bool) -> Result<TopicMetadata, CliError> {
        let what = format!("metadata of topic {name}");
        let mut retry = Retry::new(&self.args, what);
        loop {
            let found = self.metadata(Some(&[name]), auto_create).and_then(|metadata| metadata.only_topic(name));
            match found {
                Ok(topic) => return Ok(topic),
                // Without auto-creation a topic that is not there stays away.
                Err(error) if !error.is_retriable() || (!auto_create && is_unknown_topic(&error)) => return Err(error),
                Err(error) => retry.after(error)?,
            }
            self.disconnect();
        }
    }

    /// The offsets of timestamps (or of -1 latest, -2 earliest …) of partitions of one topic; `None` where there is none.
    pub fn list_offsets(
        &mut self,
        topic: &TopicMetadata,
        wanted: &[(i32, i64)],
        isolation_level: i8,
    ) -> Result<BTreeMap<i32, Option<i64>>, CliError> {
        let mut by_leader: BTreeMap<i32, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for (partition_index, timestamp) in wanted {
            let leader_id = topic.leader(*partition_index)?;
            by_leader.entry(leader_id).or_default().push(ListOffsetsPartition {
                partition_index: *partition_index,
                current_leader_epoch: -1,
                timestamp: *timestamp,
            });
        }
        let mut offsets = BTreeMap::new();
        for (leader_id, partitions) in by_leader {
            let request = ListOffsetsRequest {
                replica_id: -1,
                isolation_level,
                topics: vec![ListOffsetsTopic { name: &topic.name, partitions }],
                ..ListOffsetsRequest::default()
            };
            let response = self.request_node(leader_id, ApiKey::ListOffsets, 9, &request)?;
            let answer = response.decode(ListOffsetsResponse::decode)?;
            for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                let subject = || format!("offsets of {}-{}", topic.name, partition.partition_index);
                CliError::check(partition.error_code, subject, None)?;
                offsets.insert(partition.partition_index, (partition.offset >= 0).then_some(partition.offset));
            }
        }
        Ok(offsets)
    }
}

fn is_unknown_topic(error: &CliError) -> bool {
    matches!(error, CliError::Kafka { code, .. } if *code == ErrorCode::UnknownTopicOrPartition.code())
}

fn host_port(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl ClusterMetadata {
    fn only_topic(self, name: &str) -> Result<TopicMetadata, CliError> {
        let unknown = ErrorCode::UnknownTopicOrPartition.code();
        let topic = self.topics.into_iter().find(|topic| topic.name == name);
        let subject = || format!("topic {name}");
        let topic = topic.ok_or_else(|| CliError::Kafka { subject: subject(), code: unknown, message: None })?;
        CliError::check(topic.error_code, subject, None)?;
        for partition in &topic.partitions {
            // A partition may lack a replica and serve all the same.
            let usable = partition.error_code == ErrorCode::ReplicaNotAvailable.code();
            let code = if usable { 0 } else { partition.error_code };
            CliError::check(code, || format!("{name}-{}", partition.index), None)?;
        }
        Ok(topic)
    }
}

impl TopicMetadata {
    fn from_wire(topic: &walser_protocol::messages::metadata::MetadataResponseTopic<'_>) -> Self {
        let mut partitions: Vec<_> = topic
            .partitions
            .iter()
            .map(|partition| PartitionMetadata {
                index: partition.partition_index,
                error_code: partition.error_code,
                leader_id: partition.leader_id,
                leader_epoch: partition.leader_epoch,
                replicas: partition.replica_nodes.clone(),
                in_sync: partition.isr_nodes.clone(),
                offline: partition.offline_replicas.clone(),
            })
            .collect();
        partitions.sort_by_key(|partition| partition.index);
        Self {
            name: topic.name.unwrap_or_default().to_owned(),
            topic_id: topic.topic_id,
            error_code: topic.error_code,
            is_internal: topic.is_internal,
            partitions,
        }
    }

    pub fn leader(&self, partition_index: i32) -> Result<i32, CliError> {
        let partition = self.partitions.iter().find(|partition| partition.index == partition_index);
        let code = match partition {
            Some(partition) if partition.leader_id >= 0 => return Ok(partition.leader_id),
            Some(_) => ErrorCode::LeaderNotAvailable.code(),
            None => ErrorCode::UnknownTopicOrPartition.code(),
        };
        Err(CliError::Kafka { subject: format!("{}-{partition_index}", self.name), code, message: None })
    }
}

/// Tries again until the command's timeout has passed.
pub struct Retry {
    what: String,
    timeout: Duration,
    started: walser_storage::runtime::Instant,
}

impl Retry {
    pub fn new(args: &ConnectArgs, what: String) -> Self {
        Self { what, timeout: args.timeout(), started: clock::monotonic() }
    }

    /// Waits a little; gives `error` back in an error of its own when time is up.
    #[expect(clippy::disallowed_methods, reason = "a command line client has a thread to itself")]
    pub fn after(&mut self, error: CliError) -> Result<(), CliError> {
        if clock::monotonic().saturating_since(self.started) >= self.timeout {
            let what = std::mem::take(&mut self.what);
            return Err(CliError::Deadline { what, seconds: self.timeout.as_secs(), last: error.to_string() });
        }
        std::thread::sleep(RETRY_BACKOFF);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_gets_kafkas() {
        // Rule: host, host:port, and IPv6 with and without a port.
        for (address, want) in [
            ("localhost", "localhost:9092"),
            ("localhost:1", "localhost:1"),
            ("[::1]", "[::1]:9092"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(with_port(address), want);
        }
        assert_eq!((host_port("::1", 9), host_port("h", 9)), ("[::1]:9".to_owned(), "h:9".to_owned()));
    }
}
