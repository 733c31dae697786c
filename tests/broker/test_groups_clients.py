"""Consumer groups as kafka-python and aiokafka see them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from kafka import OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.abstract import ConsumerProtocolAssignment as Assignment
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until
from tests.broker.raw import create
from tests.kafkapython import KafkaConsumer, KafkaProducer

ASSIGNORS = (
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
)

# All members poll at the same time, and long enough: kafka-python forgets a join that is answered
# after its poll has ended. It then joins again, or never takes its assignment.
POLL_MS = 1_000


def produce(broker: ServedBroker, topic: str, total: int, partitions: int = 1) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(total):
        producer.send(topic, b"%d" % number, partition=number % partitions)
    producer.flush()
    producer.close()


@contextmanager
def consumer(broker: ServedBroker, **settings: Any) -> Iterator[KafkaConsumer]:
    defaults = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": "readers",
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 100,
        "metadata_max_age_ms": 500,
    }
    reader = KafkaConsumer(**(defaults | settings))
    try:
        yield reader
    finally:
        reader.close()


def shares(*consumers: KafkaConsumer) -> list[int]:
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda member: member.poll(timeout_ms=POLL_MS), consumers))
    return sorted(len(member.assignment()) for member in consumers)


def read(member: KafkaConsumer, total: int) -> list[int]:
    values: list[int] = []

    def has_all() -> bool:
        for records in member.poll(timeout_ms=5 * POLL_MS).values():
            values.extend(int(record.value) for record in records)
        return len(values) >= total

    wait_until(has_all)
    return sorted(values)


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda kind: kind.name)
def test_two_members_share_partitions(broker: ServedBroker, assignor: Any) -> None:
    create(broker, "t", 8)
    settings = {"partition_assignment_strategy": [assignor]}
    with consumer(broker, **settings) as first:
        first.subscribe(["t"])
        wait_until(lambda: shares(first) == [8])
        with consumer(broker, **settings) as second:
            second.subscribe(["t"])
            wait_until(lambda: shares(first, second) == [4, 4])

        wait_until(lambda: shares(first) == [8])


class LastTakesAll(RangePartitionAssignor):  # type: ignore[misc] # kafka-python has no types
    """Gives everything to the member with the greatest id, which no assignor of a broker does."""

    name = "last-takes-all"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> dict[str, Any]:
        chosen = max(members, key=lambda member: member.member_id)
        others = {member.member_id: Assignment(cls.version, [], b"") for member in members}
        return {**others, **super().assign(cluster, [chosen])}


def test_custom_assignor_is_used(broker: ServedBroker) -> None:
    create(broker, "t", 6)
    settings = {"partition_assignment_strategy": [LastTakesAll]}
    with consumer(broker, **settings) as first, consumer(broker, **settings) as second:
        first.subscribe(["t"])
        second.subscribe(["t"])

        wait_until(lambda: shares(first, second) == [0, 6])


def test_latest_without_a_commit_starts_at_the_end(broker: ServedBroker) -> None:
    create(broker, "t")
    produce(broker, "t", 10)
    with consumer(broker, auto_offset_reset="latest") as reader:
        reader.subscribe(["t"])
        wait_until(lambda: shares(reader) == [1])

        assert reader.position(TopicPartition("t", 0)) == 10


def test_consumer_with_manual_assignment_can_commit(broker: ServedBroker) -> None:
    create(broker, "t")
    produce(broker, "t", 10)
    place = TopicPartition("t", 0)
    with consumer(broker, enable_auto_commit=False) as reader:
        reader.assign([place])
        reader.commit({place: OffsetAndMetadata(4, "note", -1)})

        assert reader.committed(place) == 4
    with consumer(broker) as reader:
        reader.subscribe(["t"])

        assert read(reader, 6) == [4, 5, 6, 7, 8, 9]


def test_leaving_member_is_removed_immediately(broker: ServedBroker) -> None:
    create(broker, "t", 2)
    with consumer(broker) as reader:
        reader.subscribe(["t"])
        wait_until(lambda: shares(reader) == [2])

    [group] = broker.broker.replica.state.groups
    assert broker.broker.groups.machine(group).state_name == "Empty"


async def test_aiokafka_members_share_and_commit(broker: ServedBroker) -> None:
    create(broker, "t", 4)
    await asyncio.to_thread(produce, broker, "t", 40, 4)

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap,
            group_id="aio",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    first, second = member(), member()
    await first.start()
    try:
        await second.start()
        try:
            values: list[int] = []
            while (
                len(first.assignment()) != 2
                or len(second.assignment()) != 2
                or len(set(values)) < 40
            ):
                for each in (first, second):
                    got = await each.getmany(timeout_ms=100)
                    values += [int(row.value) for rows in got.values() for row in rows]
            await first.commit()
            await second.commit()
        finally:
            await second.stop()
        while len(first.assignment()) != 4:
            assert await first.getmany(timeout_ms=100) == {}
        positions = [await first.committed(place) for place in first.assignment()]

        assert positions == [10, 10, 10, 10]
    finally:
        await first.stop()
