//! The text a Prometheus scrape reads, with the names Kafka dashboards ask for.

use std::fmt::{Display, Write};
use std::sync::Arc;

use nix::sys::resource::{UsageWho, getrusage};
use walser_protocol::api::{ApiKey, SERVED};
use walser_protocol::error_code::ErrorCode;

use crate::metrics::{self, Metrics, ShardMetrics};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A family: its name, whether it only grows, and what it means.
struct Family(&'static str, Kind, &'static str);

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

use Kind::{Counter, Gauge};

struct Text(String);

impl Text {
    fn begin(&mut self, Family(name, kind, help): &Family) {
        let kind = match kind {
            Counter => "counter",
            Gauge => "gauge",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn single(&mut self, family: &Family, value: impl Display) {
        self.begin(family);
        self.line(format_args!("{} {value}", family.0));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a String takes everything");
    }
}

/// All families.
pub(super) fn render(metrics: &Metrics) -> String {
    let shards = metrics.shards();
    let mut text = Text(String::with_capacity(16 << 10));
    render_topics(&mut text, &shards);
    render_requests(&mut text, &shards);
    render_cluster(&mut text, metrics, &shards);
    render_compaction(&mut text, &shards);
    render_shards(&mut text, &shards);
    let damage = Family("walser_journal_damage", Gauge, "Unreadable stretches that the start found in journals.");
    text.single(&damage, metrics.journal_damage.value());
    render_process(&mut text);
    text.0
}

type Read = fn(&ShardMetrics) -> u64;

fn sum(shards: &[Arc<ShardMetrics>], read: Read) -> u64 {
    shards.iter().map(|shard| read(shard)).sum()
}

const TOPIC_FAMILIES: &[(Family, Read)] = &[
    (Family("kafka_server_brokertopicmetrics_messagesin_total", Counter, "Records appended by producers."), |s| {
        s.messages_in.value()
    }),
    (
        Family("kafka_server_brokertopicmetrics_bytesin_total", Counter, "Bytes of batches appended by producers."),
        |s| s.produced_bytes.value(),
    ),
    (Family("kafka_server_brokertopicmetrics_bytesout_total", Counter, "Bytes of batches sent to consumers."), |s| {
        s.fetched_bytes.value()
    }),
    (
        Family(
            "kafka_server_brokertopicmetrics_bytesrejected_total",
            Counter,
            "Bytes of batches refused for their size.",
        ),
        |s| s.rejected_bytes.value(),
    ),
    (
        Family(
            "kafka_server_brokertopicmetrics_totalproducerequests_total",
            Counter,
            "Partitions of produce requests.",
        ),
        |s| s.produce_partitions.value(),
    ),
    (
        Family(
            "kafka_server_brokertopicmetrics_failedproducerequests_total",
            Counter,
            "Partitions of produce requests that failed.",
        ),
        |s| s.produce_partitions_failed.value(),
    ),
    (
        Family("kafka_server_brokertopicmetrics_totalfetchrequests_total", Counter, "Partitions of fetch requests."),
        |s| s.fetch_partitions.value(),
    ),
    (
        Family(
            "kafka_server_brokertopicmetrics_failedfetchrequests_total",
            Counter,
            "Partitions of fetch requests that failed.",
        ),
        |s| s.fetch_partitions_failed.value(),
    ),
    (
        Family(
            "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total",
            Counter,
            "Batches refused for their checksum.",
        ),
        |s| s.message_crc_failures.value(),
    ),
    (
        Family(
            "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total",
            Counter,
            "Records without key refused by compacted topics.",
        ),
        |s| s.no_key_compacted_records.value(),
    ),
];

fn render_topics(text: &mut Text, shards: &[Arc<ShardMetrics>]) {
    for (family, read) in TOPIC_FAMILIES {
        text.single(family, sum(shards, *read));
    }
}

const CONNECTION_FAMILIES: &[(Family, Read)] = &[
    (Family("kafka_server_socket_server_metrics_connection_creation_total", Counter, "Connections taken."), |s| {
        s.connections_opened.value()
    }),
    (Family("kafka_server_socket_server_metrics_connection_close_total", Counter, "Connections closed."), |s| {
        s.connections_closed.value()
    }),
];

fn render_requests(text: &mut Text, shards: &[Arc<ShardMetrics>]) {
    let requests = Family("kafka_network_requestmetrics_requests_total", Counter, "Requests dispatched.");
    text.begin(&requests);
    for served in SERVED {
        let count = metrics::requests(shards, served.key);
        text.line(format_args!("{}{{request=\"{}\"}} {count}", requests.0, served.key));
    }
    let errors =
        Family("kafka_network_requestmetrics_errors_total", Counter, "Error codes in answers, success included.");
    text.begin(&errors);
    for served in SERVED {
        for code in ErrorCode::ALL {
            render_error(text, &errors, served.key, *code, metrics::errors(shards, served.key, *code));
        }
    }
    let connections = Family("kafka_server_socket_server_metrics_connection_count", Gauge, "Connections open.");
    text.begin(&connections);
    for (index, shard) in shards.iter().enumerate() {
        let open = shard.connections_opened.value().saturating_sub(shard.connections_closed.value());
        text.line(format_args!("{}{{networkprocessor=\"{index}\"}} {open}", connections.0));
    }
    for (family, read) in CONNECTION_FAMILIES {
        text.single(family, sum(shards, *read));
    }
    let purgatory = Family("kafka_server_delayedoperationpurgatory_purgatorysize", Gauge, "Requests that wait.");
    text.begin(&purgatory);
    let waiting: [(&str, Read); 2] =
        [("Fetch", |s| s.fetch_purgatory.value()), ("Produce", |s| s.produce_purgatory.value())];
    for (operation, read) in waiting {
        let count = sum(shards, read);
        text.line(format_args!("{}{{delayedoperation=\"{operation}\"}} {count}", purgatory.0));
    }
    let sessions =
        Family("kafka_server_fetchsessioncache_numincrementalfetchsessions", Gauge, "Incremental fetch sessions kept.");
    text.single(&sessions, sum(shards, |s| s.fetch_sessions.value()));
}

/// Codes that never came are left out: there are thousands of pairs.
fn render_error(text: &mut Text, family: &Family, key: ApiKey, code: ErrorCode, count: u64) {
    if count > 0 {
        text.line(format_args!("{}{{request=\"{key}\",error=\"{}\"}} {count}", family.0, code.name()));
    }
}

fn render_cluster(text: &mut Text, metrics: &Metrics, shards: &[Arc<ShardMetrics>]) {
    let cluster = &metrics.cluster;
    let led = sum(shards, |s| s.partitions_led.value());
    let offline = sum(shards, |s| s.partitions_offline.value());
    let gauges = [
        ("kafka_brokers", "Brokers that are not fenced.", cluster.brokers.value()),
        (
            "kafka_controller_kafkacontroller_activecontrollercount",
            "Whether the controller runs here.",
            cluster.active_controller.value(),
        ),
        ("kafka_controller_kafkacontroller_activebrokercount", "Brokers that are not fenced.", cluster.brokers.value()),
        (
            "kafka_controller_kafkacontroller_fencedbrokercount",
            "Brokers that are fenced.",
            cluster.fenced_brokers.value(),
        ),
        ("kafka_controller_kafkacontroller_globaltopiccount", "Topics.", cluster.topics.value()),
        ("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions.", cluster.partitions.value()),
        (
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "Partitions without a leader.",
            cluster.offline_partitions.value(),
        ),
        (
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
            "Partitions led by another than the preferred replica.",
            cluster.preferred_replica_imbalance.value(),
        ),
        (
            "kafka_server_replicamanager_underreplicatedpartitions",
            "Partitions led here with too few in-sync replicas.",
            cluster.under_replicated_partitions.value(),
        ),
        (
            "kafka_server_replicamanager_underminisrpartitioncount",
            "Partitions led here below min.insync.replicas.",
            cluster.under_min_isr_partitions.value(),
        ),
        ("kafka_server_replicamanager_partitioncount", "Partitions with a replica here.", led),
        ("kafka_server_replicamanager_leadercount", "Partitions led here.", led),
        ("kafka_server_replicamanager_offlinereplicacount", "Replicas here whose log is offline.", offline),
        (
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that are offline or have failed.",
            metrics.failed_log_dirs.value(),
        ),
        ("walser_log_size_bytes", "Bytes of all logs.", sum(shards, |s| s.log_bytes.value())),
        ("walser_metadata_offset", "Offset of the last metadata record applied.", cluster.metadata_offset.value()),
    ];
    for (name, help, value) in gauges {
        text.single(&Family(name, Gauge, help), value);
    }
}

/// Sums over the shards.
const COMPACTION_SUMS: &[(Family, Read)] = &[
    (
        Family(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            Gauge,
            "Logs that cannot be compacted until the next start.",
        ),
        |s| s.compaction_uncleanable.value(),
    ),
    (
        Family("kafka_log_logcleanermanager_uncleanable_bytes", Gauge, "Dirty bytes of logs that cannot be compacted."),
        |s| s.compaction_uncleanable_bytes.value(),
    ),
    (Family("walser_compaction_passes_total", Counter, "Passes of compaction over a log."), |s| {
        s.compaction_passes.value()
    }),
    (Family("walser_compaction_bytes_before_total", Counter, "Bytes that passes of compaction went over."), |s| {
        s.compaction_bytes_before.value()
    }),
    (Family("walser_compaction_bytes_after_total", Counter, "Bytes that passes of compaction left of them."), |s| {
        s.compaction_bytes_after.value()
    }),
];

/// The largest of the shards.
const COMPACTION_MAXIMA: &[(Family, Read)] = &[
    (Family("kafka_log_logcleanermanager_max_dirty_percent", Gauge, "Dirty part of the dirtiest log."), |s| {
        s.compaction_max_dirty_percent.value()
    }),
    (
        Family("kafka_log_logcleanermanager_time_since_last_run_ms", Gauge, "Since compaction last looked for work."),
        |s| s.compaction_idle_ms.value(),
    ),
    (
        Family(
            "kafka_log_logcleaner_max_buffer_utilization_percent",
            Gauge,
            "How full the last pass had its map of keys.",
        ),
        |s| s.compaction_buffer_percent.value(),
    ),
    (Family("kafka_log_logcleaner_cleaner_recopy_percent", Gauge, "Part of the bytes that the last pass kept."), |s| {
        s.compaction_recopy_percent.value()
    }),
    (Family("kafka_log_logcleaner_max_clean_time_secs", Gauge, "Time the last pass took."), |s| {
        s.compaction_seconds.value()
    }),
];

fn render_compaction(text: &mut Text, shards: &[Arc<ShardMetrics>]) {
    for (family, read) in COMPACTION_SUMS {
        text.single(family, sum(shards, *read));
    }
    for (family, read) in COMPACTION_MAXIMA {
        text.single(family, shards.iter().map(|shard| read(shard)).max().unwrap_or(0));
    }
}

const SHARD_FAMILIES: &[(Family, Read)] = &[
    (Family("walser_received_bytes_total", Counter, "Bytes of request frames."), |s| s.received_bytes.value()),
    (Family("walser_sent_bytes_total", Counter, "Bytes of response frames."), |s| s.sent_bytes.value()),
    (Family("walser_connections_over_limit_total", Counter, "Connections closed because of a limit."), |s| {
        s.connections_over_limit.value()
    }),
    (Family("walser_connections_refused_total", Counter, "Connections closed for what they sent."), |s| {
        s.connections_refused.value()
    }),
    (Family("walser_connection_panics_total", Counter, "Panics that closed a connection."), |s| {
        s.connection_panics.value()
    }),
    (Family("walser_accept_pauses_total", Counter, "Pauses of accepting for want of descriptors."), |s| {
        s.accept_pauses.value()
    }),
    (Family("walser_guard_rescues_total", Counter, "Messages a guard found undelivered."), |s| s.guard_rescues.value()),
    (Family("walser_shard_stalls_total", Counter, "Stalls the watchdog reported."), |s| s.stalls.value()),
    (Family("walser_commits_total", Counter, "Rounds of writing to segments."), |s| s.commits.value()),
    (Family("walser_journal_commits_total", Counter, "Group commits of the journal."), |s| s.journal_commits.value()),
    (
        Family("walser_journal_commit_age_ms", Gauge, "Milliseconds the journal's commit in flight has taken so far."),
        |s| s.journal_commit_age_ms.value(),
    ),
    (
        Family(
            "walser_log_commit_age_ms",
            Gauge,
            "Milliseconds the log that waits longest for its segment has waited.",
        ),
        |s| s.log_commit_age_ms.value(),
    ),
    (Family("walser_slow_commits_total", Counter, "Commits that took the disk a second and more."), |s| {
        s.slow_commits.value()
    }),
    (Family("walser_journal_failed", Gauge, "1 when the journal has failed, and every log behind it."), |s| {
        s.journal_failed.value()
    }),
    (Family("walser_journal_stalled", Gauge, "1 while the journal waits for room on the disk."), |s| {
        s.journal_stalled.value()
    }),
    (Family("walser_logs_without_room", Gauge, "Logs for which the disk has no room at present."), |s| {
        s.logs_without_room.value()
    }),
    (Family("walser_disk_short", Gauge, "1 while the reserve for a full disk is used and appends are refused."), |s| {
        s.disk_short.value()
    }),
    (Family("walser_journal_live_bytes", Gauge, "Bytes of journal files that hold records."), |s| {
        s.journal_live_bytes.value()
    }),
    (Family("walser_journal_staged_bytes", Gauge, "Bytes of batches that are in no segment yet."), |s| {
        s.journal_staged_bytes.value()
    }),
    (Family("walser_tail_bytes", Gauge, "Memory of recent batches."), |s| s.tail_bytes.value()),
    (Family("walser_block_cache_bytes", Gauge, "Memory of blocks of old batches."), |s| s.block_cache_bytes.value()),
    (Family("walser_block_cache_hits_total", Counter, "Blocks of old batches found in memory."), |s| {
        s.block_cache_hits.value()
    }),
    (Family("walser_block_cache_misses_total", Counter, "Blocks of old batches read from the disk."), |s| {
        s.block_cache_misses.value()
    }),
    (Family("walser_frame_memory_used_bytes", Gauge, "Memory held by frames and replies."), |s| {
        s.frame_memory_used.value()
    }),
    (Family("walser_frame_memory_waiting", Gauge, "Frames that wait for memory."), |s| s.frame_memory_waiting.value()),
    (Family("walser_partitions_led", Gauge, "Partitions led by the shard."), |s| s.partitions_led.value()),
    (Family("walser_partitions_offline", Gauge, "Partitions of the shard whose log is offline."), |s| {
        s.partitions_offline.value()
    }),
];

fn render_shards(text: &mut Text, shards: &[Arc<ShardMetrics>]) {
    for (family, read) in SHARD_FAMILIES {
        text.begin(family);
        for (index, shard) in shards.iter().enumerate() {
            text.line(format_args!("{}{{shard=\"{index}\"}} {}", family.0, read(shard)));
        }
    }
}

fn render_process(text: &mut Text) {
    text.begin(&Family("walser_build_info", Gauge, "The version that runs."));
    text.line(format_args!("walser_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")));
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let cpu = seconds(usage.user_time()) + seconds(usage.system_time());
        text.single(&Family("process_cpu_seconds_total", Counter, "CPU time of the process."), cpu);
    }
    if let Some(bytes) = crate::shard::watchdog::resident_bytes() {
        text.single(&Family("process_resident_memory_bytes", Gauge, "Memory of the process."), bytes);
    }
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the directory that is being read.
        let open = entries.count().saturating_sub(1);
        text.single(&Family("process_open_fds", Gauge, "Descriptors open."), open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_belongs_to_a_family_declared_once() {
        // Rule: the text is one Prometheus accepts: HELP and TYPE once per family, before its samples.
        let metrics = Metrics::default();
        metrics.shard(0).count_request(ApiKey::Produce);
        metrics.shard(1).count_error(ApiKey::Fetch, ErrorCode::ALL[1]);
        let text = render(&metrics);
        let mut family = "";
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().expect("a name");
                assert!(seen.insert(family), "{family} is declared twice");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().expect("a name");
                assert_eq!(name, family, "{line}");
                let value = line.rsplit(' ').next().expect("a value");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(text.contains("kafka_network_requestmetrics_requests_total{request=\"Produce\"} 1\n"));
        assert!(text.contains("kafka_network_requestmetrics_errors_total{request=\"Fetch\",error="));
    }
}
