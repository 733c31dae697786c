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
from rookery.testing.servedbroker import ServedBroker, ask
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
    """A consumer, the records it has read, and the assignments and revocations it got."""

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
    coordinator = ask(bootstrap, FIND_COORDINATOR, 3, FindCoordinatorRequest(key=group))
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    [described] = ask(
        f"{coordinator.host}:{coordinator.port}", CONSUMER_GROUP_DESCRIBE, 1, request
    ).groups
    return described


@pytest.fixture
def broker(start: Start) -> ServedBroker:
    """A broker whose members learn of a new assignment soon."""
    return start(consumer_groups=ConsumerSettings(heartbeat_interval_ms=300))


def test_second_member_gets_its_share_and_the_first_continues(broker: ServedBroker) -> None:
    create(broker, "t", 6)
    produce(broker.bootstrap, "t", range(60), 6)
    with reading(broker.bootstrap, "t") as first:
        poll_until(lambda: len(first.values) == 60, first)
        assert first.owned == set(range(6))
        with reading(broker.bootstrap, "t") as second:
            poll_until(lambda: len(second.owned) == 3, first, second)

            assert first.owned | second.owned == set(range(6))
            assert len(first.lost) == 3, "only what has moved was revoked"
            assert first.gained == list(range(6))
            described = describe(broker.bootstrap)
            assert described.group_state == "Stable"
            assert described.assignor_name == "uniform"
            assert {member.member_epoch for member in described.members} == {described.group_epoch}
            assert {member.member_type for member in described.members} == {1}

        poll_until(lambda: len(first.owned) == 6, first)
    assert describe(broker.bootstrap).group_state == "Empty"


def test_offsets_are_committed_in_the_epoch_of_the_member(broker: ServedBroker) -> None:
    create(broker, "t", 1)
    produce(broker.bootstrap, "t", range(10), 1)
    with reading(broker.bootstrap, "t") as reader:
        poll_until(lambda: len(reader.values) == 10, reader)
        reader.consumer.commit(asynchronous=False)
    produce(broker.bootstrap, "t", range(10, 15), 1)
    with reading(broker.bootstrap, "t") as reader:
        [committed] = reader.consumer.committed([TopicPartition("t", 0)], SECONDS)
        assert committed.offset == 10
        poll_until(lambda: len(reader.values) == 5, reader)
        assert reader.values == [10, 11, 12, 13, 14]


def test_regular_expression_matches_topics_created_later(broker: ServedBroker) -> None:
    create(broker, "team-a", 1)
    with reading(
        broker.bootstrap, "^team-.*", **{"topic.metadata.refresh.interval.ms": 500}
    ) as reader:
        poll_until(lambda: len(reader.owned) == 1, reader)
        create(broker, "team-b", 2)
        poll_until(lambda: len(reader.consumer.assignment()) == 3, reader)


def test_restarted_static_member_gets_the_same_partitions(broker: ServedBroker) -> None:
    create(broker, "t", 4)
    settings = {"group.instance.id": "static"}
    with reading(broker.bootstrap, "t") as second:
        with reading(broker.bootstrap, "t", **settings) as first:
            poll_until(lambda: len(first.owned) == 2 and len(second.owned) == 2, first, second)
            had, epoch = first.owned, describe(broker.bootstrap).group_epoch
            lost = list(second.lost)
        with reading(broker.bootstrap, "t", **settings) as first:
            poll_until(lambda: first.owned == had, first, second)
        assert describe(broker.bootstrap).group_epoch == epoch
        assert second.lost == lost


def test_empty_group_takes_the_protocol_of_the_next_member(broker: ServedBroker) -> None:
    create(broker, "t", 1)
    produce(broker.bootstrap, "t", range(3), 1)
    seen: list[tuple[str, int]] = []
    for protocol in ("classic", "consumer", "classic"):
        with reading(broker.bootstrap, "t", **{"group.protocol": protocol}) as reader:
            poll_until(lambda bound=reader: bound.owned == {0}, reader)  # type: ignore[misc] # bound at once
            reader.consumer.commit(
                offsets=[TopicPartition("t", 0, len(seen) + 1)], asynchronous=False
            )
            listed = ask(broker.bootstrap, LIST_GROUPS, 5, ListGroupsRequest(states_filter=[]))
            [offset] = reader.consumer.committed([TopicPartition("t", 0)], SECONDS)
            seen.append((listed.groups[0].group_type, offset.offset))
    assert seen == [("classic", 1), ("consumer", 2), ("classic", 3)]


def test_classic_group_refuses_consumer_members_if_migration_is_disabled(start: Start) -> None:
    broker = start(consumer_groups=ConsumerSettings(migration_policy="disabled"))
    create(broker, "t", 1)
    with reading(broker.bootstrap, "t", **{"group.protocol": "classic"}) as reader:
        poll_until(lambda: reader.owned == {0}, reader)
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
        pids = {row["node_id"]: row["pid"] for row in broker.ready["brokers"]}
        bootstrap = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(SECONDS)
        with reading(bootstrap, "t") as first, reading(bootstrap, "t") as second:
            poll_until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
            produce(bootstrap, "t", range(20), 4)
            poll_until(lambda: len(first.values) + len(second.values) == 20, first, second)
            before, owned = describe(bootstrap), (first.owned, second.owned)
            lost = (list(first.lost), list(second.lost))
            coordinator = ask(bootstrap, FIND_COORDINATOR, 3, FindCoordinatorRequest(key=GROUP))

            os.kill(pids[coordinator.node_id], signal.SIGKILL)
            wait_gone(pids[coordinator.node_id])
            produce(bootstrap, "t", range(20, 40), 4)

            poll_until(lambda: len(first.values) + len(second.values) == 40, first, second)
            assert sorted(first.values + second.values) == list(range(40))
            for reader in (first, second):
                poll_until(lambda reader=reader: _commits(reader), first, second)  # type: ignore[misc]
            after = describe(bootstrap)
            assert after.group_epoch == before.group_epoch
            assert {member.member_id for member in after.members} == {
                member.member_id for member in before.members
            }
            assert (first.owned, second.owned) == owned
            assert (first.lost, second.lost) == lost


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
    with reading(broker.bootstrap, "t") as reader:
        poll_until(lambda: len(reader.owned) == 2, reader)
        described = java.tool("kafka-consumer-groups", *server, "--describe", "--group", GROUP)
        rows = [line.split() for line in described.stdout.splitlines() if line.startswith(GROUP)]
        assert [row[:6] for row in sorted(rows)] == [
            [GROUP, "t", str(at), "10", "10", "0"] for at in range(2)
        ], described.stdout + described.stderr
        state = java.tool("kafka-consumer-groups", *server, "--describe", "--state", "--all-groups")
        assert "Stable" in state.stdout, state.stdout + state.stderr
    listed = java.tool("kafka-consumer-groups", *server, "--list", "--type", "consumer")
    assert GROUP in listed.stdout.split(), listed.stdout + listed.stderr
