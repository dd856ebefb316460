//! Replicas and how they follow each other.

use crate::config::key::Allowed::{Any, AtLeast, OneOf};
use crate::config::key::keys;

keys! { KEYS:
    "controller.socket.timeout.ms" Int = Some("30000"), Any, ReadOnly, Inert,
        "Socket timeout between controller and brokers.";
    "default.replication.factor" Int = Some("1"), Any, ReadOnly, Acted,
        "Replicas of a topic created without a number of its own.";
    "replica.lag.time.max.ms" Long = Some("30000"), Any, ReadOnly, Inert,
        "A follower that has not caught up for this long leaves the in-sync replicas.";
    "replica.socket.timeout.ms" Int = Some("30000"), Any, ReadOnly, Inert,
        "Socket timeout of fetches between brokers.";
    "replica.socket.receive.buffer.bytes" Int = Some("65536"), Any, ReadOnly, Inert,
        "Receive buffer of replication sockets in bytes.";
    "replica.fetch.max.bytes" Int = Some("1048576"), AtLeast(0), ReadOnly, Inert,
        "Most bytes per partition a follower asks for.";
    "replica.fetch.wait.max.ms" Int = Some("500"), Any, ReadOnly, Inert,
        "Longest wait a follower asks for in a fetch.";
    "replica.fetch.backoff.ms" Int = Some("1000"), AtLeast(0), ReadOnly, Inert,
        "Pause of a follower after a failed fetch.";
    "replica.fetch.min.bytes" Int = Some("1"), Any, ReadOnly, Inert,
        "Least bytes a follower waits for.";
    "replica.fetch.response.max.bytes" Int = Some("10485760"), AtLeast(0), ReadOnly, Inert,
        "Most bytes a follower asks for in all.";
    "num.replica.fetchers" Int = Some("1"), AtLeast(1), ClusterWide, Inert,
        "Fetcher threads per source broker; here every shard fetches for its own partitions.";
    "replica.high.watermark.checkpoint.interval.ms" Long = Some("5000"), Any, ReadOnly, Inert,
        "Time between writes of the high watermarks to disk.";
    "fetch.purgatory.purge.interval.requests" Int = Some("1000"), Any, ReadOnly, Inert,
        "Finished waits gathered before they are purged; a timing wheel needs no purge.";
    "producer.purgatory.purge.interval.requests" Int = Some("1000"), Any, ReadOnly, Inert,
        "Finished waits of produce requests gathered before they are purged.";
    "delete.records.purgatory.purge.interval.requests" Int = Some("1"), Any, ReadOnly, Inert,
        "Finished waits of record deletion gathered before they are purged.";
    "auto.leader.rebalance.enable" Boolean = Some("true"), Any, ReadOnly, Inert,
        "Whether leadership moves back to preferred replicas by itself.";
    "leader.imbalance.check.interval.seconds" Long = Some("300"), AtLeast(1), ReadOnly, Inert,
        "Time between checks for leaders that are not the preferred ones.";
    "unclean.leader.election.interval.ms" Long = Some("300000"), AtLeast(1), ReadOnly, Inert hidden,
        "Time between attempts at unclean elections.";
    "unclean.leader.election.enable" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether a replica outside the in-sync set may lead when no other is left.";
    "security.inter.broker.protocol" String = Some("PLAINTEXT"), OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), ReadOnly, Refused,
        "Security protocol between brokers.";
    "inter.broker.listener.name" String = None, Any, ReadOnly, Acted,
        "Listener brokers use among themselves.";
    "replica.selector.class" String = None, Any, ReadOnly, Inert,
        "Plug-in that chooses the replica a consumer reads from.";
    "follower.fetch.last.tiered.offset.enable" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether new followers start at the last tiered offset.";
}
