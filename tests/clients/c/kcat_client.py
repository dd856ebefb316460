"""kcat, the command line program on the C library as Debian packages it: kcat_client.py BOOTSTRAP PREFIX [CASE...].

kcat sets no timestamps, and one set of headers for all it sends; what it sends is numbered lines. It has no
administration, so topics come and go through confluent-kafka.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import cases
import confluent_client
from cases import BATCH_BYTES_MAX, PARTITIONS, Failure, require, wait_for

# A machine that is slow must not have it send anything twice, or give it up.
PATIENT = ["-X", f"request.timeout.ms={cases.REQUEST_MS}", "-X", f"socket.timeout.ms={cases.REQUEST_MS}"]
HEADERS = ["-H", "n=1", "-H", "empty="]
# Partition, offset, timestamp, headers, key, value; none of them holds a tab.
FORMAT = "%p\t%o\t%T\t%h\t%k\t%s\n"


RECREATE_ATTEMPTS = 20
# What kcat says before it ends because there is no topic at the moment.
SAW_NO_TOPIC = ["Local: Unknown partition", "Local: Unknown topic"]


class SawNoTopic(Exception):
    """kcat has ended for want of a topic."""


class Kcat:
    def __init__(self, bootstrap, prefix):
        self.bootstrap, self.prefix = bootstrap, prefix
        self.admin = confluent_client.Adapter(bootstrap)

    def create(self, name):
        topic = f"{self.prefix}-{name}"
        cases.create(self.admin, topic)
        return topic

    def run(self, *arguments, check=True):
        done = subprocess.run(["kcat", "-b", self.bootstrap, *PATIENT, *arguments], capture_output=True, text=True, timeout=900, check=False)
        require(not check or done.returncode == 0, f"kcat {' '.join(arguments)} exited with {done.returncode}: {done.stderr}")
        return done

    def read(self, topic):
        """Every partition from its beginning to its end: no group, so kcat assigns itself all of them."""
        by_partition = [[] for _ in range(PARTITIONS)]
        for line in self.run("-C", "-q", "-t", topic, "-o", "beginning", "-e", "-f", FORMAT).stdout.splitlines():
            partition, offset, timestamp, headers, key, value = line.split("\t")
            reads = by_partition[int(partition)]
            require(int(offset) == len(reads), f"partition {partition}: offset {offset}, want {len(reads)}")
            reads.append((int(timestamp), headers, key, value))
        return by_partition

    def write_and_read(self, name, count, *settings):
        topic = self.create(name)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as lines:
            for index in range(count):
                lines.write(f"key-{index:08d}\t{index}:{'x' * (index * 7 % 100)}\n")
            lines.flush()
            begin = int(time.time() * 1000)
            self.run("-P", "-t", topic, "-K", "\t", *HEADERS, *settings, "-l", lines.name)
            wait_for(f"{count} records in {topic}", lambda: sum(self.admin.offsets(topic, "latest").values()) >= count)
            end = int(time.time() * 1000)
        seen = set()
        for partition, reads in enumerate(self.read(topic)):
            previous = -1
            for timestamp, headers, key, value in reads:
                index = int(key.removeprefix("key-"))
                require(index > previous, f"partition {partition}: record {index} after {previous}")
                require(value == f"{index}:{'x' * (index * 7 % 100)}", f"record {index}: value differs")
                require(headers == "n=1,empty=", f"record {index}: headers are {headers}")
                require(begin <= timestamp <= end, f"record {index}: timestamp {timestamp}")
                previous = index
                seen.add(index)
        require(seen == set(range(count)), f"read {len(seen)} records, want {count}")

    def sizes(self):
        topic = self.create("sizes")
        to = ["-P", "-t", topic, "-p", "1", "-X", "message.max.bytes=4000000", "-Z"]
        with tempfile.TemporaryDirectory() as folder:
            def file(name, text):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="ascii") as out:
                    out.write(text)
                return path

            largest = "abcdefg" * (BATCH_BYTES_MAX // 7 + 1)
            self.run(*to, "-K", "\t", "-l", file("empty", "key\t\n"))
            self.run(*to, file("largest", largest[:BATCH_BYTES_MAX - 100]))
            refused = self.run(*to, file("over", largest[:BATCH_BYTES_MAX - 60]), check=False)
            require("Message size too large" in refused.stderr, f"a batch larger than message.max.bytes: {refused.stderr}")
            self.run(*to, file("after", "after"))
        out = self.run("-C", "-q", "-t", topic, "-p", "1", "-o", "beginning", "-e", "-f", "%o\t%k\t%S\t%s\n").stdout.splitlines()
        want = ["0\tkey\t-1\t", f"1\t\t{BATCH_BYTES_MAX - 100}\t{largest[:BATCH_BYTES_MAX - 100]}", "2\t\t5\tafter"]
        require(out == want, f"read {[line[:40] for line in out]}")

    def offsets(self):
        topic = self.create("offsets")
        base = cases.base_timestamp()
        with self.admin.producer() as producer:
            producer.send(topic, [cases.pattern(index, base, 2) for index in range(1000)])

        def query(what):
            return self.run("-Q", "-t", f"{topic}:2:{what}").stdout.split()[-1]

        for what, want in (("-2", "0"), ("-1", "1000"), (str(base), "0"), (str(base + 500), "500"), (str(base + 999), "999"), (str(base + 1000), "-1")):
            require(query(what) == want, f"offset of {what}: {query(what)}, want {want}")
        require(self.run("-Q", "-t", f"{topic}:3:-1").stdout.split()[-1] == "0", "the end of an empty partition is not 0")
        last = self.run("-C", "-q", "-t", topic, "-p", "2", "-o", "-1", "-e", "-f", "%o %k").stdout
        require(last == "999 key-00000999", f"the last record: {last}")

    def recreate(self):
        """Deletes and re-creates a topic under a running kcat that writes and one that reads: both must find the new one.

        kcat itself ends when it looks for the topic just while there is none, of which no setting keeps it. Then that try
        shows nothing, and another topic gets the next.
        """
        for attempt in range(RECREATE_ATTEMPTS):
            try:
                return self.recreate_once("recreate" if attempt == 0 else f"recreate-{attempt}")
            except SawNoTopic as error:
                print(f"attempt {attempt}: {error}", file=sys.stderr, flush=True)
        raise Failure(f"kcat saw the topic gone {RECREATE_ATTEMPTS} times")

    def recreate_once(self, name):
        topic = self.create(name)
        often = ["-X", "topic.metadata.refresh.interval.ms=1000"]
        with tempfile.TemporaryFile("w+") as said:
            options = {"text": True, "stderr": said}
            writer = subprocess.Popen(["kcat", "-b", self.bootstrap, "-P", "-E", "-t", topic, *often, "-X", "message.timeout.ms=5000"],
                                      stdin=subprocess.PIPE, **options)
            reader = subprocess.Popen(["kcat", "-b", self.bootstrap, "-C", "-q", "-u", "-E", "-t", topic, "-o", "beginning", *often,
                                       "-X", "auto.offset.reset=earliest", "-f", "%s\n"], stdout=subprocess.PIPE, **options)
            state = {"stop": False, "sent": 0, "phase": "old", "old": 0, "new": 0}

            def write():
                try:
                    while not state["stop"]:
                        for _ in range(10):
                            writer.stdin.write(f"{state['phase']} {state['sent']}\n")
                            state["sent"] += 1
                        writer.stdin.flush()
                        # About a thousand lines a second: the topics stay small.
                        time.sleep(0.01)
                except BrokenPipeError:
                    # That it has ended is seen below.
                    pass

            def read():
                for line in reader.stdout:
                    state[line.split()[0]] += 1

            def both_run(holds):
                if writer.poll() is None and reader.poll() is None:
                    return holds
                said.seek(0)
                words = said.read()
                if any(sign in words for sign in SAW_NO_TOPIC):
                    raise SawNoTopic(words)
                raise Failure(f"kcat ended: {words}")

            threads = [threading.Thread(target=body, daemon=True) for body in (write, read)]
            for thread in threads:
                thread.start()
            try:
                wait_for("records of the first topic are read", lambda: both_run(state["old"] >= 300))
                self.admin.delete(topic)
                cases.create(self.admin, topic)
                state["phase"] = "new"
                wait_for("records of the second topic are read by the running consumer", lambda: both_run(state["new"] >= 300))
            finally:
                state["stop"] = True
                threads[0].join()
                try:
                    writer.stdin.close()
                except BrokenPipeError:
                    pass
                exit_codes = [writer.wait(cases.DEADLINE_SECONDS)]
                reader.terminate()
                reader.wait(cases.DEADLINE_SECONDS)
        require(exit_codes == [0], f"the writing kcat exited with {exit_codes[0]}")
        seen = set()
        for reads in self.read(topic):
            for *_, value in reads:
                phase, index = value.split()
                require(phase in ("old", "new") and int(index) < state["sent"] and index not in seen, f"{value} was never sent, or is there twice")
                seen.add(index)
        require(len(seen) >= 300, f"the second topic has {len(seen)} records")


def all_cases(kcat):
    def case(name, count, *settings):
        return name, lambda: kcat.write_and_read(name, count, *settings)

    yield case("default", 100_000)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        yield case(f"codec-{codec}", 5_000, "-z", codec)
    for acks in ("0", "1", "all"):
        yield case(f"acks-{acks}", 5_000, "-X", f"acks={acks}")
    yield case("idempotent", 20_000, "-X", "enable.idempotence=true")
    yield "sizes", kcat.sizes
    yield "offsets", kcat.offsets
    yield "recreate", kcat.recreate


if __name__ == "__main__":
    bootstrap, prefix, *wanted = sys.argv[1:]
    cases.run(all_cases(Kcat(bootstrap, prefix)), wanted)
