"""The parts of a run."""

import os
import re
import secrets
import subprocess

import groups
import handover
import install
import tools

CASES = ["default", "codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "acks-0", "acks-1", "acks-all",
         "idempotent", "sizes", "offsets", "recreate"]
# What takes longer hangs: the longest of them takes a tenth of it on two cores.
CLIENT_SECONDS = 2400


def parts(arguments):
    """Those that run one after the other, and those that may run two at a time."""
    alone = {} if arguments.broker else {"cargo": cargo, "java-codec": java_codec}
    if not arguments.broker:
        alone |= {"hostile": hostile, "starts": starts}
    if arguments.long and not arguments.broker:
        alone |= {"crash-rounds": crash_rounds, "disks": disks, "order": order, "stalls": stalls, "many-partitions": many_partitions, "model": model,
                  "planted": planted}
    together = {}
    if not arguments.broker:
        together["differential"] = differential
        together["compaction"] = compaction
        together["handover"] = handover.to_kafka
        together["groups"] = groups.share
    together |= {
        "java-4.4.0": lambda context: java(context, "java-4.4.0", context.tools.kafka_jars()),
        "java-2.1.0": lambda context: java(context, "java-2.1.0", context.tools.old_client_jars()),
        "confluent-kafka": lambda context: python(context, "confluent-kafka", "confluent_client.py"),
        "kafka-python": lambda context: python(context, "kafka-python", "kafka_python_client.py"),
        "aiokafka": lambda context: python(context, "aiokafka", "aiokafka_client.py"),
        "kcat": kcat,
        "kafkajs": kafkajs,
        "franz-go": lambda context: go(context, "franz-go", "franz", CASES),
        "sarama": lambda context: go(context, "sarama", "sarama", CASES),
        # This library has no idempotent producer.
        "kafka-go": lambda context: go(context, "kafka-go", "segmentio", [case for case in CASES if case != "idempotent"]),
        "kafka-tools": tools.compare,
    }
    return alone, together


def after(context):
    """What needs a broker that all the rest has used, and that has stopped."""
    if "walser" in context.brokers.running:
        tools.dump_logs(context, context.brokers.walser(), "")


def cargo(context):
    command = [context.tools.cargo(), "test", "--workspace", "--locked", "--no-fail-fast"]
    passed = failed = 0
    process = subprocess.Popen(command, cwd=install.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        print(line, end="", flush=True)
        counted = re.match(r"test result: \S+ (\d+) passed; (\d+) failed", line)
        if counted:
            passed += int(counted.group(1))
            failed += int(counted.group(2))
    if process.wait() != 0 and failed == 0:
        # It did not compile, or a test binary died.
        failed = 1
    context.report.many("cargo", passed, failed)


def java_codec(context):
    """Our codec against Kafka's own message classes."""
    context.tools.java()
    samples = "60" if context.arguments.long else "8"
    command = [os.path.join(install.CLIENTS, "java-codec", "run"), samples]
    environment = {**os.environ, "CARGO": context.tools.cargo()}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment)
    print(done.stdout[-2000:], flush=True)
    context.report.case("java-codec", None if done.returncode == 0 else f"exited with {done.returncode}")


# Rounds, how the broker dies, and how wide; with flushes that do nothing the losses have to be noticed.
CRASH_ROUNDS = [("30", "kill"), ("20", "cut"), ("5", "ignored"), ("100", "kill", "many"), ("100", "cut", "many")]


def crash_rounds(context):
    program = context.tools.crash_rounds()
    environment = dict(os.environ, WALSER_BIN=context.tools.walser())
    for rounds, *how in CRASH_ROUNDS:
        done = subprocess.run([program, rounds, str(secrets.randbits(32)), *how], env=environment, check=False)
        context.report.case(f"crash-rounds {' '.join(how)}", None if done.returncode == 0 else f"it exited with {done.returncode}")


def disks(context):
    """Disks in trouble and the file systems there are, under the release binary."""
    context.tools.file_systems()
    environment = dict(os.environ, WALSER_BIN=context.tools.walser())
    command = [context.tools.cargo(), "test", "--locked", "-p", "walser-tests", "--test", "disk_states", "--test", "file_systems", "--", "--include-ignored", "--nocapture", "--test-threads=1"]
    done = subprocess.run(command, cwd=install.ROOT, env=environment, check=False)
    context.report.case("disks", None if done.returncode == 0 else f"it exited with {done.returncode}")


def program(context, name, *arguments):
    """A program of tests/src/bin against the broker under test."""
    environment = dict(os.environ, WALSER_BIN=context.tools.walser())
    done = subprocess.run([context.tools.program(name), *arguments], env=environment, check=False)
    context.report.case(name, None if done.returncode == 0 else f"it exited with {done.returncode}")


def hostile(context):
    program(context, "hostile", "long" if context.arguments.long else "short", str(secrets.randbits(32) if context.arguments.long else 1))


def starts(context):
    program(context, "starts", "1000" if context.arguments.long else "20")


def stalls(context):
    """Single round trips beside threads that burn the cores; then the same inside of a broker whose timer is wrong."""
    program(context, "stalls", "300")
    command = [context.tools.cargo(), "test", "--locked", "-p", "walser-broker", "--test", "stall", "--", "--ignored", "--test-threads=1", "--nocapture"]
    done = subprocess.run(command, cwd=install.ROOT, check=False)
    context.report.case("stalls inside", None if done.returncode == 0 else f"it exited with {done.returncode}")


def many_partitions(context):
    """Ten thousand of them: what an idle one costs, and how soon they are back after kill -9."""
    program(context, "many-partitions", "10000", "2000")


def order(context):
    """Longer than among the other tests, and against the broker under test."""
    environment = dict(os.environ, WALSER_BIN=context.tools.walser(), WALSER_ORDER_SECONDS="120")
    command = [context.tools.cargo(), "test", "--locked", "-p", "walser-tests", "--test", "order", "--", "--nocapture"]
    done = subprocess.run(command, cwd=install.ROOT, env=environment, check=False)
    context.report.case("order", None if done.returncode == 0 else f"it exited with {done.returncode}")


MODEL_STEPS, MODEL_SEEDS = 1_000_000, 2_000


def model(context):
    """Logs and journals on a simulated disk, held against a list of what was appended, on seeds that nobody has tried."""
    environment = {**os.environ, "WALSER_MODEL_STEPS": str(MODEL_STEPS), "WALSER_MODEL_SEEDS": str(MODEL_SEEDS),
                   "WALSER_FIRST_SEED": str(secrets.randbits(32))}
    command = [context.tools.cargo(), "test", "--release", "--locked", "-p", "walser-storage", "--lib", "model::runs_for_long", "--", "--ignored",
               "--nocapture"]
    done = subprocess.run(command, cwd=install.ROOT, env=environment, check=False)
    context.report.case("model", None if done.returncode == 0 else f"it exited with {done.returncode}")


def planted(context):
    """Bugs put into a copy of the sources, which the tests have to find."""
    environment = {**os.environ, "CARGO": context.tools.cargo()}
    done = subprocess.run([os.path.join(install.TESTS, "planted", "run")], env=environment, check=False)
    context.report.case("planted", None if done.returncode == 0 else f"it exited with {done.returncode}")


def run_client(context, part, command, cases, given=None, seconds=CLIENT_SECONDS):
    """Runs a client's program; each case it was meant to report is a case here. Returns what it printed."""
    folder = context.path(part)
    with open(os.path.join(folder, "stderr"), "ab") as log:
        try:
            done = subprocess.run(command, cwd=folder, input=given, stdout=subprocess.PIPE, stderr=log, text=True, timeout=seconds, check=False)
            output, end = done.stdout, f"the program exited with {done.returncode} before it"
        except subprocess.TimeoutExpired as error:
            output, end = (error.stdout or b"").decode(), f"the program was still running after {seconds} s"
    with open(os.path.join(folder, "stdout"), "a", encoding="utf-8") as file:
        file.write(output)
    results = {}
    for line in output.splitlines():
        verdict = re.match(r"(ok|FAIL) ([^:\s]+)(?:: (.*))?$", line)
        if verdict:
            results[verdict.group(2)] = None if verdict.group(1) == "ok" else verdict.group(3) or "no reason given"
    surprises = [case for case, why in results.items() if why is not None and case not in cases]
    for case in [*cases, *surprises]:
        context.report.case(f"{part} {case}", results.get(case, f"{end}; {folder}/stderr") if results.get(case, 0) is not None else None)
    return output


def prefix(context, part):
    """Topics of one run do not meet those of another on the same broker."""
    return f"{part}-{os.path.basename(context.folder)}"


def java_command(context, jars):
    log4j = os.path.join(install.TESTS, "kafka", "log4j2.xml")
    return [context.tools.java(), "-Xmx512m", f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{context.tools.client_classes()}:{jars}", "walser.Clients"]


def java(context, part, jars):
    run_client(context, part, [*java_command(context, jars), context.broker(), prefix(context, part)], CASES)


def python(context, part, program):
    path = os.path.join(install.CLIENTS, "python", program)
    run_client(context, part, [context.tools.python(), "-B", path, context.broker(), prefix(context, part)], CASES)


def kcat(context):
    context.tools.kcat()
    path = os.path.join(install.CLIENTS, "c", "kcat_client.py")
    run_client(context, "kcat", [context.tools.python(), "-B", path, context.broker(), prefix(context, "kcat")], CASES)


def kafkajs(context):
    """It cannot be assigned partitions, so it writes and the Java client reads."""
    node, name = context.tools.node(), prefix(context, "kafkajs")
    path = os.path.join(install.CLIENTS, "node", "kafkajs_client.js")
    output = run_client(context, "kafkajs", [node, path, context.broker(), name], CASES)
    written = "".join(f"{line}\n" for line in output.splitlines() if line.startswith("verify"))
    reader = [*java_command(context, context.tools.kafka_jars()), context.broker(), name, "-"]
    run_client(context, "kafkajs-read-by-java", reader, CASES, written)


# A case for each key served, one for keys that are not, one for the masks, and one for versions nobody asked for.
DIFFERENTIAL = ["Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups",
                "ListGroups", "ApiVersions", "CreateTopics", "DeleteTopics", "DeleteRecords", "InitProducerId",
                "OffsetForLeaderEpoch", "DescribeConfigs", "AlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs", "CreatePartitions", "DeleteGroups", "IncrementalAlterConfigs",
                "OffsetDelete", "DescribeQuorum", "DescribeCluster", "DescribeProducers", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ListConfigResources", "DescribeTopicPartitions", "unserved", "masks", "versions"]
DIFFERENTIAL_REQUESTS, DIFFERENTIAL_REQUESTS_LONG = 6_000, 100_000


def differential(context):
    """The same generated requests to Kafka and to walser, both of which nobody else uses."""
    program = context.tools.differential()
    oracle = context.brokers.once("kafka-differential", lambda: context.brokers.start_kafka("kafka-differential"))
    tested = context.brokers.once("walser-differential", lambda: context.brokers.start_walser("walser-differential"))
    long = context.arguments.long
    command = [program, "--oracle", oracle.address, "--broker", tested.address, "--log", os.path.join(context.path("differential"), "differences"),
               "--count", str(DIFFERENTIAL_REQUESTS_LONG if long else DIFFERENTIAL_REQUESTS), "--seed", str(secrets.randbits(32) if long else 1)]
    print(" ".join(command), flush=True)
    run_client(context, "differential", command, DIFFERENTIAL, seconds=7200 if long else CLIENT_SECONDS)


# A case for each kind of history.
COMPACTION = ["mixed", "tombstones", "passes", "lag", "append-time", "compact-delete"]
# A look every so often, and less memory for keys than one of the histories has; Kafka wants more than a mebibyte of it.
CLEANER = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "1258292"}


def compaction(context):
    """The same histories compacted by Kafka and by walser, which both have to themselves; then Kafka's log dumper over what is left."""
    program = context.tools.program("compaction")
    oracle = context.brokers.once("kafka-compaction", lambda: context.brokers.start_kafka("kafka-compaction", CLEANER))
    tested = context.brokers.once("walser-compaction", lambda: context.brokers.start_walser("walser-compaction", CLEANER))
    seed = str(secrets.randbits(32) if context.arguments.long else 1)
    command = [program, "--oracle", f"{oracle.address}={oracle.data}", "--broker", f"{tested.address}={tested.data}", "--seed", seed]
    print(" ".join(command), flush=True)
    run_client(context, "compaction", command, COMPACTION)
    tools.dump_logs(context, tested, "compaction ")


def go(context, part, program, cases):
    run_client(context, part, [os.path.join(context.tools.go_clients(), program), context.broker(), prefix(context, part)], cases)
