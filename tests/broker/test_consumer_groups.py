"""Groups of the consumer protocol (KIP-848) as librdkafka and Java see them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.groups.settings import ConsumerSettings
from rookery.errors import ErrorCode
from rookery.testing.broker import BrokerProcess, wait_gone
from rookery.testing.java import Java
from rookery.testing.served import ServedBroker, ask
from rookery.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from tests.broker.conftest import Start
from tests.broker.raw import create

SECONDS = 20
GROUP = "readers"


class Reader:
    """A consumer, what it has read, and what it was told to start and to stop reading."""

    def __init__(self, bootstrap: str, topics: list[str], **settings: Any) -> None:
        defaults = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self.consumer = Consumer(defaults | settings)
        self.values: list[int] = []
        self.gained: list[int] = []
        self.lost: list[int] = []
        self.consumer.subscribe(
            topics,
            on_assign=lambda _, parts: self.gained.extend(part.partition for part in parts),
            on_revoke=lambda _, parts: self.lost.extend(part.partition for part in parts),
        )

    @property
    def owned(self) -> set[int]:
        """The partitions that it reads."""
        return {part.partition for part in self.consumer.assignment()}

    def poll(self) -> None:
        """Read what there is, or wait a moment."""
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            self.values.append(int(value))


@contextmanager
def reading(bootstrap: str, *topics: str, **settings: Any) -> Iterator[Reader]:
    """Read until the end of a block."""
    reader = Reader(bootstrap, list(topics), **settings)
    try:
        yield reader
    finally:
        reader.consumer.close()


def poll_until(holds: Callable[[], bool], *readers: Reader) -> None:
    """Have readers poll until something holds: that takes a heartbeat or two, of five seconds."""
    for _ in range(800):
        if holds():
            return
        for reader in readers:
            reader.poll()
    pytest.fail("it did not come true within a minute")


def produce(bootstrap: str, topic: str, numbers: range, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(SECONDS) == 0


def describe(bootstrap: str, group: str = GROUP) -> DescribedGroup:
    found = ask(bootstrap, FIND_COORDINATOR, 3, FindCoordinatorRequest(key=group))
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    [described] = ask(f"{found.host}:{found.port}", CONSUMER_GROUP_DESCRIBE, 1, request).groups
    return described


@pytest.fixture
def broker(start: Start) -> ServedBroker:
    """A broker whose members learn of a new assignment soon."""
    return start(consumer_groups=ConsumerSettings(heartbeat_interval_ms=300))


def test_second_member_gets_its_share_and_the_first_continues(broker: ServedBroker) -> None:
    create(broker, "t", 6)
    produce(broker.bootstrap, "t", range(60), 6)
    with reading(broker.bootstrap, "t") as one:
        poll_until(lambda: len(one.values) == 60, one)
        assert one.owned == set(range(6))
        with reading(broker.bootstrap, "t") as two:
            poll_until(lambda: len(two.owned) == 3, one, two)

            assert one.owned | two.owned == set(range(6))
            assert len(one.lost) == 3, "only what has moved was revoked"
            assert one.gained == list(range(6))
            described = describe(broker.bootstrap)
            assert described.group_state == "Stable"
            assert described.assignor_name == "uniform"
            assert {one.member_epoch for one in described.members} == {described.group_epoch}
            assert {one.member_type for one in described.members} == {1}

        poll_until(lambda: len(one.owned) == 6, one)
    assert describe(broker.bootstrap).group_state == "Empty"


def test_offsets_are_committed_in_the_epoch_of_the_member(broker: ServedBroker) -> None:
    create(broker, "t", 1)
    produce(broker.bootstrap, "t", range(10), 1)
    with reading(broker.bootstrap, "t") as one:
        poll_until(lambda: len(one.values) == 10, one)
        one.consumer.commit(asynchronous=False)
    produce(broker.bootstrap, "t", range(10, 15), 1)
    with reading(broker.bootstrap, "t") as one:
        [committed] = one.consumer.committed([TopicPartition("t", 0)], SECONDS)
        assert committed.offset == 10
        poll_until(lambda: len(one.values) == 5, one)
        assert one.values == [10, 11, 12, 13, 14]


def test_regular_expression_matches_topics_created_later(broker: ServedBroker) -> None:
    create(broker, "team-a", 1)
    with reading(
        broker.bootstrap, "^team-.*", **{"topic.metadata.refresh.interval.ms": 500}
    ) as one:
        poll_until(lambda: len(one.owned) == 1, one)
        create(broker, "team-b", 2)
        poll_until(lambda: len(one.consumer.assignment()) == 3, one)


def test_restarted_static_member_gets_the_same_partitions(broker: ServedBroker) -> None:
    create(broker, "t", 4)
    settings = {"group.instance.id": "static"}
    with reading(broker.bootstrap, "t") as other:
        with reading(broker.bootstrap, "t", **settings) as one:
            poll_until(lambda: len(one.owned) == 2 and len(other.owned) == 2, one, other)
            had, epoch = one.owned, describe(broker.bootstrap).group_epoch
            lost = list(other.lost)
        with reading(broker.bootstrap, "t", **settings) as one:
            poll_until(lambda: one.owned == had, one, other)
        assert describe(broker.bootstrap).group_epoch == epoch
        assert other.lost == lost


def test_empty_group_takes_the_protocol_of_the_next_member(broker: ServedBroker) -> None:
    create(broker, "t", 1)
    produce(broker.bootstrap, "t", range(3), 1)
    seen: list[tuple[str, int]] = []
    for protocol in ("classic", "consumer", "classic"):
        with reading(broker.bootstrap, "t", **{"group.protocol": protocol}) as one:
            poll_until(lambda one=one: one.owned == {0}, one)  # type: ignore[misc] # bound at once
            one.consumer.commit(offsets=[TopicPartition("t", 0, len(seen) + 1)], asynchronous=False)
            listed = ask(broker.bootstrap, LIST_GROUPS, 5, ListGroupsRequest(states_filter=[]))
            [offset] = one.consumer.committed([TopicPartition("t", 0)], SECONDS)
            seen.append((listed.groups[0].group_type, offset.offset))
    assert seen == [("classic", 1), ("consumer", 2), ("classic", 3)]


def test_classic_group_refuses_consumer_members_if_migration_is_disabled(start: Start) -> None:
    broker = start(consumer_groups=ConsumerSettings(migration_policy="disabled"))
    create(broker, "t", 1)
    with reading(broker.bootstrap, "t", **{"group.protocol": "classic"}) as one:
        poll_until(lambda: one.owned == {0}, one)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="new",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = ask(broker.bootstrap, CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert answer.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(broker.bootstrap).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_unknown_group_is_not_described(broker: ServedBroker) -> None:
    assert describe(broker.bootstrap).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(broker.bootstrap, "").error_code is ErrorCode.INVALID_GROUP_ID
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=3)
    answer = ask(broker.bootstrap, CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert answer.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    listed = ask(broker.bootstrap, LIST_GROUPS, 5, ListGroupsRequest(states_filter=[]))
    assert listed.groups == []


@pytest.mark.usefixtures("own_victim")
def test_a_stable_group_survives_the_kill_of_its_coordinator(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", workers=3, flags=["--durability", "os"]) as broker:
        pids = {one["node_id"]: one["pid"] for one in broker.ready["brokers"]}
        bootstrap = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(SECONDS)
        with reading(bootstrap, "t") as one, reading(bootstrap, "t") as two:
            poll_until(lambda: len(one.owned) == len(two.owned) == 2, one, two)
            produce(bootstrap, "t", range(20), 4)
            poll_until(lambda: len(one.values) + len(two.values) == 20, one, two)
            before, owned = describe(bootstrap), (one.owned, two.owned)
            lost = (list(one.lost), list(two.lost))
            found = ask(bootstrap, FIND_COORDINATOR, 3, FindCoordinatorRequest(key=GROUP))

            os.kill(pids[found.node_id], signal.SIGKILL)
            wait_gone(pids[found.node_id])
            produce(bootstrap, "t", range(20, 40), 4)

            poll_until(lambda: len(one.values) + len(two.values) == 40, one, two)
            assert sorted(one.values + two.values) == list(range(40))
            for reader in (one, two):
                poll_until(lambda reader=reader: _commits(reader), one, two)  # type: ignore[misc]
            after = describe(bootstrap)
            assert after.group_epoch == before.group_epoch
            assert {member.member_id for member in after.members} == {
                member.member_id for member in before.members
            }
            assert (one.owned, two.owned) == owned
            assert (one.lost, two.lost) == lost


def _commits(reader: Reader) -> bool:
    """Whether a commit passes; while no coordinator is known, it does not."""
    positions = reader.consumer.position(reader.consumer.assignment())
    try:
        reader.consumer.commit(offsets=positions, asynchronous=False)
    except KafkaException:
        return False
    return True


def test_java_consumer_reads_and_java_tools_describe(broker: ServedBroker, java: Java) -> None:
    create(broker, "t", 2)
    produce(broker.bootstrap, "t", range(20), 2)
    server = ["--bootstrap-server", broker.bootstrap]
    consumed = java.tool(
        "kafka-console-consumer",
        *server,
        *("--topic", "t", "--group", GROUP, "--from-beginning", "--max-messages", "20"),
        *("--timeout-ms", "60000", "--command-property", "group.protocol=consumer"),
    )
    assert sorted(map(int, consumed.stdout.split())) == list(range(20)), consumed.stderr
    with reading(broker.bootstrap, "t") as one:
        poll_until(lambda: len(one.owned) == 2, one)
        described = java.tool("kafka-consumer-groups", *server, "--describe", "--group", GROUP)
        rows = [line.split() for line in described.stdout.splitlines() if line.startswith(GROUP)]
        assert [row[:6] for row in sorted(rows)] == [
            [GROUP, "t", str(at), "10", "10", "0"] for at in range(2)
        ], described.stdout + described.stderr
        state = java.tool("kafka-consumer-groups", *server, "--describe", "--state", "--all-groups")
        assert "Stable" in state.stdout, state.stdout + state.stderr
    listed = java.tool("kafka-consumer-groups", *server, "--list", "--type", "consumer")
    assert GROUP in listed.stdout.split(), listed.stdout + listed.stderr
