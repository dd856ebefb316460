"""One member of a group: member.py CLIENT BOOTSTRAP TOPIC GROUP [KEY=VALUE...].

Prints `r PARTITION OFFSET` for each record, then commits; a signal to end makes it leave.
"""

import asyncio
import signal
import sys


def say(records):
    sys.stdout.write("".join(f"r {partition} {offset}\n" for partition, offset in records))
    sys.stdout.flush()


def confluent(bootstrap, topic, group, settings):
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, **settings})
    consumer.subscribe([topic])
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    while not ending:
        messages = [message for message in consumer.consume(100, 0.5) if message.error() is None]
        if messages:
            say((message.partition(), message.offset()) for message in messages)
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                # The group has moved on, or the broker is away: somebody reads these again.
                print(f"not committed: {error}", file=sys.stderr)
    consumer.close()


def kafka_python(bootstrap, topic, group, settings):
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    settings = {key.replace(".", "_"): int(value) if value.isdigit() else value for key, value in settings.items()}
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
                             max_poll_records=100, **settings)
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    while not ending:
        records = [record for batch in consumer.poll(timeout_ms=500).values() for record in batch]
        if records:
            say((record.partition, record.offset) for record in records)
            try:
                consumer.commit()
            except KafkaError as error:
                print(f"not committed: {error}", file=sys.stderr)
    consumer.close()


def aio(bootstrap, topic, group, settings):
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    settings = {key.replace(".", "_"): int(value) for key, value in settings.items()}

    async def run():
        ending = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
                                    max_poll_records=100, **settings)
        await consumer.start()
        while not ending.is_set():
            batches = await consumer.getmany(timeout_ms=500)
            records = [record for batch in batches.values() for record in batch]
            if records:
                say((record.partition, record.offset) for record in records)
                try:
                    await consumer.commit()
                except KafkaError as error:
                    print(f"not committed: {error}", file=sys.stderr)
        await consumer.stop()

    asyncio.run(run())


if __name__ == "__main__":
    client, bootstrap, topic, group = sys.argv[1:5]
    settings = dict(pair.split("=", 1) for pair in sys.argv[5:])
    {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}[client](bootstrap, topic, group, settings)
