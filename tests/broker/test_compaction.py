"""A compacted topic of a running broker, as clients see it."""

from __future__ import annotations

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.cluster.state.partition import Partition
from rookery.log.settings import RewriteSettings
from rookery.testing.java import Java
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until
from tests.broker.conftest import Start

SECONDS = 30
RECORDS, KEYS = 20_000, 100
START_MS = 1_700_000_000_000
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "86400000",
}


def serve(start: Start) -> ServedBroker:
    """Start a broker that merges and compacts without delay."""
    return start(upkeep_interval_ms=50, rewrite=RewriteSettings(merge_age_ms=50))


def create(broker: ServedBroker, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(
        topic, 1, 1, config=CONFIGS | {k.replace("_", "."): v for k, v in configs.items()}
    )
    admin.create_topics([new])[topic].result(SECONDS)


def produce(broker: ServedBroker, topic: str, first: int, count: int, codec: str) -> None:
    """Write numbers over the keys in turn; every tenth key ends with a tombstone."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec,
         "enable.idempotence": True, "linger.ms": 5}
    )  # fmt: skip
    for number in range(first, first + count):
        is_last = number >= RECORDS - KEYS
        producer.produce(
            topic,
            value=None if is_last and number % 10 == 0 else b"value %d" % number,
            key=b"key %d" % (number % KEYS),
            headers=[("number", b"%d" % number)],
            timestamp=START_MS + number,
        )
        producer.poll(0)
    assert producer.flush(SECONDS) == 0


def consume(broker: ServedBroker, topic: str) -> list[Message]:
    """Read all there is, from the beginning."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "check.crcs": True,
         "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Message] = []
    try:
        while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
            messages.append(message)
    finally:
        consumer.close()
    return messages


def partition_of(broker: ServedBroker, topic: str) -> Partition:
    return broker.broker.replica.state.topics.by_name[topic].partitions[0]


def wait_compacted(broker: ServedBroker, topic: str) -> None:
    def is_compacted() -> bool:
        partition = partition_of(broker, topic)
        return partition.cleaned_to == partition.next_offset > 0

    wait_until(is_compacted)


def test_clients_read_the_last_value_of_every_key(start: Start, java: Java) -> None:
    broker = serve(start)
    create(broker, "table")
    for step, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        produce(broker, "table", step * RECORDS // 5, RECORDS // 5, codec)
    wait_compacted(broker, "table")
    messages = consume(broker, "table")
    expected = range(RECORDS - KEYS, RECORDS)
    assert [message.offset() for message in messages] == list(expected)
    assert [message.key() for message in messages] == [b"key %d" % (n % KEYS) for n in expected]
    assert [message.timestamp() for message in messages] == [(1, START_MS + n) for n in expected]
    assert [message.headers() for message in messages] == [
        [("number", b"%d" % n)] for n in expected
    ]
    values = [None if n % 10 == 0 else b"value %d" % n for n in expected]
    assert [message.value() for message in messages] == values
    assert len(partition_of(broker, "table").base_offsets) == 1

    said = java.tool(
        "kafka-console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", "table",
        "--partition", "0", "--offset", "earliest", "--max-messages", str(KEYS),
        "--timeout-ms", "30000", "--formatter-property", "print.timestamp=true",
        "--formatter-property", "print.offset=true", "--formatter-property", "print.key=true",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert lines[1].split("\t") == [
        f"CreateTime:{START_MS + RECORDS - KEYS + 1}", f"Offset:{RECORDS - KEYS + 1}", "key 1",
        f"value {RECORDS - KEYS + 1}",
    ]  # fmt: skip
    assert len(lines) == KEYS


def test_topic_is_compacted_while_a_producer_writes(start: Start) -> None:
    broker = serve(start)
    create(broker, "busy")
    for first in range(0, RECORDS // 2, RECORDS // 4):
        produce(broker, "busy", first, RECORDS // 4, "none")
        newest = {message.key(): message.value() for message in consume(broker, "busy")}
        assert newest[b"key 99"] == b"value %d" % (first + RECORDS // 4 - 1)
        assert len(newest) == KEYS
    wait_compacted(broker, "busy")
    assert len(consume(broker, "busy")) == KEYS


def test_tombstones_are_removed_after_their_retention(start: Start) -> None:
    broker = serve(start)
    create(broker, "short", delete_retention_ms="1")
    produce(broker, "short", RECORDS - KEYS, KEYS, "lz4")
    wait_compacted(broker, "short")
    # A round takes up what is new; the time of the tombstones is over by then.
    produce(broker, "short", RECORDS - 1, 1, "lz4")
    wait_compacted(broker, "short")
    assert all(message.value() is not None for message in consume(broker, "short"))
    assert len(consume(broker, "short")) == KEYS - KEYS // 10
