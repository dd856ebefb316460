"""The partition directories that walser leaves, under Apache Kafka."""

import glob
import os
import re
import shutil
import subprocess

import install

# So that something is compacted by the time the broker stops.
CLEANER = {"log.cleaner.backoff.ms": "100"}
# What Kafka says of a log that is not as it should be, or that it does not want.
COMPLAINTS = re.compile(r"^\S+ \S+ (WARN|ERROR|FATAL) .*(-\d+\b|\.(log|index|timeindex|snapshot)\b|stray).*$", re.MULTILINE)


def java(context, *arguments):
    """Output of the Java half of this."""
    log4j = os.path.join(install.TESTS, "kafka", "log4j2.xml")
    classes = f"{context.tools.tool_classes()}:{context.tools.kafka_jars()}"
    command = [context.tools.java(), "-Xmx512m", f"-Dlog4j2.configurationFile={log4j}", "-cp", classes, "walser.Handover", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{arguments[0]} exited with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def directory_id(data):
    with open(os.path.join(data, "meta.properties"), encoding="utf-8") as file:
        return re.search(r"^directory\.id=(\S+)$", file.read(), re.MULTILINE).group(1)


def checkpoint_of(data):
    """What a formatted node starts from."""
    found = [os.path.join(data, "bootstrap.checkpoint"), os.path.join(data, "__cluster_metadata-0", "00000000000000000000-0000000000.checkpoint")]
    return next(path for path in found if os.path.exists(path))


def hand_over(source, data, is_clean):
    """Replaces the partitions in a stopped Kafka's folder, and what it knows of their state, by walser's."""
    for folder in glob.glob(os.path.join(glob.escape(data), "*-*")):
        if os.path.isdir(folder) and not folder.endswith("__cluster_metadata-0"):
            shutil.rmtree(folder)
    for folder in glob.glob(os.path.join(glob.escape(source), "*-[0-9]*")):
        if os.path.isdir(folder):
            shutil.copytree(folder, os.path.join(data, os.path.basename(folder)))
    for file in ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"]:
        path = os.path.join(data, file)
        if os.path.exists(path):
            os.remove(path)
        if is_clean or file != ".kafka_cleanshutdown":
            shutil.copy(os.path.join(source, file), path)


def to_kafka(context):
    folder = context.path("handover")
    topics, before = os.path.join(folder, "topics"), os.path.join(folder, "walser")
    # Read in another life of the broker, in which nothing is compacted any more.
    for step, files in [("fill", [topics]), ("read", [topics, before])]:
        walser = context.brokers.start_walser("walser-handover", CLEANER)
        try:
            java(context, step, walser.address, *files)
        finally:
            code = walser.stop()
        context.report.case(f"handover clean stop after {step}", None if code == 0 else f"exit code {code}")
    kafka = context.brokers.start_kafka("kafka-handover", prepare=lambda data: java(context, "know", checkpoint_of(data), topics, directory_id(data)))
    kafka.stop()
    for name, is_clean in [("after a clean stop", True), ("recovered", False)]:
        hand_over(walser.data, kafka.data, is_clean)
        with open(os.path.join(context.folder, "kafka-handover", "log"), encoding="utf-8") as log:
            log.seek(0, os.SEEK_END)
            kafka = context.brokers.start_kafka("kafka-handover", data=kafka.data)
            try:
                context.report.case(f"handover {name}", difference(context, kafka.address, topics, before, os.path.join(folder, name)))
            finally:
                kafka.stop()
            said = [match.group(0) for match in COMPLAINTS.finditer(log.read())]
        context.report.case(f"handover {name} without complaint", "\n".join(said[:5]) or None)


def difference(context, address, topics, before, after):
    """What is not as it was, or does not go on where it ended."""
    java(context, "read", address, topics, after)
    with open(before, encoding="utf-8") as expected, open(after, encoding="utf-8") as found:
        ends = []
        for number, (old, new) in enumerate(zip_lines(expected, found)):
            if old != new:
                return f"line {number} of {after} is {new[:200]!r}, of {before} {old[:200]!r}"
            bounds = re.match(r"(\S+) from \d+ to (\d+)$", old)
            if bounds:
                ends.append(f"{bounds.group(1)} {bounds.group(2)}")
    appended = java(context, "append", address, topics).splitlines()
    return None if appended == ends else f"appends went to {appended}, the ends were {ends}"


def zip_lines(expected, found):
    while True:
        pair = (expected.readline(), found.readline())
        if pair == ("", ""):
            return
        yield pair
