//! Transactions and producer ids.

use crate::config::key::Allowed::{Any, AtLeast};
use crate::config::key::keys;

keys! { KEYS:
    "transactional.id.expiration.ms" Int = Some("604800000"), AtLeast(1), ReadOnly, Inert,
        "Time without use after which a transactional id is forgotten.";
    "transaction.max.timeout.ms" Int = Some("900000"), AtLeast(1), ReadOnly, Inert,
        "Longest transaction timeout a producer may ask for.";
    "transaction.abort.timed.out.transaction.cleanup.interval.ms" Int = Some("10000"), AtLeast(1), ReadOnly, Inert,
        "Time between looks for transactions that have timed out.";
    "transaction.remove.expired.transaction.cleanup.interval.ms" Int = Some("3600000"), AtLeast(1), ReadOnly, Inert,
        "Time between looks for transactional ids to forget.";
    "transaction.two.phase.commit.enable" Boolean = Some("false"), Any, ReadOnly, Inert,
        "Whether producers may take part in two-phase commits.";
    "transaction.state.log.min.isr" Int = Some("2"), AtLeast(1), ReadOnly, Inert,
        "In-sync replicas writes to __transaction_state need.";
    "transaction.state.log.load.buffer.size" Int = Some("5242880"), AtLeast(1), ReadOnly, Inert,
        "Bytes read at once when a transaction coordinator loads its partition.";
    "transaction.state.log.replication.factor" Short = Some("3"), AtLeast(1), ReadOnly, Inert,
        "Replicas of __transaction_state; never more than there are brokers.";
    "transaction.state.log.num.partitions" Int = Some("50"), AtLeast(1), ReadOnly, Inert,
        "Partitions of __transaction_state.";
    "transaction.state.log.segment.bytes" Int = Some("104857600"), AtLeast(1), ReadOnly, Inert,
        "Segment size of __transaction_state.";
    "transaction.partition.verification.enable" Boolean = Some("true"), Any, ClusterWide, Inert,
        "Whether a transactional write is checked against the coordinator first.";
    "producer.id.expiration.ms" Int = Some("86400000"), AtLeast(1), ClusterWide, Inert,
        "Time without a write after which a partition forgets a producer id.";
    "producer.id.expiration.check.interval.ms" Int = Some("600000"), AtLeast(1), ReadOnly, Inert hidden,
        "Time between looks for producer ids to forget.";
    "add.partitions.to.txn.retry.backoff.max.ms" Int = Some("100"), AtLeast(0), ReadOnly, Inert,
        "Longest wait for a transaction check to be repeated.";
    "add.partitions.to.txn.retry.backoff.ms" Int = Some("20"), AtLeast(1), ReadOnly, Inert,
        "Wait between repetitions of a transaction check.";
}
