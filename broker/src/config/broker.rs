//! The configuration a broker starts with: `server.properties`, then `--set`, later ones winning.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tracing_subscriber::filter::Targets;

use super::dynamic::verify_cordoned;
use super::group::verify_groups;
use super::key::{ConfigError, ConfigKey, Effect, Value, cpu_list, memory_size};
use super::keys::{BROKER_KEYS, listener_key};
use super::listeners::{
    self, Endpoint, ListenerError, SecurityProtocol, parse_endpoints, parse_protocols, verify_advertised, verify_ports,
};
use super::properties::{self, PropertiesError};
use super::view::BrokerView;

/// Why a broker does not start with what it was given. Each names the key and the remedy; the exit code is 2.
#[derive(Debug, Error)]
pub enum SettingsError {
    #[error("cannot read {}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Properties { path: PathBuf, error: PropertiesError },
    #[error("--set takes key=value, not '{0}'")]
    Set(String),
    #[error("{0}")]
    Value(#[from] ConfigError),
    #[error("{key}: {error}")]
    Listener { key: &'static str, error: ListenerError },
    #[error("{key}={value}: {reason}")]
    NotSupported { key: String, value: String, reason: &'static str },
    #[error("{key}={value}: {reason}")]
    Contradiction { key: &'static str, value: String, reason: &'static str },
}

/// Something the operator should know of, which does not stop the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Nobody knows this key.
    Unknown(String),
    /// Kafka has dropped this key; it is ignored.
    Removed(String),
    /// These are accepted and shown, but nothing depends on them.
    Inert(Vec<String>),
    /// Listeners of the controller: with one node nobody connects to them.
    ControllerListener(String),
}

impl std::fmt::Display for Notice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(key) => write!(formatter, "unknown key {key}: it is kept, but nothing reads it"),
            Self::Removed(key) => write!(formatter, "{key} no longer exists in Kafka 4 and is ignored; remove it"),
            Self::Inert(keys) => write!(formatter, "accepted, but not acted upon: {}", keys.join(", ")),
            Self::ControllerListener(name) => {
                write!(
                    formatter,
                    "listener {name} belongs to the controller and is not opened: this node is the whole quorum"
                )
            }
        }
    }
}

/// The static configuration: what was given, read and checked.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// As given, with node.id, broker.id and process.roles filled in; unknown keys included.
    given: BTreeMap<String, String>,
    pub node_id: i32,
    pub rack: Option<String>,
    /// What is bound; the controller's listeners are left out. At least one.
    pub listeners: Vec<Endpoint>,
    /// What the configuration advertises; see [`Self::advertise`].
    pub advertised_listeners: Vec<Endpoint>,
    /// Listener brokers use among themselves; one of `listeners`.
    pub inter_broker_listener: String,
    /// As given, at least one.
    pub log_dirs: Vec<PathBuf>,
    /// Where the metadata log is: `metadata.log.dir`, or the first of `log.dirs`.
    pub metadata_log_dir: PathBuf,
    /// `None`: as many as CPUs are allowed.
    pub shards: Option<usize>,
    /// `None`: the affinity mask.
    pub cpus: Option<Vec<usize>>,
    /// Bytes; `None`: a share of the machine's.
    pub memory_bytes: Option<u64>,
    pub spin: Duration,
    pub http_listener: Option<String>,
    pub log_filter: String,
    /// Bytes; `None` leaves it to the system.
    pub socket_send_buffer_bytes: Option<usize>,
    pub socket_receive_buffer_bytes: Option<usize>,
    pub socket_backlog: i32,
    /// Largest request frame, without its size prefix.
    pub request_bytes_max: usize,
    /// `None`: connections are never closed for being silent.
    pub connection_idle_max: Option<Duration>,
}

/// Where settings come from, in the order in which later ones win.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    given: BTreeMap<String, String>,
}

impl Settings {
    /// Takes the pairs of a `server.properties`.
    #[expect(clippy::disallowed_methods, reason = "read before any shard exists, never from one")]
    pub fn read_file(&mut self, path: &Path) -> Result<(), SettingsError> {
        let text = std::fs::read_to_string(path).map_err(|error| SettingsError::File { path: path.into(), error })?;
        let pairs = properties::parse(&text).map_err(|error| SettingsError::Properties { path: path.into(), error })?;
        self.given.extend(pairs);
        Ok(())
    }

    /// Takes a `key=value` of the command line.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), SettingsError> {
        match pair.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                self.set(key.trim(), value);
                Ok(())
            }
            _ => Err(SettingsError::Set(pair.to_owned())),
        }
    }

    /// Takes one value. An alias (log.dir and log.dirs, node.id and broker.id) given later replaces the other.
    pub fn set(&mut self, key: &str, value: &str) {
        match key {
            "log.dir" => drop(self.given.remove("log.dirs")),
            "node.id" => drop(self.given.remove("broker.id")),
            "broker.id" => drop(self.given.remove("node.id")),
            _ => {}
        }
        self.given.insert(key.to_owned(), value.to_owned());
    }
}

impl BrokerConfig {
    /// Reads and checks all of `settings`.
    pub fn new(settings: Settings) -> Result<(Self, Vec<Notice>), SettingsError> {
        let mut given = settings.given;
        let notices = check_keys(&mut given)?;
        let node_id = settle_node_id(&mut given)?;
        given.entry("process.roles".to_owned()).or_insert_with(|| ROLES_DEFAULT.to_owned());
        let values = Values(&given);
        check_roles(&values, node_id)?;
        check_log_filter(&values)?;
        let ListenersRead { listeners, advertised_listeners, skipped } = read_listeners(&values)?;
        let inter_broker_listener = inter_broker_listener(&values, &listeners)?;
        let buffer = |key| usize::try_from(values.integer(key)).ok();
        let log_dirs = log_dirs(&values)?;
        if verify_cordoned(&values.list("cordoned.log.dirs"), &log_dirs).is_err() {
            let value = values.list("cordoned.log.dirs").join(",");
            let reason = "name directories of log.dirs as they are named there, or * alone for all of them";
            return Err(SettingsError::Contradiction { key: "cordoned.log.dirs", value, reason });
        }
        let metadata_log_dir = match (values.text("metadata.log.dir"), log_dirs.first()) {
            (Some(dir), _) => PathBuf::from(dir),
            (None, Some(first)) => first.clone(),
            (None, None) => unreachable!("the list is not empty"),
        };
        let config = Self {
            node_id,
            rack: values.text("broker.rack"),
            listeners,
            advertised_listeners,
            inter_broker_listener,
            log_dirs,
            metadata_log_dir,
            shards: values
                .find("walser.shards")
                .and_then(|value| if let Value::Integer(count) = value { usize::try_from(count).ok() } else { None }),
            cpus: values.text("walser.cpus").as_deref().and_then(cpu_list),
            memory_bytes: values.text("walser.memory").as_deref().and_then(memory_size),
            spin: Duration::from_micros(values.integer("walser.spin.us").unsigned_abs()),
            http_listener: values.text("walser.http.listener"),
            log_filter: values.text("walser.log.level").unwrap_or_default(),
            socket_send_buffer_bytes: buffer("socket.send.buffer.bytes"),
            socket_receive_buffer_bytes: buffer("socket.receive.buffer.bytes"),
            socket_backlog: i32::try_from(values.integer("socket.listen.backlog.size")).unwrap_or(i32::MAX),
            request_bytes_max: usize::try_from(values.integer("socket.request.max.bytes")).unwrap_or(usize::MAX),
            connection_idle_max: u64::try_from(values.integer("connections.max.idle.ms"))
                .ok()
                .map(Duration::from_millis),
            given,
        };
        let view = BrokerView::fixed(&config);
        if let Err((key, reason)) = verify_groups(&view) {
            let value = view.value(key).map(|value| value.to_string()).unwrap_or_default();
            return Err(SettingsError::Contradiction { key, value, reason });
        }
        let notices = notices.into_iter().chain(skipped.into_iter().map(Notice::ControllerListener)).collect();
        Ok((config, notices))
    }

    /// A configuration with nothing given but `pairs`, for tests and tools.
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Result<Self, SettingsError> {
        let mut settings = Settings::default();
        for (key, value) in pairs {
            settings.set(key, value);
        }
        Self::new(settings).map(|(config, _)| config)
    }

    /// What was given, as it was given, and what every node needs; keys nobody knows included.
    pub fn given(&self) -> &BTreeMap<String, String> {
        &self.given
    }

    /// What clients are told, for listeners bound as `bound`, in their order.
    pub fn advertise(&self, bound: &[Endpoint], local_host: &str) -> Vec<Endpoint> {
        listeners::advertise(bound, &self.advertised_listeners, local_host)
    }
}

/// Values given, or the defaults of their keys. Whatever is given has been checked before.
struct Values<'a>(&'a BTreeMap<String, String>);

impl Values<'_> {
    fn find(&self, name: &str) -> Option<Value> {
        let key = BROKER_KEYS.find(name).expect("only declared keys are asked for");
        let raw = self.0.get(name).map(String::as_str).or(key.default)?;
        key.parse(raw).ok()
    }

    fn integer(&self, name: &str) -> i64 {
        match self.find(name) {
            Some(Value::Integer(number)) => number,
            other => panic!("{name} is a number with a default, not {other:?}"),
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.find(name) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    fn list(&self, name: &str) -> Vec<String> {
        match self.find(name) {
            Some(Value::List(elements)) => elements,
            _ => Vec::new(),
        }
    }
}

/// Kafka has no defaults for these: a node is formatted and configured before it starts. Here it starts by itself.
const NODE_ID_DEFAULT: i64 = 1;
const ROLES_DEFAULT: &str = "broker,controller";
const CONTROLLER_LISTENER_DEFAULT: &str = "CONTROLLER";

/// Each of them has a journal of every shard.
const LOG_DIRS_MAX: usize = 64;

/// Keys Kafka had once. They are dropped with a warning, as they would be ignored by Kafka 4.
const REMOVED: &[&str] = &[
    "advertised.host.name",
    "advertised.port",
    "broker.id.generation.enable",
    "control.plane.listener.name",
    "group.coordinator.new.enable",
    "host.name",
    "inter.broker.protocol.version",
    "log.message.downconversion.enable",
    "log.message.format.version",
    "log.message.timestamp.difference.max.ms",
    "offsets.commit.required.acks",
    "port",
    "reserved.broker.max.id",
];

/// Keys that plug-ins read: Kafka declares none of them either.
const PLUGIN_PREFIXES: &[&str] = &["rsm.config.", "rlmm.config."];

/// What a key asks for that a refused start explains.
fn refusal(key: &ConfigKey) -> &'static str {
    match key.name {
        "authorizer.class.name" => {
            "authorizers are not supported, and without one everything would be allowed; remove the key"
        }
        "remote.log.storage.system.enable" => "tiered storage is not supported; set it to false",
        "security.inter.broker.protocol" => "only PLAINTEXT is supported between brokers",
        "config.providers" => "configuration providers are not supported; write the values themselves",
        _ => "plug-ins are not supported; remove the key",
    }
}

/// Checks every value given, drops removed keys, and gathers what the operator should know.
fn check_keys(given: &mut BTreeMap<String, String>) -> Result<Vec<Notice>, SettingsError> {
    let mut notices = Vec::new();
    let mut inert = BTreeSet::new();
    let mut removed = Vec::new();
    for (name, raw) in given.iter() {
        if REMOVED.contains(&name.as_str()) || name.starts_with("zookeeper.") {
            removed.push(name.clone());
            continue;
        }
        let base = listener_key(name).unwrap_or(name);
        let Some(key) = BROKER_KEYS.find(base) else {
            refuse_acl(name, raw)?;
            if !PLUGIN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                notices.push(Notice::Unknown(name.clone()));
            }
            continue;
        };
        let value = key.parse(raw)?;
        let default = key.default.and_then(|default| key.parse(default).ok());
        let same = default.as_ref() == Some(&value);
        match key.effect {
            Effect::Acted => {}
            Effect::Refused if same || value.to_string().is_empty() => {}
            Effect::Refused => {
                return Err(SettingsError::NotSupported {
                    key: name.clone(),
                    value: raw.clone(),
                    reason: refusal(key),
                });
            }
            Effect::Inert if same => {}
            Effect::Inert => drop(inert.insert(name.clone())),
        }
    }
    for name in removed {
        given.remove(&name);
        notices.push(Notice::Removed(name));
    }
    if !inert.is_empty() {
        notices.push(Notice::Inert(inert.into_iter().collect()));
    }
    Ok(notices)
}

/// Keys of Kafka's own authorizer: somebody who sets them believes that access is controlled.
fn refuse_acl(name: &str, raw: &str) -> Result<(), SettingsError> {
    if matches!(name, "super.users" | "allow.everyone.if.no.acl.found") {
        let reason = "authorizers are not supported, and without one everything is allowed; remove the key";
        return Err(SettingsError::NotSupported { key: name.to_owned(), value: raw.to_owned(), reason });
    }
    Ok(())
}

/// node.id and broker.id are one number: each that is missing takes the other's value.
fn settle_node_id(given: &mut BTreeMap<String, String>) -> Result<i32, SettingsError> {
    let values = Values(given);
    let node_id = if given.contains_key("node.id") { Some(values.integer("node.id")) } else { None };
    // -1 asks Kafka to make up a number: ours is the default.
    let broker_id = if given.contains_key("broker.id") { Some(values.integer("broker.id")) } else { None };
    let broker_id = broker_id.filter(|id| *id >= 0);
    match (node_id, broker_id) {
        (Some(node_id), Some(broker_id)) if node_id != broker_id => {
            let reason = "it differs from node.id; give only node.id";
            return Err(SettingsError::Contradiction { key: "broker.id", value: broker_id.to_string(), reason });
        }
        _ => {}
    }
    // Clients ask for the node's configs by this number, and see it in both keys.
    let id = node_id.or(broker_id).unwrap_or(NODE_ID_DEFAULT);
    for key in ["node.id", "broker.id"] {
        given.insert(key.to_owned(), id.to_string());
    }
    Ok(i32::try_from(id).expect("an INT has been checked to fit"))
}

/// One node is broker and controller, and the only voter.
fn check_roles(values: &Values<'_>, node_id: i32) -> Result<(), SettingsError> {
    let refuse = |key: &str, reason| {
        let value = values.list(key).join(",");
        Err(SettingsError::NotSupported { key: key.to_owned(), value, reason })
    };
    let mut roles = values.list("process.roles");
    roles.sort_unstable();
    if roles != ["broker", "controller"] {
        return refuse("process.roles", "a node must be both; set process.roles=broker,controller");
    }
    let voters = values.list("controller.quorum.voters");
    let only_self = |voter: &String| voter.split_once('@').is_some_and(|(id, _)| id.parse() == Ok(node_id));
    if voters.len() > 1 || !voters.iter().all(only_self) {
        return refuse(
            "controller.quorum.voters",
            "a quorum of several nodes is not supported; name this node alone or remove the key",
        );
    }
    if values.list("controller.quorum.bootstrap.servers").len() > 1 {
        return refuse(
            "controller.quorum.bootstrap.servers",
            "a quorum of several nodes is not supported; name this node alone or remove the key",
        );
    }
    Ok(())
}

fn check_log_filter(values: &Values<'_>) -> Result<(), SettingsError> {
    let filter = values.text("walser.log.level").unwrap_or_default();
    if filter.parse::<Targets>().is_ok() {
        return Ok(());
    }
    let reason = "give a level (error, warn, info, debug, trace) or a list of module=level";
    Err(SettingsError::Contradiction { key: "walser.log.level", value: filter, reason })
}

struct ListenersRead {
    listeners: Vec<Endpoint>,
    advertised_listeners: Vec<Endpoint>,
    /// Names of the controller's, which are not opened.
    skipped: Vec<String>,
}

fn read_listeners(values: &Values<'_>) -> Result<ListenersRead, SettingsError> {
    let wrong = |key| move |error| SettingsError::Listener { key, error };
    let mut controllers: Vec<String> =
        values.list("controller.listener.names").iter().map(|name| name.to_ascii_uppercase()).collect();
    if controllers.is_empty() {
        controllers.push(CONTROLLER_LISTENER_DEFAULT.to_owned());
    }
    let all = parse_endpoints(&values.list("listeners")).map_err(wrong("listeners"))?;
    let advertised = parse_endpoints(&values.list("advertised.listeners")).map_err(wrong("advertised.listeners"))?;
    let protocols = values.text("listener.security.protocol.map").unwrap_or_default();
    let protocols = parse_protocols(&protocols).map_err(wrong("listener.security.protocol.map"))?;
    let (skipped, opened): (Vec<Endpoint>, Vec<Endpoint>) =
        all.into_iter().partition(|endpoint| controllers.contains(&endpoint.listener));
    if opened.is_empty() {
        let reason = "all of them belong to the controller; add one for clients, as in PLAINTEXT://127.0.0.1:9092";
        return Err(SettingsError::Contradiction {
            key: "listeners",
            value: values.list("listeners").join(","),
            reason,
        });
    }
    for endpoint in &opened {
        match protocols.get(&endpoint.listener) {
            Some(SecurityProtocol::Plaintext) => {}
            None => {
                return Err(wrong("listeners")(ListenerError::NoProtocol(endpoint.listener.clone())));
            }
            Some(protocol @ (SecurityProtocol::Ssl | SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl)) => {
                let value = format!("{endpoint} ({})", protocol.name());
                let reason = "TLS and SASL listeners are not supported; use PLAINTEXT on a network you trust";
                return Err(SettingsError::NotSupported { key: "listeners".to_owned(), value, reason });
            }
        }
    }
    verify_ports(&opened).map_err(wrong("listeners"))?;
    verify_advertised(&opened, &advertised, &controllers).map_err(wrong("advertised.listeners"))?;
    Ok(ListenersRead {
        listeners: opened,
        advertised_listeners: advertised
            .into_iter()
            .filter(|endpoint| !controllers.contains(&endpoint.listener))
            .collect(),
        skipped: skipped.into_iter().map(|endpoint| endpoint.listener).collect(),
    })
}

fn inter_broker_listener(values: &Values<'_>, listeners: &[Endpoint]) -> Result<String, SettingsError> {
    let Some(name) = values.text("inter.broker.listener.name") else {
        let first = listeners.first().map(|endpoint| endpoint.listener.clone());
        return Ok(first.expect("a configuration without listeners has been refused"));
    };
    let name = name.to_ascii_uppercase();
    if listeners.iter().any(|endpoint| endpoint.listener == name) {
        return Ok(name);
    }
    let reason = "there is no such listener in `listeners`";
    Err(SettingsError::Contradiction { key: "inter.broker.listener.name", value: name, reason })
}

fn log_dirs(values: &Values<'_>) -> Result<Vec<PathBuf>, SettingsError> {
    let (key, dirs) = match values.list("log.dirs") {
        dirs if dirs.is_empty() => ("log.dir", values.list("log.dir")),
        dirs => ("log.dirs", dirs),
    };
    if dirs.len() > LOG_DIRS_MAX {
        let reason = "at most 64 log directories are supported";
        return Err(SettingsError::Contradiction { key, value: dirs.join(","), reason });
    }
    Ok(dirs.iter().map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(pairs: &[(&str, &str)]) -> Result<Vec<Notice>, String> {
        let mut settings = Settings::default();
        for (key, value) in pairs {
            settings.set(key, value);
        }
        BrokerConfig::new(settings).map(|(_, notices)| notices).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_given_is_a_broker_on_loopback() {
        // Rule: zero configuration starts a broker that only this machine can reach.
        let config = BrokerConfig::from_pairs(&[]).expect("defaults fit");
        assert_eq!(
            config.listeners.iter().map(Endpoint::to_string).collect::<Vec<_>>(),
            ["PLAINTEXT://127.0.0.1:9092"]
        );
        assert_eq!((config.node_id, config.inter_broker_listener.as_str()), (1, "PLAINTEXT"));
        assert_eq!(config.log_dirs, [PathBuf::from("walser-data")]);
        assert_eq!(config.metadata_log_dir, PathBuf::from("walser-data"));
        assert_eq!((config.shards, &config.cpus, config.memory_bytes), (None, &None, None));
        let settled: Vec<&str> = config.given().keys().map(String::as_str).collect();
        assert_eq!(settled, ["broker.id", "node.id", "process.roles"]);
    }

    #[test]
    fn a_one_node_file_of_kafka_starts() {
        // Rule: what Kafka ships as its combined-mode example is accepted; its controller listener is not opened.
        let stock = "
            process.roles=broker,controller\n node.id=7\n controller.quorum.bootstrap.servers=localhost:9093
            listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n inter.broker.listener.name=PLAINTEXT
            advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
            controller.listener.names=CONTROLLER
            listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
            num.network.threads=3\n num.io.threads=8\n log.dirs=/tmp/combined-logs\n num.partitions=1
            offsets.topic.replication.factor=1\n log.retention.hours=168\n log.segment.bytes=1073741824\n";
        let mut settings = Settings::default();
        for (key, value) in properties::parse(stock).expect("properties") {
            settings.set(&key, &value);
        }
        let (config, notices) = BrokerConfig::new(settings).expect("the file fits");
        assert_eq!(notices, [Notice::ControllerListener("CONTROLLER".to_owned())]);
        assert_eq!(config.given().get("broker.id").map(String::as_str), Some("7"));
        let bound = config.listeners.clone();
        let told: Vec<String> = config.advertise(&bound, "box").iter().map(Endpoint::to_string).collect();
        assert_eq!(told, ["PLAINTEXT://localhost:9092"]);
    }

    #[test]
    fn what_cannot_be_kept_stops_the_start() {
        // Rule: a configuration that asks for what is not there never opens a door in its place.
        for (key, value, part) in [
            ("listeners", "SSL://:9093", "TLS and SASL listeners are not supported"),
            ("listeners", "SASL_PLAINTEXT://:9093", "TLS and SASL listeners are not supported"),
            ("listeners", "EXTERNAL://:9093", "add EXTERNAL:PLAINTEXT to listener.security.protocol.map"),
            ("listeners", "CONTROLLER://:9093", "belong to the controller"),
            ("listeners", "", "must not be empty"),
            ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "cannot be reached"),
            (
                "authorizer.class.name",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "everything would be allowed",
            ),
            ("super.users", "User:admin", "everything is allowed"),
            ("controller.quorum.voters", "1@a:1,2@b:1,3@c:1", "several nodes"),
            ("controller.quorum.voters", "2@b:1", "several nodes"),
            ("process.roles", "broker", "must be both"),
            ("remote.log.storage.system.enable", "true", "tiered storage"),
            ("security.inter.broker.protocol", "SSL", "only PLAINTEXT"),
            ("num.partitions", "0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
            ("walser.memory", "lots", "must be a number of bytes"),
            ("walser.cpus", "3-1", "CPU numbers"),
            ("walser.log.level", "walser=loud", "give a level"),
            ("max.connections.per.ip.overrides", "foo", "host:count pairs"),
            ("client.quota.callback.class", "x", "plug-ins are not supported"),
        ] {
            let error = notices(&[(key, value)]).expect_err(key);
            assert!(error.contains(part), "{key}={value}: {error}");
            assert!(error.contains(key), "{key}={value}: {error}");
        }
        assert!(notices(&[("node.id", "1"), ("broker.id", "1")]).is_ok());
    }

    #[test]
    fn what_is_only_odd_is_said_and_ignored() {
        // Rule: unknown, removed and inert keys are named once each and stop nothing.
        let got = notices(&[
            ("no.such.key", "1"),
            ("zookeeper.connect", "localhost:2181"),
            ("num.io.threads", "16"),
            ("num.network.threads", "3"),
            ("listener.name.external.scram-sha-256.sasl.jaas.config", "x"),
            ("authorizer.class.name", ""),
        ]);
        let inert =
            vec!["listener.name.external.scram-sha-256.sasl.jaas.config".to_owned(), "num.io.threads".to_owned()];
        assert_eq!(
            got,
            Ok(vec![
                Notice::Unknown("no.such.key".to_owned()),
                Notice::Removed("zookeeper.connect".to_owned()),
                Notice::Inert(inert),
            ])
        );
    }

    #[test]
    fn there_may_be_several_log_directories() {
        // Rule: the metadata log is in the first of them unless it has a directory of its own; the list has an end.
        let config = |pairs: &[(&str, &str)]| BrokerConfig::from_pairs(pairs);
        let two = config(&[("log.dirs", "/a, /b")]).expect("fits");
        assert_eq!(two.log_dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(two.metadata_log_dir, PathBuf::from("/a"));
        let own = config(&[("log.dirs", "/a,/b"), ("metadata.log.dir", "/m")]).expect("fits");
        assert_eq!(own.metadata_log_dir, PathBuf::from("/m"));
        let many: Vec<String> = (0..=LOG_DIRS_MAX).map(|number| format!("/{number}")).collect();
        assert!(config(&[("log.dirs", &many.join(","))]).is_err());
        assert!(config(&[("log.dirs", &many[1..].join(","))]).is_ok());
        assert!(config(&[("log.dirs", "/a,/b"), ("cordoned.log.dirs", "/c")]).is_err());
        assert!(config(&[("log.dirs", "/a,/b"), ("cordoned.log.dirs", "/b")]).is_ok());
    }

    #[test]
    fn later_settings_win() {
        // Rule: a value of the command line replaces the file's, also under the other name of a key.
        let mut settings = Settings::default();
        settings.set("log.dirs", "/from/file");
        settings.set("node.id", "1");
        settings.set_pair("log.dir=/from/line").expect("a pair");
        settings.set_pair("broker.id = 9").expect("a pair");
        let (config, _) = BrokerConfig::new(settings).expect("fits");
        assert_eq!((config.log_dirs, config.node_id), (vec![PathBuf::from("/from/line")], 9));
        assert!(Settings::default().set_pair("nonsense").is_err());
    }
}
