"""Consumer groups with librdkafka, also in situations in which other brokers have failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from rookery.broker.settings import BrokerSettings
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until
from tests.broker.raw import create

SECONDS = 20
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")


def produce(broker: ServedBroker, topic: str, total: int, partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(total):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(SECONDS) == 0


@contextmanager
def consumer(
    broker: ServedBroker, group: str = "readers", **settings: object
) -> Iterator[Consumer]:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    defaults: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 100,
        "topic.metadata.refresh.interval.ms": 200,
    }
    reader = Consumer(defaults | dotted)
    try:
        yield reader
    finally:
        reader.close()


def read(member: Consumer, total: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < total:
        message = member.poll(SECONDS)
        assert message is not None, f"only {len(messages)} of {total} came"
        assert message.error() is None, message.error()
        messages.append(message)
    return messages


def numbers(messages: list[Message]) -> list[int]:
    return sorted(int(message.value() or b"") for message in messages)


def share(*consumers: Consumer) -> list[int]:
    """Poll all consumers once; return how many partitions each has."""
    for member in consumers:
        message = member.poll(0.02)
        assert message is None or message.error() is None
    return [len(member.assignment()) for member in consumers]


def until_shared(*consumers: Consumer, counts: list[int]) -> None:
    wait_until(lambda: sorted(share(*consumers)) == counts)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_librdkafka_reads_with_a_group(broker: ServedBroker, strategy: str) -> None:
    create(broker, "t", 4)
    produce(broker, "t", 100, 4)

    with consumer(broker, partition_assignment_strategy=strategy) as reader:
        reader.subscribe(["t"])

        assert numbers(read(reader, 100)) == list(range(100))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_members_share_partitions_and_one_takes_over(
    broker: ServedBroker, strategy: str
) -> None:
    create(broker, "t", 8)
    settings = {"partition_assignment_strategy": strategy}
    with consumer(broker, **settings) as first:
        first.subscribe(["t"])
        until_shared(first, counts=[8])
        with consumer(broker, **settings) as second:
            second.subscribe(["t"])
            until_shared(first, second, counts=[4, 4])
            places = {(place.topic, place.partition) for place in first.assignment()}
            places |= {(place.topic, place.partition) for place in second.assignment()}
            assert len(places) == 8

        # It has left in order, so its session need not expire.
        until_shared(first, counts=[8])


@pytest.mark.usefixtures("own_victim")
def test_killed_member_is_detected_by_its_session_timeout(broker: ServedBroker) -> None:
    create(broker, "t", 2)
    with consumer(broker) as first:
        first.subscribe(["t"])
        until_shared(first, counts=[2])
        second = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "readers",
                "session.timeout.ms": 6000,
                "max.poll.interval.ms": 6000,
                "heartbeat.interval.ms": 100,
            }
        )
        second.subscribe(["t"])
        until_shared(first, second, counts=[1, 1])

        # It does not poll any more, so it stops its heartbeats.
        until_shared(first, counts=[2])
        second.close()


def test_restarted_consumer_resumes_at_its_committed_offset(broker: ServedBroker) -> None:
    create(broker, "t")
    produce(broker, "t", 10)
    with consumer(broker, enable_auto_commit=False) as reader:
        reader.subscribe(["t"])
        messages = read(reader, 10)
        reader.commit(message=messages[5], asynchronous=False)

    with consumer(broker) as reader:
        reader.subscribe(["t"])

        assert numbers(read(reader, 4)) == [6, 7, 8, 9]


def test_without_a_commit_the_reset_policy_decides(broker: ServedBroker) -> None:
    create(broker, "t")
    produce(broker, "t", 10)
    with consumer(broker, auto_offset_reset="latest") as reader:
        reader.subscribe(["t"])
        until_shared(reader, counts=[1])
        assert reader.committed([TopicPartition("t", 0)])[0].offset < 0
        wait_until(
            lambda: share(reader) == [1] and reader.position(reader.assignment())[0].offset != 0
        )
        messages: list[Message] = []

        def comes() -> bool:
            # The position is settled some time after the assignment; nothing tells when.
            produce(broker, "t", 1)
            message = reader.poll(0.2)
            if message is not None:
                messages.append(message)
            return bool(messages)

        wait_until(comes)

        offset = messages[0].offset()
        assert offset is not None
        assert offset >= 10


def test_consumer_with_manual_assignment_can_commit(broker: ServedBroker) -> None:
    create(broker, "t", 2)
    produce(broker, "t", 10)
    place = TopicPartition("t", 0, 7, metadata="nöte")
    with consumer(broker, "assigners", enable_auto_commit=False) as reader:
        reader.assign([TopicPartition("t", 0, 0)])
        reader.commit(offsets=[place], asynchronous=False)

        places = reader.committed([TopicPartition("t", 0), TopicPartition("t", 1)], SECONDS)

    assert [each.offset for each in places] == [7, -1001]  # never committed: no offset
    assert places[0].metadata == "nöte"


def test_static_members_restart_without_a_rebalance(broker: ServedBroker) -> None:
    create(broker, "t", 4)
    rebalances: list[str] = []

    def subscribe(member: Consumer) -> None:
        member.subscribe(
            ["t"],
            on_assign=lambda _, places: rebalances.append("assigned"),
            on_revoke=lambda _, places: rebalances.append("revoked"),
        )

    with consumer(broker, group_instance_id="a") as first:
        subscribe(first)
        until_shared(first, counts=[4])
        with consumer(broker, group_instance_id="b") as second:
            second.subscribe(["t"])
            until_shared(first, second, counts=[2, 2])
            before = sorted(place.partition for place in second.assignment())
        rebalances.clear()
        with consumer(broker, group_instance_id="b") as second:
            second.subscribe(["t"])
            until_shared(first, second, counts=[2, 2])

            assert sorted(place.partition for place in second.assignment()) == before
            assert rebalances == []


def test_offsets_of_a_recreated_topic_are_removed(broker: ServedBroker) -> None:
    create(broker, "t")
    produce(broker, "t", 10)
    with consumer(broker, enable_auto_commit=False) as reader:
        reader.subscribe(["t"])
        reader.commit(message=read(reader, 10)[-1], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["t"])["t"].result(SECONDS)
    create(broker, "t")
    produce(broker, "t", 3)

    with consumer(broker) as reader:
        reader.subscribe(["t"])

        assert numbers(read(reader, 3)) == [0, 1, 2]


def test_groups_are_listed_described_and_deleted(broker: ServedBroker) -> None:
    create(broker, "t", 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    produce(broker, "t", 10, 2)
    with consumer(broker, client_id="me") as reader:
        reader.subscribe(["t"])
        read(reader, 10)
        reader.commit(asynchronous=False)

        [listed] = admin.list_consumer_groups().result(SECONDS).valid
        described = admin.describe_consumer_groups(["readers"])["readers"].result(SECONDS)

        assert (listed.group_id, listed.state.name) == ("readers", "STABLE")
        assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
        [member] = described.members
        assert (member.client_id, member.host) == ("me", "/127.0.0.1")
        assert len(member.assignment.topic_partitions) == 2
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["readers"])["readers"].result(SECONDS)

    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])
    places = offsets["readers"].result(SECONDS).topic_partitions
    assert {place.partition: place.offset for place in places} == {0: 5, 1: 5}
    admin.delete_consumer_groups(["readers"])["readers"].result(SECONDS)
    assert admin.list_consumer_groups().result(SECONDS).valid == []


def test_stopping_coordinator_hands_over_its_groups(tmp_path: Path) -> None:
    settings = BrokerSettings(durability="os")
    first = ServedBroker(tmp_path / "data", settings)
    first.start()
    try:
        with ServedBroker(tmp_path / "data", settings) as second:
            create(first, "t", 4)
            names = (f"g{number}" for number in count())
            group = next(name for name in names if first.broker.groups.is_ours(name))
            revoked: list[object] = []
            with consumer(second, group) as reader:
                reader.subscribe(["t"], on_revoke=lambda _, places: revoked.append(places))
                until_shared(reader, counts=[4])

                first.stop()
                produce(second, "t", 8, 4)

                assert len(read(reader, 8)) == 8
                reader.commit(asynchronous=False)
                assert second.broker.groups.is_ours(group)
                assert revoked == []
    finally:
        if first._thread.is_alive():
            first.stop()
