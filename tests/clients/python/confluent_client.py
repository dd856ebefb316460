"""confluent-kafka, that is librdkafka."""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import cases
from cases import PARTITIONS, Read


class RunningProducer:
    def __init__(self, bootstrap, compression=None, acks=None, idempotent=None, max_request_size=None, batch_size=None, short_timeouts=False):
        settings = {"bootstrap.servers": bootstrap, "request.timeout.ms": cases.REQUEST_MS, "socket.timeout.ms": cases.REQUEST_MS}
        for key, value in (("compression.type", compression), ("acks", acks), ("enable.idempotence", idempotent),
                           ("message.max.bytes", max_request_size), ("batch.size", batch_size)):
            if value is not None:
                settings[key] = value
        if short_timeouts:
            settings.update({"message.timeout.ms": 5_000, "topic.metadata.refresh.interval.ms": 1_000, "topic.metadata.propagation.max.ms": 1_000})
        self.producer = Producer(settings)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.producer.flush(cases.DEADLINE_SECONDS)

    def send(self, topic, records):
        results = [None] * len(records)

        def report(position):
            def delivered(error, message):
                results[position] = KafkaException(error) if error else (message.partition(), message.offset())
            return delivered

        for position, record in enumerate(records):
            extra = {} if record.partition is None else {"partition": record.partition}
            while True:
                try:
                    self.producer.produce(topic, record.value, record.key, headers=record.headers, timestamp=record.timestamp,
                                          on_delivery=report(position), **extra)
                    break
                except BufferError:
                    self.producer.poll(0.1)
                except KafkaException as error:
                    results[position] = error
                    break
            self.producer.poll(0)
        deadline = time.monotonic() + cases.DEADLINE_SECONDS
        while any(result is None for result in results):
            cases.require(time.monotonic() < deadline, "no delivery report")
            self.producer.poll(0.1)
        return results


class RunningConsumer:
    def __init__(self, bootstrap, topic, partitions, short_timeouts=False):
        settings = {
            "bootstrap.servers": bootstrap,
            # The library demands a group; assigned partitions and no commits leave it unused.
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
        }
        if short_timeouts:
            settings["topic.metadata.refresh.interval.ms"] = 1_000
        self.consumer = Consumer(settings)
        # Offset 0 and not "beginning": no look-up that could hide a first offset other than 0.
        self.consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.consumer.close()

    def poll(self):
        reads = []
        for message in self.consumer.consume(10_000, 0.2):
            if message.error():
                print(f"running consumer: {message.error()}", file=sys.stderr)
                continue
            kind, timestamp = message.timestamp()
            reads.append(Read(message.partition(), message.offset(), message.key(), message.value(), message.headers() or [], timestamp))
        return reads


class Adapter:
    CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
    IDEMPOTENT = True
    FAILS_FOR_GOOD = False

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": cases.REQUEST_MS})
        # One for all look-ups of offsets.
        self.lookup = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})

    def topics(self):
        return self.admin.list_topics(timeout=cases.DEADLINE_SECONDS).topics

    def create(self, topic):
        for future in self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(cases.DEADLINE_SECONDS)
        cases.wait_for(f"topic {topic} has leaders", lambda: self.has_leaders(topic))

    def has_leaders(self, topic):
        found = self.topics().get(topic)
        return found is not None and len(found.partitions) == PARTITIONS and all(p.leader >= 0 for p in found.partitions.values())

    def delete(self, topic):
        for future in self.admin.delete_topics([topic]).values():
            future.result(cases.DEADLINE_SECONDS)
        cases.wait_for(f"topic {topic} is gone", lambda: topic not in self.topics())

    def producer(self, **settings):
        return RunningProducer(self.bootstrap, **settings)

    def consumer(self, topic, partitions, **settings):
        return RunningConsumer(self.bootstrap, topic, partitions, **settings)

    def offsets(self, topic, what):
        if isinstance(what, str):
            both = {p: self.lookup.get_watermark_offsets(TopicPartition(topic, p), timeout=cases.DEADLINE_SECONDS) for p in range(PARTITIONS)}
            return {p: low if what == "earliest" else high for p, (low, high) in both.items()}
        found = self.lookup.offsets_for_times([TopicPartition(topic, p, what) for p in range(PARTITIONS)], timeout=cases.DEADLINE_SECONDS)
        return {one.partition: one.offset if one.offset >= 0 else None for one in found}

    @staticmethod
    def is_too_large(error):
        return error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


if __name__ == "__main__":
    cases.main(Adapter)
