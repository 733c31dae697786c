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

from rookery.testing.served import ServedBroker
from rookery.testing.wait import wait_until
from tests.broker.raw import create
from tests.kafkapython import KafkaConsumer, KafkaProducer

ASSIGNORS = (
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
)

# Members poll at once and for long: this client forgets a join whose answer comes after its poll
# has ended, and then it joins again, or never takes what it was given.
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
    one = KafkaConsumer(**(defaults | settings))
    try:
        yield one
    finally:
        one.close()


def shares(*consumers: KafkaConsumer) -> list[int]:
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda one: one.poll(timeout_ms=POLL_MS), consumers))
    return sorted(len(one.assignment()) for one in consumers)


def read(one: KafkaConsumer, total: int) -> list[int]:
    found: list[int] = []

    def has_all() -> bool:
        for records in one.poll(timeout_ms=5 * POLL_MS).values():
            found.extend(int(record.value) for record in records)
        return len(found) >= total

    wait_until(has_all)
    return sorted(found)


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
def test_two_members_share_partitions(broker: ServedBroker, assignor: Any) -> None:
    create(broker, "t", 8)
    settings = {"partition_assignment_strategy": [assignor]}
    with consumer(broker, **settings) as one:
        one.subscribe(["t"])
        wait_until(lambda: shares(one) == [8])
        with consumer(broker, **settings) as two:
            two.subscribe(["t"])
            wait_until(lambda: shares(one, two) == [4, 4])

        wait_until(lambda: shares(one) == [8])


class LastTakesAll(RangePartitionAssignor):  # type: ignore[misc] # kafka-python has no types
    """Gives everything to the member whose id is the last: no broker would think of that."""

    name = "last-takes-all"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> dict[str, Any]:
        chosen = max(members, key=lambda member: member.member_id)
        others = {one.member_id: Assignment(cls.version, [], b"") for one in members}
        return {**others, **super().assign(cluster, [chosen])}


def test_custom_assignor_is_used(broker: ServedBroker) -> None:
    create(broker, "t", 6)
    settings = {"partition_assignment_strategy": [LastTakesAll]}
    with consumer(broker, **settings) as one, consumer(broker, **settings) as two:
        one.subscribe(["t"])
        two.subscribe(["t"])

        wait_until(lambda: shares(one, two) == [0, 6])


def test_latest_without_a_commit_starts_at_the_end(broker: ServedBroker) -> None:
    create(broker, "t")
    produce(broker, "t", 10)
    with consumer(broker, auto_offset_reset="latest") as one:
        one.subscribe(["t"])
        wait_until(lambda: shares(one) == [1])

        assert one.position(TopicPartition("t", 0)) == 10


def test_consumer_with_manual_assignment_can_commit(broker: ServedBroker) -> None:
    create(broker, "t")
    produce(broker, "t", 10)
    place = TopicPartition("t", 0)
    with consumer(broker, enable_auto_commit=False) as one:
        one.assign([place])
        one.commit({place: OffsetAndMetadata(4, "note", -1)})

        assert one.committed(place) == 4
    with consumer(broker) as one:
        one.subscribe(["t"])

        assert read(one, 6) == [4, 5, 6, 7, 8, 9]


def test_leaving_member_is_removed_immediately(broker: ServedBroker) -> None:
    create(broker, "t", 2)
    with consumer(broker) as one:
        one.subscribe(["t"])
        wait_until(lambda: shares(one) == [2])

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

    one, two = member(), member()
    await one.start()
    try:
        await two.start()
        try:
            found: list[int] = []
            while len(one.assignment()) != 2 or len(two.assignment()) != 2 or len(set(found)) < 40:
                for each in (one, two):
                    got = await each.getmany(timeout_ms=100)
                    found += [int(row.value) for rows in got.values() for row in rows]
            await one.commit()
            await two.commit()
        finally:
            await two.stop()
        while len(one.assignment()) != 4:
            assert await one.getmany(timeout_ms=100) == {}
        positions = [await one.committed(place) for place in one.assignment()]

        assert positions == [10, 10, 10, 10]
    finally:
        await one.stop()
