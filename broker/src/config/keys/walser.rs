//! Keys Kafka does not have.

use crate::config::key::Allowed::{Any, Between, CpuList, MemorySize, OneOf, SocketAddress};
use crate::config::key::keys;

keys! { KEYS:
    "walser.shards" Int = None, Between(1, 1024), ReadOnly, Acted,
        "Number of shards; unset, one for each allowed CPU.";
    "walser.cpus" String = None, CpuList, ReadOnly, Acted,
        "CPUs the shards are pinned to, as in 0,2-3; unset, those of the affinity mask.";
    "walser.memory" String = None, MemorySize, ReadOnly, Acted,
        "Memory for frames, caches and staging of the whole broker, as in 512MB; unset, a share of what the machine or control group has.";
    "walser.durability" String = Some("flushed"), OneOf(&["flushed", "written", "memory"]), ClusterWide, Acted,
        "What an acknowledgement means: flushed to stable storage, written to the file, or taken into memory.";
    "walser.journal.bytes" Long = Some("268435456"), Between(1 << 25, 1 << 40), ReadOnly, Acted,
        "Bytes of acknowledged records that the journals of all shards keep on disk at most before they are in segments.";
    "walser.journal.batch.max.bytes" Int = Some("32768"), Between(0, 8 << 20), ReadOnly, Acted,
        "Batches of this length and more go straight into their segment; of those the journal gets only what does not fill a block.";
    "walser.open.files" Int = None, Between(16, 1 << 20), ReadOnly, Acted,
        "Files of segments that are kept open at most; others are opened when they are needed. Unset, what the limit of descriptors leaves room for, and no more than 1024.";
    "walser.disk.reserve.bytes" Long = Some("67108864"), Between(0, 1 << 40), ReadOnly, Acted,
        "Space kept back for when the disk is full, so that the broker can still note, delete and compact; at most a sixteenth of the file system.";
    "walser.spin.us" Int = Some("0"), Between(0, 1000), ReadOnly, Acted,
        "Microseconds an idle shard spins before it sleeps; only for cores that serve nothing else.";
    "walser.http.listener" String = None, SocketAddress, ReadOnly, Acted,
        "Address of the HTTP server for metrics and health, as host:port; unset, there is none.";
    "walser.log.level" String = Some("info"), Any, ReadOnly, Acted,
        "Filter of log lines, as in info or walser_broker=debug,warn; the environment variable RUST_LOG goes before it.";
}
