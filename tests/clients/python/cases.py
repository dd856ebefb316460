"""The cases every Python client runs, over a small adapter each client module provides.

An adapter has
  create(topic), delete(topic), topics()      administration; delete and create return when the broker has done it
  producer(**settings)                        with send(topic, records) -> one (partition, offset) or Exception per record
  consumer(topic, partitions)                 from the beginning, by assignment, with poll() -> [Read]
  offsets(topic, what)                        what: "earliest", "latest" or a timestamp -> {partition: offset or None}
  CODECS, IDEMPOTENT                          what the client supports
  FAILS_FOR_GOOD                              a refused batch leaves the producer unable to send any other
Each prints `ok CASE` or `FAIL CASE: why`; the exit code says whether one failed.
"""

import sys
import threading
import time
import traceback
from collections import namedtuple

PARTITIONS = 6
DEADLINE_SECONDS = 300
# A machine that is slow must not have a client send anything twice, or give it up.
REQUEST_MS, DELIVERY_MS = 120_000, 300_000
# message.max.bytes of a broker that says nothing else.
BATCH_BYTES_MAX = 1_048_588

Record = namedtuple("Record", "partition key value headers timestamp")
Read = namedtuple("Read", "partition offset key value headers timestamp")


class Failure(Exception):
    """An expectation that did not hold."""


def require(holds, message):
    if not holds:
        raise Failure(message)


def wait_for(what, condition):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        require(time.monotonic() < deadline, f"gave up waiting: {what}")
        time.sleep(0.02)


LETTERS = "abcdefghijklmnopqrstuvwxyz" * 6


def pattern(index, base, partition=None):
    """The record at position `index` of a run; the programs in other languages write the same."""
    start = index % 26
    headers = [] if index % 3 == 0 else [("n", b"%d" % index), ("empty", b"")]
    value = f"{index}:{LETTERS[start:start + index * 7 % 100]}".encode()
    return Record(partition, b"key-%08d" % index, value, headers, base + index)


def check(read, base):
    """Compares every field of a consumed record with what was written for its index; returns the index."""
    key = read.key.decode()
    require(key.startswith("key-") and len(key) == 12, f"a key that nobody wrote: {key}")
    index = int(key[4:])
    want = pattern(index, base)
    where = f"record {index} at {read.partition}:{read.offset}"
    require(read.value == want.value, f"{where}: value differs")
    require(read.timestamp == want.timestamp, f"{where}: timestamp {read.timestamp}, want {want.timestamp}")
    require(list(read.headers) == want.headers, f"{where}: headers differ: {read.headers}")
    return index


def base_timestamp():
    return int(time.time() * 1000) - 3_600_000


def read_all(adapter, topic):
    """Every partition from its beginning to its end as it is now; per partition in the order received."""
    partitions = list(range(PARTITIONS))
    expected = sum(adapter.offsets(topic, "latest").values())
    by_partition = [[] for _ in partitions]
    received = 0
    with adapter.consumer(topic, partitions) as consumer:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while received < expected:
            require(time.monotonic() < deadline, f"read {received} of {expected} records, then nothing more")
            for read in consumer.poll():
                by_partition[read.partition].append(read)
                received += 1
    return by_partition


def check_topic(adapter, topic, base):
    """Offsets are contiguous from 0, indexes rise, all fields as written; returns {index: (partition, offset)}."""
    seen = {}
    for partition, reads in enumerate(read_all(adapter, topic)):
        previous = -1
        for offset, read in enumerate(reads):
            require(read.offset == offset, f"partition {partition}: offset {read.offset}, want {offset}")
            index = check(read, base)
            require(index > previous, f"partition {partition}: record {index} after {previous}")
            previous = index
            require(index not in seen, f"record {index} is there twice")
            seen[index] = (partition, offset)
    return seen


def create(adapter, topic):
    adapter.create(topic)
    # A broker may name a leader before that one is ready. Producers without idempotence reorder what they then retry.
    def answers():
        try:
            return len(adapter.offsets(topic, "latest")) == PARTITIONS
        except Exception as error:  # every client has its own class for it
            print(f"leaders of {topic}: {error!r}", file=sys.stderr)
            return False

    wait_for(f"the leaders of {topic} answer", answers)


def write_and_read(adapter, topic, count, **settings):
    base = base_timestamp()
    create(adapter, topic)
    with adapter.producer(**settings) as producer:
        results = producer.send(topic, [pattern(index, base) for index in range(count)])
    for index, result in enumerate(results):
        require(not isinstance(result, Exception), f"record {index}: {result!r}")
    acknowledged = settings.get("acks") != 0
    if not acknowledged:
        # Nothing says when the broker is done with what it does not acknowledge.
        wait_for(f"{count} records in {topic}", lambda: sum(adapter.offsets(topic, "latest").values()) >= count)
    seen = check_topic(adapter, topic, base)
    require(len(seen) == count, f"read {len(seen)} records, want {count}")
    if acknowledged:
        for index, result in enumerate(results):
            require(tuple(result) == seen[index], f"record {index}: acknowledged at {result}, read at {seen[index]}")


def sizes(adapter, topic):
    """Values of no bytes, just under the largest batch the broker takes, and just over it."""
    create(adapter, topic)
    now = base_timestamp()
    # No client frames a lone record in more than 100 bytes beside its value.
    fit = [
        Record(1, b"", b"", [], now),
        Record(1, None, b"", [], now),
        Record(1, b"", None, [], now),
        Record(1, None, bytes(n * 31 & 0xFF for n in range(BATCH_BYTES_MAX - 100)), [], now),
        Record(1, None, b"after", [], now),
    ]
    over = Record(1, None, b"x" * (BATCH_BYTES_MAX - 60), [], now)
    with adapter.producer(max_request_size=4_000_000) as producer:
        for record in fit[:-1]:
            (result,) = producer.send(topic, [record])
            require(not isinstance(result, Exception), f"{len(record.value or b'')} bytes: {result!r}")
        (result,) = producer.send(topic, [over])
        require(isinstance(result, Exception), "a batch larger than message.max.bytes was taken")
        require(adapter.is_too_large(result), f"too large a batch: {result!r}")
        if adapter.FAILS_FOR_GOOD:
            producer.__exit__()
            producer = adapter.producer(max_request_size=4_000_000).__enter__()
        (result,) = producer.send(topic, [fit[-1]])
        require(not isinstance(result, Exception), f"after the error: {result!r}")
    reads = read_all(adapter, topic)[1]
    require(len(reads) == len(fit), f"read {len(reads)} records, want {len(fit)}")
    for offset, (read, want) in enumerate(zip(reads, fit)):
        require(read.offset == offset, f"offset {read.offset}, want {offset}")
        require(read.key == want.key and read.value == want.value, f"record at {offset} differs")


def offsets(adapter, topic):
    """Earliest, latest and by timestamp, on partitions that have records and on one that has none."""
    count, written = 5_000, 5
    base = base_timestamp()
    create(adapter, topic)
    with adapter.producer(batch_size=1_000) as producer:
        results = producer.send(topic, [pattern(index, base, index % written) for index in range(count)])
        require(not any(isinstance(result, Exception) for result in results), "a record was not taken")
    for partition in range(PARTITIONS):
        end = count // written if partition < written else 0
        require(adapter.offsets(topic, "earliest")[partition] == 0, f"partition {partition}: earliest is not 0")
        require(adapter.offsets(topic, "latest")[partition] == end, f"partition {partition}: latest is not {end}")
    for index in (-1_000_000, 0, 1, 7, 2_500, count - written, count - 1, count, count + 1_000_000):
        found = adapter.offsets(topic, base + index)
        for partition in range(PARTITIONS):
            start = max(index, 0)
            first = start + (partition - start) % written
            want = first // written if partition < written and first < count else None
            require(found[partition] == want, f"partition {partition}, timestamp of {index}: {found[partition]}, want {want}")


class Recreate:
    """Deletes and re-creates a topic while a producer writes to it and a consumer reads from it: both must find the new one."""

    ENOUGH = 300

    def __init__(self, adapter, topic):
        self.adapter, self.topic, self.base = adapter, topic, base_timestamp()
        self.next = 0
        # First index sent after the new topic was there; a larger one can only be in the new topic.
        self.first_of_new = sys.maxsize
        self.read_of_old = self.read_of_new = self.acknowledged_of_new = 0
        self.acknowledged = {}
        self.stop = False
        self.died = None

    def run(self):
        create(self.adapter, self.topic)
        threads = [threading.Thread(target=self.guard, args=(body,), daemon=True) for body in (self.write, self.read)]
        for thread in threads:
            thread.start()
        try:
            self.wait_for("records of the first topic are read", lambda: self.read_of_old >= self.ENOUGH)
            self.adapter.delete(self.topic)
            create(self.adapter, self.topic)
            # The batch that is being sent now may have begun before.
            self.first_of_new = self.next + 1
            self.wait_for("records of the second topic are acknowledged", lambda: self.acknowledged_of_new >= self.ENOUGH)
            self.wait_for("records of the second topic are read by the running consumer", lambda: self.read_of_new >= self.ENOUGH)
        finally:
            self.stop = True
            for thread in threads:
                thread.join(DEADLINE_SECONDS)
        self.check()

    def guard(self, body):
        try:
            body()
        except Exception as error:  # shown by the thread that waits
            traceback.print_exc()
            self.died = error

    def wait_for(self, what, condition):
        def alive():
            require(self.died is None, f"producer or consumer died, waiting until {what}: {self.died!r}")
            return condition()
        wait_for(what, alive)

    def write(self):
        with self.adapter.producer(short_timeouts=True) as producer:
            while not self.stop:
                indexes = range(self.next, self.next + 20)
                self.next += 20
                results = producer.send(self.topic, [pattern(index, self.base, index % PARTITIONS) for index in indexes])
                if any(isinstance(result, Exception) for result in results):
                    time.sleep(0.02)
                for index, result in zip(indexes, results):
                    if isinstance(result, Exception):
                        continue
                    self.acknowledged[index] = tuple(result)
                    self.acknowledged_of_new += index >= self.first_of_new

    def read(self):
        with self.adapter.consumer(self.topic, list(range(PARTITIONS)), short_timeouts=True) as consumer:
            while not self.stop:
                for read in consumer.poll():
                    if check(read, self.base) >= self.first_of_new:
                        self.read_of_new += 1
                    else:
                        self.read_of_old += 1

    def check(self):
        seen = check_topic(self.adapter, self.topic, self.base)
        for index, where in self.acknowledged.items():
            if index >= self.first_of_new:
                require(seen.get(index) == where, f"record {index} acknowledged at {where}, found at {seen.get(index)}")


def all_cases(adapter, prefix):
    def case(name, count, **settings):
        return name, lambda: write_and_read(adapter, f"{prefix}-{name}", count, **settings)

    yield case("default", 100_000)
    for codec in adapter.CODECS:
        yield case(f"codec-{codec}", 5_000, compression=codec)
    for acks in (0, 1, "all"):
        yield case(f"acks-{acks}", 5_000, acks=acks, idempotent=False)
    if adapter.IDEMPOTENT:
        yield case("idempotent", 20_000, acks="all", idempotent=True)
    yield "sizes", lambda: sizes(adapter, f"{prefix}-sizes")
    yield "offsets", lambda: offsets(adapter, f"{prefix}-offsets")
    yield "recreate", lambda: Recreate(adapter, f"{prefix}-recreate").run()


def main(make_adapter):
    bootstrap, prefix, *wanted = sys.argv[1:]
    run(all_cases(make_adapter(bootstrap), prefix), wanted)


def run(cases, wanted):
    failures = 0
    for name, body in cases:
        if wanted and name not in wanted:
            continue
        try:
            body()
            print(f"ok {name}", flush=True)
        except Exception as error:  # one case must not hide the others
            failures += 1
            print(f"FAIL {name}: {error!r}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failures else 0)
