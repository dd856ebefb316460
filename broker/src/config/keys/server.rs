//! The node, its roles, the metadata quorum, and limits on requests.

use crate::config::key::Allowed::{Any, AnyList, AtLeast, Between, FilledList, FilledListOf, GzipLevel, OneOf};
use crate::config::key::keys;

keys! { KEYS:
    "broker.id" Int = Some("-1"), Any, ReadOnly, Acted,
        "Old name of node.id, with the same meaning.";
    "message.max.bytes" Int = Some("1048588"), AtLeast(0), ClusterWide, Acted,
        "Largest record batch accepted, compressed size with overhead; default of max.message.bytes.";
    "max.decompressed.message.bytes" Int = Some("2147483639"), Between(1, 2147483639), ClusterWide, Acted,
        "Largest size a record batch may have after decompression.";
    "num.io.threads" Int = Some("8"), AtLeast(1), ClusterWide, Inert,
        "Request handler threads; here `walser.shards` decides.";
    "num.replica.alter.log.dirs.threads" Int = None, Any, ReadOnly, Inert,
        "Threads that move replicas between log directories.";
    "background.threads" Int = Some("10"), AtLeast(1), ClusterWide, Inert,
        "Threads for background work; here a governor per shard schedules it.";
    "request.timeout.ms" Int = Some("30000"), Any, ReadOnly, Inert,
        "Longest time the broker waits for an answer of its own requests.";
    "socket.connection.setup.timeout.ms" Long = Some("10000"), Any, ReadOnly, Inert,
        "First timeout for opening a connection to another broker.";
    "socket.connection.setup.timeout.max.ms" Long = Some("30000"), Any, ReadOnly, Inert,
        "Upper bound of the growing connection setup timeout.";
    "config.providers" List = Some(""), AnyList, ClusterWide, Refused,
        "Plug-ins that fetch configuration values from elsewhere.";
    "authorizer.class.name" String = Some(""), Any, ReadOnly, Refused,
        "Authorizer that decides who may do what; empty allows everything.";
    "early.start.listeners" List = None, AnyList, ReadOnly, Inert,
        "Listeners opened before the authorizer is ready.";
    "broker.rack" String = None, Any, ReadOnly, Acted,
        "Rack of this broker, shown to clients and used to spread replicas.";
    "controlled.shutdown.enable" Boolean = Some("true"), Any, ReadOnly, Inert,
        "Whether leadership is handed over before the broker stops.";
    "delete.topic.enable" Boolean = Some("true"), Any, ReadOnly, Acted,
        "Whether topics may be deleted.";
    "compression.type" String = Some("producer"), OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), ClusterWide, Acted,
        "Codec batches are stored with; `producer` keeps what was sent.";
    "compression.gzip.level" Int = Some("-1"), GzipLevel, ClusterWide, Acted,
        "Level used when the broker compresses with gzip.";
    "compression.lz4.level" Int = Some("9"), Between(1, 17), ClusterWide, Acted,
        "Level used when the broker compresses with lz4.";
    "compression.zstd.level" Int = Some("3"), Between(-131072, 22), ClusterWide, Acted,
        "Level used when the broker compresses with zstd.";
    "max.incremental.fetch.session.cache.slots" Int = Some("1000"), AtLeast(0), ReadOnly, Acted,
        "Incremental fetch sessions kept at a time.";
    "fetch.max.bytes" Int = Some("57671680"), AtLeast(1024), ReadOnly, Acted,
        "Most bytes returned by one fetch, but for a first batch that is larger.";
    "max.request.partition.size.limit" Int = Some("2000"), AtLeast(1), ReadOnly, Acted,
        "Most partitions one DescribeTopicPartitions answer lists.";
    "unstable.api.versions.enable" Boolean = Some("false"), Any, ReadOnly, Inert hidden,
        "Whether unreleased API versions are served; Walser serves released ones only.";
    "unstable.feature.versions.enable" Boolean = Some("false"), Any, ReadOnly, Inert hidden,
        "Whether unreleased feature versions may be set.";
    "process.roles" List = None, FilledListOf(&["broker", "controller"]), ReadOnly, Acted,
        "Roles of this process; one node that is both broker and controller.";
    "node.id" Int = None, AtLeast(0), ReadOnly, Acted,
        "Number of this node in the cluster.";
    "initial.broker.registration.timeout.ms" Int = Some("60000"), Any, ReadOnly, Inert,
        "Time a starting broker waits to be registered by the controller.";
    "broker.heartbeat.interval.ms" Int = Some("2000"), Any, ReadOnly, Inert,
        "Time between heartbeats to the controller.";
    "broker.session.timeout.ms" Int = Some("9000"), Any, ReadOnly, Inert,
        "A broker without a heartbeat for this long is fenced.";
    "controller.listener.names" List = None, FilledList, ReadOnly, Acted,
        "Names of listeners used by the controller; they are not opened in a one-node broker.";
    "sasl.mechanism.controller.protocol" String = Some("GSSAPI"), Any, ReadOnly, Inert,
        "SASL mechanism between brokers and controllers.";
    "controller.performance.sample.period.ms" Long = Some("60000"), AtLeast(100), ReadOnly, Inert hidden,
        "Period of the controller's event time summary.";
    "controller.performance.always.log.threshold.ms" Long = Some("2000"), AtLeast(0), ReadOnly, Inert hidden,
        "Controller events slower than this are logged.";
    "server.max.startup.time.ms" Long = Some("9223372036854775807"), AtLeast(0), ReadOnly, Inert hidden,
        "Longest time a start may take.";
    "controller.quorum.voters" List = Some(""), Any, ReadOnly, Acted,
        "Members of the metadata quorum, as id@host:port.";
    "controller.quorum.bootstrap.servers" List = Some(""), Any, ReadOnly, Acted,
        "Addresses at which the metadata quorum may be found.";
    "controller.quorum.election.timeout.ms" Int = Some("1000"), AtLeast(0), ReadOnly, Inert,
        "Time without a leader after which an election starts.";
    "controller.quorum.fetch.timeout.ms" Int = Some("2000"), AtLeast(0), ReadOnly, Inert,
        "Time without contact to the quorum leader after which a voter becomes a candidate.";
    "controller.quorum.election.backoff.max.ms" Int = Some("1000"), AtLeast(0), ReadOnly, Inert,
        "Upper bound of the wait between elections.";
    "controller.quorum.append.linger.ms" Int = Some("25"), AtLeast(0), ReadOnly, Inert,
        "Time metadata records are gathered before they are written.";
    "controller.quorum.request.timeout.ms" Int = Some("2000"), AtLeast(0), ReadOnly, Inert,
        "Longest wait for an answer from another quorum member.";
    "controller.quorum.retry.backoff.ms" Int = Some("20"), AtLeast(0), ReadOnly, Inert,
        "Wait before a failed quorum request is repeated.";
    "controller.quorum.auto.join.enable" Boolean = Some("false"), Any, ReadOnly, Inert,
        "Whether a new controller joins the voters by itself.";
    "controller.quorum.fetch.snapshot.max.bytes" Int = Some("1048576"), AtLeast(1), ReadOnly, Inert,
        "Most snapshot bytes in one answer.";
    "controller.quorum.fetch.max.bytes" Int = Some("1048576"), AtLeast(1), ReadOnly, Inert,
        "Most metadata log bytes in one answer.";
    "metadata.log.max.record.bytes.between.snapshots" Long = Some("20971520"), AtLeast(1), ReadOnly, Inert,
        "Metadata log bytes after which a snapshot is written.";
    "metadata.log.max.snapshot.interval.ms" Long = Some("3600000"), AtLeast(0), ReadOnly, Inert,
        "Longest time between metadata snapshots while there are changes.";
    "metadata.log.dir" String = None, Any, ReadOnly, Acted,
        "Directory of the metadata log; unset, the first of log.dirs.";
    "metadata.log.segment.bytes" Int = Some("1073741824"), AtLeast(8388608), ReadOnly, Inert,
        "Size at which the metadata log starts a new file.";
    "metadata.log.segment.ms" Long = Some("604800000"), Any, ReadOnly, Inert,
        "Age at which the metadata log starts a new file.";
    "metadata.max.retention.bytes" Long = Some("104857600"), Any, ReadOnly, Inert,
        "Size of metadata log and snapshots above which old ones are deleted.";
    "metadata.max.retention.ms" Long = Some("604800000"), Any, ReadOnly, Inert,
        "Age above which old metadata log files and snapshots are deleted.";
    "metadata.max.idle.interval.ms" Int = Some("500"), AtLeast(0), ReadOnly, Inert,
        "Time after which an idle controller writes an empty record.";
    "internal.metadata.log.segment.bytes" Int = None, Any, ReadOnly, Inert hidden,
        "Size of metadata log files in tests.";
    "internal.metadata.max.batch.size.in.bytes" Int = Some("8388608"), Any, ReadOnly, Inert hidden,
        "Largest batch of the metadata log.";
    "internal.metadata.delete.delay.millis" Long = Some("60000"), Any, ReadOnly, Inert hidden,
        "Delay before metadata log files are removed.";
}
