"""franz-go, which speaks the newest version of every API: records, groups and transactions.

It does so with Rookery and with a real Kafka, directly and through proxies.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.logins.programs import FranzClient
from tests.clients.peers import BOTH, new_topic

COUNT = 60
VALUES = [f"value {number}" for number in range(COUNT)]

both = pytest.mark.parametrize("bootstrap", BOTH, indirect=True)


def produce(franz: FranzClient, bootstrap: str, topic: str) -> None:
    first, *others = VALUES
    franz.run(bootstrap, topic, "-value", first, text="\n".join(others))


def committed(bootstrap: str, group: str, topic: str) -> int:
    """Return the offset that a group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        [place] = consumer.committed([TopicPartition(topic, 0)], timeout=20)
    finally:
        consumer.close()
    return int(place.offset)


@both
def test_group_reads_what_was_produced(franz: FranzClient, bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    produce(franz, bootstrap, topic)

    half = franz.run(bootstrap, topic, "-count", str(COUNT // 2)).splitlines()
    rest = franz.run(bootstrap, topic, "-count", str(COUNT // 2)).splitlines()

    assert half + rest == VALUES
    assert committed(bootstrap, topic, topic) == COUNT


@both
def test_records_are_copied_exactly_once(franz: FranzClient, bootstrap: str) -> None:
    """Half of the transactions are aborted: their records are copied by another one."""
    source, target = new_topic(bootstrap), new_topic(bootstrap)
    produce(franz, bootstrap, source)

    franz.run(bootstrap, source, "-copy", target, "-count", str(COUNT))

    assert committed(bootstrap, source, source) == COUNT
    assert read_committed(bootstrap, target) == VALUES


def read_committed(bootstrap: str, topic: str) -> list[str]:
    """Read a topic up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    try:
        while True:
            [message] = consumer.consume(1, 20)
            if message.error() is not None:
                return values
            values.append((message.value() or b"").decode())
    finally:
        consumer.close()
