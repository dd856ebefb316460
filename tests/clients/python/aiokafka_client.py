"""aiokafka, driven from the shared cases through an event loop in a thread of its own."""

import asyncio
import sys
import threading

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

import cases
from cases import PARTITIONS, Read

LOOP = asyncio.new_event_loop()


def run(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, LOOP).result()


class RunningProducer:
    def __init__(self, bootstrap, compression=None, acks=None, idempotent=None, max_request_size=None, batch_size=None, short_timeouts=False):
        settings = {"bootstrap_servers": bootstrap, "request_timeout_ms": cases.REQUEST_MS}
        if compression not in (None, "none"):
            settings["compression_type"] = compression
        for key, value in (("acks", acks), ("enable_idempotence", idempotent), ("max_request_size", max_request_size), ("max_batch_size", batch_size)):
            if value is not None:
                settings[key] = value
        if short_timeouts:
            settings.update(metadata_max_age_ms=1_000)
        self.settings = settings

    def __enter__(self):
        async def start():
            self.producer = AIOKafkaProducer(**self.settings)
            await self.producer.start()
        run(start())
        return self

    def __exit__(self, *_):
        run(self.producer.stop())

    def send(self, topic, records):
        return run(self.send_all(topic, records))

    async def send_all(self, topic, records):
        results = []
        for record in records:
            try:
                results.append(await self.producer.send(topic, record.value, record.key, partition=record.partition,
                                                        timestamp_ms=record.timestamp, headers=record.headers))
            except KafkaError as error:
                results.append(error)
        waited = []
        for result in results:
            try:
                if isinstance(result, Exception):
                    raise result
                metadata = await result
                # With acks=0 there is no metadata.
                waited.append((metadata.partition, metadata.offset) if metadata else (-1, -1))
            except KafkaError as error:
                waited.append(error)
        return waited


class RunningConsumer:
    def __init__(self, bootstrap, topic, partitions, short_timeouts=False):
        extra = {"metadata_max_age_ms": 1_000} if short_timeouts else {}
        self.settings = dict(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest",
                             max_partition_fetch_bytes=2_000_000, fetch_max_wait_ms=100, request_timeout_ms=cases.REQUEST_MS, **extra)
        self.assigned = [TopicPartition(topic, partition) for partition in partitions]

    def __enter__(self):
        async def start():
            self.consumer = AIOKafkaConsumer(**self.settings)
            await self.consumer.start()
            self.consumer.assign(self.assigned)
            await self.consumer.seek_to_beginning(*self.assigned)
        run(start())
        return self

    def __exit__(self, *_):
        run(self.consumer.stop())

    def poll(self):
        try:
            found = run(self.consumer.getmany(timeout_ms=200, max_records=10_000))
        except KafkaError as error:
            # Between two topics of the same name there is none; the case asserts that reading goes on.
            print(f"running consumer: {error!r}", file=sys.stderr)
            return []
        return [Read(r.partition, r.offset, r.key, r.value, list(r.headers), r.timestamp) for records in found.values() for r in records]


class Adapter:
    CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
    IDEMPOTENT = True
    FAILS_FOR_GOOD = False

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

        async def start():
            self.admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=cases.REQUEST_MS)
            await self.admin.start()
            self.lookup = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, request_timeout_ms=cases.REQUEST_MS)
            await self.lookup.start()
        run(start())

    def topics(self):
        return run(self.admin.list_topics())

    def create(self, topic):
        response = run(self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)]))
        self.require_success(response.topic_errors)
        cases.wait_for(f"topic {topic} has leaders", lambda: self.has_leaders(topic))

    def has_leaders(self, topic):
        (found,) = run(self.admin.describe_topics([topic]))
        partitions = found["partitions"]
        return found["error_code"] == 0 and len(partitions) == PARTITIONS and all(p["leader"] >= 0 for p in partitions)

    def delete(self, topic):
        response = run(self.admin.delete_topics([topic]))
        self.require_success(response.topic_error_codes)
        cases.wait_for(f"topic {topic} is gone", lambda: topic not in self.topics())

    @staticmethod
    def require_success(topics):
        for topic, code, *_ in topics:
            cases.require(code == 0, f"topic {topic}: error {code}")

    def producer(self, **settings):
        return RunningProducer(self.bootstrap, **settings)

    def consumer(self, topic, partitions, **settings):
        return RunningConsumer(self.bootstrap, topic, partitions, **settings)

    def offsets(self, topic, what):
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        if what == "earliest":
            return {p.partition: offset for p, offset in run(self.lookup.beginning_offsets(partitions)).items()}
        if what == "latest":
            return {p.partition: offset for p, offset in run(self.lookup.end_offsets(partitions)).items()}
        found = run(self.lookup.offsets_for_times({partition: max(what, 0) for partition in partitions}))
        return {p.partition: one.offset if one else None for p, one in found.items()}

    @staticmethod
    def is_too_large(error):
        return isinstance(error, (MessageSizeTooLargeError, RecordListTooLargeError))


if __name__ == "__main__":
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    cases.main(Adapter)
