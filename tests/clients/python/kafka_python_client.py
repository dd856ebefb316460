"""kafka-python."""

import sys

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

import cases
from cases import PARTITIONS, Read

# Of the first contact with a broker.
PATIENT = {"bootstrap_timeout_ms": cases.REQUEST_MS}


class RunningProducer:
    def __init__(self, bootstrap, compression=None, acks=None, idempotent=None, max_request_size=None, batch_size=None, short_timeouts=False):
        settings = {"bootstrap_servers": bootstrap, "request_timeout_ms": cases.REQUEST_MS, "delivery_timeout_ms": cases.DELIVERY_MS,
                    "max_block_ms": cases.DELIVERY_MS, **PATIENT}
        if compression not in (None, "none"):
            settings["compression_type"] = compression
        for key, value in (("acks", acks), ("enable_idempotence", idempotent), ("max_request_size", max_request_size), ("batch_size", batch_size)):
            if value is not None:
                settings[key] = value
        if short_timeouts:
            settings.update(metadata_max_age_ms=1_000)
        self.producer = KafkaProducer(**settings)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.producer.close()

    def send(self, topic, records):
        futures = []
        for record in records:
            try:
                futures.append(self.producer.send(topic, record.value, record.key, record.headers, record.partition, record.timestamp))
            except KafkaError as error:
                futures.append(error)
        self.producer.flush()
        results = []
        for future in futures:
            try:
                if isinstance(future, Exception):
                    raise future
                metadata = future.get(timeout=cases.DEADLINE_SECONDS)
                results.append((metadata.partition, metadata.offset))
            except KafkaError as error:
                results.append(error)
        return results


class RunningConsumer:
    def __init__(self, bootstrap, topic, partitions, short_timeouts=False):
        extra = {"metadata_max_age_ms": 1_000} if short_timeouts else {}
        self.consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest",
                                      max_partition_fetch_bytes=2_000_000, fetch_max_wait_ms=100, **PATIENT, **extra)
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        self.consumer.assign(assigned)
        self.consumer.seek_to_beginning(*assigned)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.consumer.close()

    def poll(self):
        try:
            found = self.consumer.poll(timeout_ms=200, max_records=10_000)
        except KafkaError as error:
            # Between two topics of the same name there is none; the case asserts that reading goes on.
            print(f"running consumer: {error!r}", file=sys.stderr)
            return []
        return [Read(r.partition, r.offset, r.key, r.value, r.headers, r.timestamp) for records in found.values() for r in records]


class Adapter:
    CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
    IDEMPOTENT = True
    FAILS_FOR_GOOD = True

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=cases.REQUEST_MS, **PATIENT)
        # One for all look-ups of offsets.
        self.lookup = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, **PATIENT)

    def topics(self):
        return self.admin.list_topics()

    def create(self, topic):
        self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        cases.wait_for(f"topic {topic} has leaders", lambda: self.has_leaders(topic))

    def has_leaders(self, topic):
        (found,) = self.admin.describe_topics([topic])
        partitions = found["partitions"]
        return found["error_code"] == 0 and len(partitions) == PARTITIONS and all(p["leader_id"] >= 0 for p in partitions)

    def delete(self, topic):
        self.admin.delete_topics([topic])
        cases.wait_for(f"topic {topic} is gone", lambda: topic not in self.topics())

    def producer(self, **settings):
        return RunningProducer(self.bootstrap, **settings)

    def consumer(self, topic, partitions, **settings):
        return RunningConsumer(self.bootstrap, topic, partitions, **settings)

    def offsets(self, topic, what):
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        if what == "earliest":
            return {p.partition: offset for p, offset in self.lookup.beginning_offsets(partitions).items()}
        if what == "latest":
            return {p.partition: offset for p, offset in self.lookup.end_offsets(partitions).items()}
        found = self.lookup.offsets_for_times({partition: what for partition in partitions})
        return {p.partition: one.offset if one else None for p, one in found.items()}

    @staticmethod
    def is_too_large(error):
        return isinstance(error, (MessageSizeTooLargeError, RecordListTooLargeError))


if __name__ == "__main__":
    cases.main(Adapter)
