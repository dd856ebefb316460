"""Kafka's own command line tools, run on the broker under test and on Apache Kafka: same exit codes, same words.

All commands of one broker run in one JVM. What must differ between two brokers (ids, addresses, folders) is masked; what
may differ because it describes the broker itself is only looked at for success and shape.
"""

import concurrent.futures
import json
import os
import re
import subprocess

import install

TOOL = {
    "topics": "TopicCommand",
    "configs": "ConfigCommand",
    "get-offsets": "GetOffsetShell",
    "log-dirs": "LogDirsCommand",
    "cluster": "ClusterTool",
    "api-versions": "BrokerApiVersionsCommand",
    "features": "FeatureCommand",
    "metadata-quorum": "MetadataQuorumCommand",
    "producer-perf-test": "ProducerPerformance",
    "delete-records": "DeleteRecordsCommand",
    "consumer-groups": "consumer.group.ConsumerGroupCommand",
    "dump-log": "DumpLogSegments",
}

# What takes longer hangs, also where the machine is slow.
SECONDS = 3600

# Per topic config: a value to set, and one that is refused (none where every value of the type is good).
TOPIC_CONFIGS = {
    "segment.bytes": ("2097152", "1000"),
    "segment.ms": ("3600000", "0"),
    "segment.jitter.ms": ("1000", "-1"),
    "segment.index.bytes": ("1048576", "3"),
    "flush.messages": ("1000", "0"),
    "flush.ms": ("1000", "-1"),
    "retention.bytes": ("1073741824", "x"),
    "retention.ms": ("86400000", "-2"),
    "max.message.bytes": ("2000000", "-1"),
    "index.interval.bytes": ("8192", "-1"),
    "delete.retention.ms": ("3600000", "-1"),
    "min.compaction.lag.ms": ("1000", "-1"),
    "max.compaction.lag.ms": ("3600000", "0"),
    "file.delete.delay.ms": ("1000", "-1"),
    "min.cleanable.dirty.ratio": ("0.25", "1.5"),
    "cleanup.policy": ("[compact,delete]", "shred"),
    "unclean.leader.election.enable": ("true", "maybe"),
    "min.insync.replicas": ("2", "0"),
    "compression.type": ("zstd", "rar"),
    "compression.gzip.level": ("5", "10"),
    "compression.lz4.level": ("3", "18"),
    "compression.zstd.level": ("7", "23"),
    "preallocate": ("true", "perhaps"),
    "message.timestamp.type": ("LogAppendTime", "Sundial"),
    "message.timestamp.before.max.ms": ("3600000", "-1"),
    "message.timestamp.after.max.ms": ("7200000", "-1"),
    "leader.replication.throttled.replicas": ("[0:1,1:1]", "x"),
    "follower.replication.throttled.replicas": ("*", "x"),
    "remote.storage.enable": ("true", "x"),
    "local.retention.ms": ("1000", "-3"),
    "local.retention.bytes": ("1000", "-3"),
    "remote.log.copy.disable": ("true", "x"),
    "remote.copy.lag.ms": ("1000", "-2"),
    "remote.copy.lag.bytes": ("1000", "-2"),
    "remote.log.delete.on.disable": ("true", "x"),
    "errors.deadletterqueue.group.enable": ("true", "x"),
}

# The same settings as a default of the whole cluster.
BROKER_CONFIGS = {
    "log.segment.bytes": "2097152",
    "log.roll.ms": "3600000",
    "log.roll.jitter.ms": "1000",
    "log.index.size.max.bytes": "1048576",
    "log.flush.interval.messages": "1000",
    "log.flush.interval.ms": "1000",
    "log.retention.bytes": "1073741824",
    "log.retention.ms": "86400000",
    "message.max.bytes": "2000000",
    "log.index.interval.bytes": "8192",
    "log.cleaner.delete.retention.ms": "3600000",
    "log.cleaner.min.compaction.lag.ms": "1000",
    "log.cleaner.max.compaction.lag.ms": "3600000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleanup.policy": "compact",
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "2",
    "compression.type": "zstd",
    "log.preallocate": "true",
    "log.message.timestamp.type": "LogAppendTime",
    "log.cleaner.threads": "2",
    "max.connections": "5000",
    "num.io.threads": "10",
    "background.threads": "6",
    "producer.id.expiration.ms": "100000",
}


class Step:
    """One command.

    `loose` is a pattern that the output has to have, in place of being what Kafka's is. `settle` is +WORD or -WORD: the
    command is repeated for a while until the output has the word, or has it no longer; with ? in front, where the step before
    has succeeded.
    """

    def __init__(self, name, tool, *arguments, loose=None, settle="", prepare=str):
        self.name, self.tool, self.arguments, self.loose, self.settle, self.prepare = name, tool, arguments, loose, settle, prepare

    def line(self, address):
        server = ["--bootstrap-server", address]
        if self.tool == "cluster":
            words = [self.arguments[0], *server, *self.arguments[1:]]
        elif self.tool == "producer-perf-test":
            words = [*self.arguments, *server]
        else:
            words = [*server, *self.arguments]
        return "\t".join([self.settle, f"org.apache.kafka.tools.{TOOL[self.tool]}", *words])


def topic_steps(topic):
    def step(name, *arguments, **options):
        return Step(f"topics {name}", "topics", *arguments, **options)

    plain = ["--create", "--partitions", "6", "--replication-factor", "1"]
    return [
        step("create", *plain, "--topic", topic, "--config", "segment.bytes=2097152", "--config", "cleanup.policy=compact"),
        step("create twice", *plain, "--topic", topic),
        step("list the first", "--list", "--topic", topic, settle=f"+{topic}"),
        step("create if not exists", *plain, "--topic", topic, "--if-not-exists"),
        step("create with defaults", "--create", "--topic", f"{topic}.defaults"),
        step("create with assignment", "--create", "--topic", f"{topic}-assigned", "--replica-assignment", "1,1,1"),
        step("create with bad assignment", "--create", "--topic", f"{topic}-bad", "--replica-assignment", "1,7"),
        step("create with too many replicas", "--create", "--topic", f"{topic}-bad", "--partitions", "1", "--replication-factor", "3"),
        step("create without partitions", "--create", "--topic", f"{topic}-bad", "--partitions", "0"),
        step("create with a bad name", *plain, "--topic", "no/slash"),
        step("create with too long a name", *plain, "--topic", "n" * 250),
        step("create with a colliding name", *plain, "--topic", f"{topic}_defaults"),
        step("create with an unknown config", *plain, "--topic", f"{topic}-bad", "--config", "no.such.config=1"),
        step("create with a bad config", *plain, "--topic", f"{topic}-bad", "--config", "retention.ms=soon"),
        step("describe", "--describe", "--topic", topic, settle="+PartitionCount: 6"),
        step("describe assigned", "--describe", "--topic", f"{topic}-assigned", settle="+PartitionCount: 3"),
        step("describe unknown", "--describe", "--topic", f"{topic}-nowhere"),
        step("describe unknown if exists", "--describe", "--topic", f"{topic}-nowhere", "--if-exists"),
        step("describe overridden", "--describe", "--topic", topic, "--topics-with-overrides"),
        step("describe under-replicated", "--describe", "--topic", topic, "--under-replicated-partitions"),
        step("describe unavailable", "--describe", "--topic", topic, "--unavailable-partitions"),
        step("describe under min isr", "--describe", "--topic", topic, "--under-min-isr-partitions"),
        step("describe at min isr", "--describe", "--topic", topic, "--at-min-isr-partitions"),
        step("list", "--list", prepare=lambda text: "\n".join(line for line in text.splitlines() if line.startswith(topic))),
        step("list one", "--list", "--topic", topic),
        step("list without internal", "--list", "--exclude-internal", "--topic", f"{topic}.*"),
        step("alter", "--alter", "--topic", topic, "--partitions", "8"),
        step("describe with more partitions", "--describe", "--topic", topic, settle="+PartitionCount: 8"),
        step("alter to fewer", "--alter", "--topic", topic, "--partitions", "3"),
        step("alter to as many", "--alter", "--topic", topic, "--partitions", "8"),
        step("alter with assignment", "--alter", "--topic", topic, "--partitions", "9", "--replica-assignment", "1,1,1,1,1,1,1,1,1"),
        step("alter unknown", "--alter", "--topic", f"{topic}-nowhere", "--partitions", "3"),
        step("describe altered", "--describe", "--topic", topic, settle="+PartitionCount: 9"),
    ]


def topic_end_steps(topic):
    return [
        Step("topics delete", "topics", "--delete", "--topic", topic),
        # Kafka goes on naming a deleted topic for a moment, and the tool looks there before it deletes.
        Step("topics list after the first delete", "topics", "--list", "--topic", topic, settle=f"-{topic}"),
        Step("topics delete twice", "topics", "--delete", "--topic", topic),
        Step("topics delete if exists", "topics", "--delete", "--topic", topic, "--if-exists"),
        Step("topics delete many", "topics", "--delete", "--topic", f"{topic}.*"),
        Step("topics list after delete", "topics", "--list", "--topic", f"{topic}.*", settle=f"-{topic}"),
    ]


def config_steps(topic):
    entity = ["--entity-type", "topics", "--entity-name", topic]
    for key, (good, bad) in TOPIC_CONFIGS.items():
        yield Step(f"configs topic {key} set", "configs", "--alter", *entity, "--add-config", f"{key}={good}")
        yield Step(f"configs topic {key} set, described", "configs", "--describe", *entity, settle=f"?+{key}=")
        yield Step(f"configs topic {key} refused", "configs", "--alter", *entity, "--add-config", f"{key}={bad}")
        yield Step(f"configs topic {key} deleted", "configs", "--alter", *entity, "--delete-config", key)
        yield Step(f"configs topic {key} deleted, described", "configs", "--describe", *entity, settle=f"-{key}=")
    yield Step("configs topic all", "configs", "--describe", "--all", *entity)
    yield Step("configs topic unknown key", "configs", "--alter", *entity, "--add-config", "no.such.key=1")
    yield Step("configs topic delete what is not set", "configs", "--alter", *entity, "--delete-config", "retention.ms")
    yield Step("configs unknown topic", "configs", "--alter", "--entity-type", "topics", "--entity-name", f"{topic}-nowhere", "--add-config", "retention.ms=1")
    yield Step("configs unknown topic described", "configs", "--describe", "--entity-type", "topics", "--entity-name", f"{topic}-nowhere")
    default, one = ["--entity-type", "brokers", "--entity-default"], ["--entity-type", "brokers", "--entity-name", "1"]
    for key, value in BROKER_CONFIGS.items():
        yield Step(f"configs brokers {key} set", "configs", "--alter", *default, "--add-config", f"{key}={value}")
        yield Step(f"configs brokers {key} set, described", "configs", "--describe", *default, settle=f"?+{key}=")
        yield Step(f"configs brokers {key} deleted", "configs", "--alter", *default, "--delete-config", key)
        yield Step(f"configs brokers {key} deleted, described", "configs", "--describe", *default, settle=f"-{key}=")
    yield Step("configs broker set", "configs", "--alter", *one, "--add-config", "log.cleaner.threads=2")
    yield Step("configs broker described", "configs", "--describe", *one, settle="+log.cleaner.threads=2 sensitive")
    yield Step("configs broker deleted", "configs", "--alter", *one, "--delete-config", "log.cleaner.threads")
    yield Step("configs broker not dynamic", "configs", "--alter", *one, "--add-config", "node.id=7")
    yield Step("configs broker all", "configs", "--describe", "--all", *one, loose=r"log\.retention\.hours=168")
    yield Step("configs unknown broker", "configs", "--alter", "--entity-type", "brokers", "--entity-name", "77", "--add-config", "log.cleaner.threads=2")


def offsets_file(context, name, topic, offset):
    """What kafka-delete-records reads."""
    path = os.path.join(context.path("kafka-tools-files"), f"{name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": offset}]}, file)
    return path


def delete_records_steps(context, topic):
    def delete(name, offset):
        return Step(f"delete-records {name}", "delete-records", "--offset-json-file", offsets_file(context, name.replace(" ", "-"), topic, offset))

    yield delete("up to an offset", 300)
    yield Step("get-offsets after delete-records", "get-offsets", "--topic", topic, "--time", "-2")
    yield delete("below the start", 100)
    yield delete("beyond the end", 1_000_000)
    yield delete("of everything", -1)
    yield Step("get-offsets after delete-records of everything", "get-offsets", "--topic", topic, "--time", "earliest")


def record_steps(topic):
    def offsets(name, *arguments, **options):
        return Step(f"get-offsets {name}", "get-offsets", "--topic", topic, *arguments, **options)

    perf = ["--topic", topic, "--num-records", "20000", "--record-size", "1000", "--throughput", "-1"]
    yield Step("topics create for records", "topics", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1")
    yield offsets("of an empty topic", settle=f"+{topic}:0:0")
    yield Step("producer-perf-test", "producer-perf-test", *perf, loose=r"20000 records sent, .* 99\.9th")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        yield Step(f"producer-perf-test {codec}", "producer-perf-test", *perf[:3], "1000", *perf[4:],
                   "--command-property", f"compression.type={codec}", loose=r"1000 records sent, ")
    for time in ("-1", "-2", "-4", "-5", "-6", "earliest", "latest", "earliest-local", "latest-tiered", "0", "9999999999999"):
        yield offsets(f"at {time}", "--time", time)
    # The records are not the same on two brokers, so the offset of the youngest is not either.
    yield Step("get-offsets at -3", "get-offsets", "--topic", topic, "--time", "-3", loose=rf"{topic}:0:\d+")
    yield Step("get-offsets at max-timestamp", "get-offsets", "--topic", topic, "--time", "max-timestamp", loose=rf"{topic}:0:\d+")
    yield offsets("of one partition", "--topic-partitions", f"{topic}:0")
    yield Step("get-offsets of an unknown topic", "get-offsets", "--topic", f"{topic}-nowhere")


# Each on what the step before has left.
RESETS = [["--to-earliest"], ["--to-offset", "100"], ["--shift-by", "50"], ["--shift-by", "-10"], ["--to-latest"], ["--to-offset", "99999999"],
          ["--to-datetime", "2020-01-01T00:00:00.000"], ["--by-duration", "P1000D"], ["--to-current"]]


def group_steps(topic):
    """Positions without members: groups with members are another part's."""
    group = f"{topic}-group"

    def step(name, *arguments, **options):
        return Step(f"consumer-groups {name}", "consumer-groups", *arguments, **options)

    yield step("list of none", "--list")
    yield step("describe unknown", "--describe", "--group", group)
    for how in RESETS:
        for mode in ("--dry-run", "--execute"):
            yield step(f"reset {' '.join(how)} {mode}", "--reset-offsets", "--group", group, "--topic", f"{topic}:0", *how, mode)
        yield step(f"describe after {' '.join(how)}", "--describe", "--group", group)
    yield step("reset of an unknown topic", "--reset-offsets", "--group", group, "--topic", f"{topic}-nowhere", "--to-earliest", "--execute")
    yield step("export", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--export", "--dry-run")
    yield step("list", "--list")
    yield step("list with states", "--list", "--state")
    yield step("list of a state", "--list", "--state", "stable")
    yield step("list with types", "--list", "--type")
    yield step("list of a type", "--list", "--type", "consumer")
    yield step("describe state", "--describe", "--group", group, "--state")
    yield step("describe members", "--describe", "--group", group, "--members", "--verbose")
    yield step("describe offsets", "--describe", "--all-groups", "--offsets", "--verbose")
    yield step("delete offsets", "--delete-offsets", "--group", group, "--topic", topic)
    yield step("delete offsets of an unknown topic", "--delete-offsets", "--group", group, "--topic", f"{topic}-nowhere")
    yield step("describe without offsets", "--describe", "--group", group)
    yield step("reset once more", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    yield step("validate regex", "--validate-regex", "a.*b|[c]{2,}")
    yield step("validate a bad regex", "--validate-regex", "(")
    yield step("delete", "--delete", "--group", group)
    yield step("delete twice", "--delete", "--group", group)
    yield step("list after delete", "--list")
    named = ["--entity-type", "groups", "--entity-name", group]
    yield Step("configs groups set", "configs", "--alter", *named, "--add-config", "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000")
    yield Step("configs groups described", "configs", "--describe", *named, settle="+consumer.session.timeout.ms=50000")
    yield Step("configs groups all", "configs", "--describe", "--all", *named)
    yield Step("configs groups out of range", "configs", "--alter", *named, "--add-config", "consumer.session.timeout.ms=1")
    yield Step("configs groups deleted", "configs", "--alter", *named, "--delete-config", "consumer.session.timeout.ms,consumer.heartbeat.interval.ms")


def whole_steps(topic):
    yield Step("log-dirs of a topic", "log-dirs", "--describe", "--topic-list", topic, prepare=shape_of_log_dirs)
    yield Step("log-dirs of a broker", "log-dirs", "--describe", "--broker-list", "1", loose=f'"partition":"{topic}-0"')
    yield Step("log-dirs of an unknown broker", "log-dirs", "--describe", "--broker-list", "1,77")
    yield Step("cluster id", "cluster", "cluster-id", loose=r"Cluster ID: [A-Za-z0-9_-]{22}\b")
    yield Step("cluster endpoints", "cluster", "list-endpoints", prepare=lambda text: re.sub(r" +", " ", text))
    yield Step("cluster api versions", "api-versions", loose=r"Produce\(0\): (0|3) to 13 \[usable: 13\][\s\S]*ApiVersions\(18\): 0 to 5 \[usable: 5\]")
    yield Step("features", "features", "describe", loose=r"Feature: metadata\.version")
    yield Step("metadata-quorum status", "metadata-quorum", "describe", "--status", loose=r"LeaderId: +1[\s\S]*CurrentVoters: +\[\{\"id\": 1")
    yield Step("metadata-quorum replication", "metadata-quorum", "describe", "--replication", loose=r"\n1\s.*Leader")


def shape_of_log_dirs(text):
    """The words before the JSON, and of that everything but where the folder is and how large a disk."""
    words, brace, rest = text.partition("{")
    try:
        found = json.loads(brace + rest)
    except ValueError:
        return text
    for broker in found.get("brokers", []):
        for folder in broker.get("logDirs", []):
            for field in ("logDir", "totalBytes", "usableBytes"):
                folder.pop(field, None)
            for partition in folder.get("partitions", []):
                partition["size"] = "some" if partition["size"] > 0 else "none"
    return words + json.dumps(found, sort_keys=True)


def normalised(step, address, text):
    text = re.sub(r"TopicId: \S+", "TopicId: ID", step.prepare(text)).replace(address, "BROKER").replace(address.rsplit(":", 1)[1], "PORT")
    # Log lines of the tool's own client are about time; settings that only walser has are not in Kafka.
    lines = [line.rstrip() for line in text.splitlines() if not re.match(r"\s*walser\.|\d{4}-\d\d-\d\d ", line)]
    return "\n".join(lines)


def run_tools(context, name, lines):
    """Exit code and output of each line."""
    folder = context.path(f"kafka-tools-{name}")
    commands = os.path.join(folder, "commands")
    with open(commands, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    log4j = os.path.join(install.TESTS, "kafka", "log4j2.xml")
    classes = f"{context.tools.tool_classes()}:{context.tools.kafka_jars()}"
    with open(os.path.join(folder, "stderr"), "wb") as log:
        subprocess.run([context.tools.java(), "-Xmx512m", f"-Dlog4j2.configurationFile={log4j}", "-cp", classes, "walser.Tools", commands, folder],
                       stdout=log, stderr=log, timeout=SECONDS, check=True)
    results = []
    for number in range(len(lines)):
        with open(os.path.join(folder, str(number)), encoding="utf-8") as file:
            code, _, output = file.read().partition("\n")
        results.append((int(code), output))
    return results


def compare(context):
    topic = f"tools-{os.path.basename(context.folder)}"
    steps = [*topic_steps(topic), *config_steps(topic), *record_steps(f"{topic}-records"), *group_steps(f"{topic}-records"),
             *delete_records_steps(context, f"{topic}-records"), *whole_steps(f"{topic}-records"), *topic_end_steps(topic)]
    brokers = {"tested": context.broker(), "kafka": context.brokers.kafka().address}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = {name: pool.submit(run_tools, context, name, [step.line(address) for step in steps]) for name, address in brokers.items()}
        tested, kafka = running["tested"].result(), running["kafka"].result()
    for step, (code, output), (kafka_code, kafka_output) in zip(steps, tested, kafka):
        context.report.case(f"kafka-tools {step.name}", problem(step, brokers, (code, output), (kafka_code, kafka_output)))


def problem(step, brokers, tested, kafka):
    if tested[0] != kafka[0]:
        return f"exit code {tested[0]}, Kafka's {kafka[0]}; output {tested[1][-400:]!r}, Kafka's {kafka[1][-400:]!r}"
    if step.loose:
        return None if re.search(step.loose, tested[1]) else f"{step.loose!r} is not in {tested[1][-1000:]!r}"
    ours, theirs = normalised(step, brokers["tested"], tested[1]), normalised(step, brokers["kafka"], kafka[1])
    if ours == theirs:
        return None
    only_ours = [line for line in ours.splitlines() if line not in theirs.splitlines()]
    only_theirs = [line for line in theirs.splitlines() if line not in ours.splitlines()]
    return f"printed {only_ours[:5]}, where Kafka prints {only_theirs[:5]}"


COMPLAINTS = re.compile(r"mismatch|corrupt|invalid|exception|out of order|not found|non-?zero|isvalid: false|could not|failed", re.IGNORECASE)
FILES_PER_KIND = 25


def dump_logs(context, broker, part):
    """After a clean stop Kafka's dump tool reads every kind of file that the broker left."""
    code = broker.stop()
    context.report.case(f"{part}clean stop", None if code == 0 else f"exit code {code}")
    kinds = {".log": ["--deep-iteration"], ".index": ["--index-sanity-check"], ".timeindex": ["--index-sanity-check"], ".snapshot": []}
    found = {kind: [] for kind in kinds}
    for folder, _, files in sorted(os.walk(broker.data)):
        for file in sorted(files):
            kind = os.path.splitext(file)[1]
            if kind in found and re.match(r"\d{20}\.", file) and re.search(r"-\d+$", folder):
                found[kind].append(os.path.join(folder, file))
    for kind, files in found.items():
        # Those with something in them first.
        files.sort(key=lambda path: -os.path.getsize(path))
        chosen = files[:FILES_PER_KIND]
        if not chosen:
            context.report.case(f"{part}dump-log {kind}", f"the broker left no {kind} file in {broker.data}")
            continue
        lines = ["\t".join(["", "org.apache.kafka.tools.DumpLogSegments", "--files", path, *kinds[kind]]) for path in chosen]
        bad = [(path, output) for path, (code, output) in zip(chosen, run_tools(context, f"{part.strip()}-dump{kind}", lines)) if code != 0 or COMPLAINTS.search(output)]
        context.report.case(f"{part}dump-log {kind}", None if not bad else f"{len(bad)} of {len(chosen)} files, first {bad[0][0]}: {bad[0][1][-500:]!r}")
