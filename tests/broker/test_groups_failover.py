"""Groups continue undisturbed with the next coordinator after theirs was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ErrorCode
from rookery.testing.broker import BrokerProcess, wait_gone
from rookery.testing.servedbroker import ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.sync_group import (
    SYNC_GROUP,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

SECONDS = 20
PARTITIONS = 4
SESSION_MS = 1_000


def coordinator(bootstrap: str, group: str) -> tuple[int, str]:
    """Return who coordinates a group, and where."""
    answer = ask(bootstrap, FIND_COORDINATOR, 3, FindCoordinatorRequest(key=group))
    return answer.node_id, f"{answer.host}:{answer.port}"


def member_ids(bootstrap: str, group: str) -> list[str]:
    _, address = coordinator(bootstrap, group)
    answer = ask(address, DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[group]))
    return [member.member_id for member in answer.groups[0].members]


@pytest.mark.usefixtures("own_victim")
def test_stable_group_survives_the_kill_of_its_coordinator(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", workers=3, flags=["--durability", "os"]) as broker:
        pids = {row["node_id"]: row["pid"] for row in broker.ready["brokers"]}
        bootstrap = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(SECONDS)
        events: list[str] = []
        consumers = [member(bootstrap, events) for _ in range(2)]
        try:
            wait_until(lambda: _poll(consumers) == [2, 2])
            _produce(bootstrap, 0, 20)
            seen: set[int] = set()
            wait_until(lambda: _collect(consumers, seen) == 20)
            for consumer in consumers:
                consumer.commit(asynchronous=False)
            before = member_ids(bootstrap, "g")
            events.clear()
            node, _ = coordinator(bootstrap, "g")

            os.kill(pids[node], signal.SIGKILL)
            wait_gone(pids[node])
            _produce(bootstrap, 20, 40)

            wait_until(lambda: _collect(consumers, seen) == 40)
            wait_until(lambda: _commits(consumers))
            assert events == []
            assert member_ids(bootstrap, "g") == before
            assert _poll(consumers) == [2, 2]
        finally:
            for consumer in consumers:
                consumer.close()


@pytest.mark.usefixtures("own_victim")
def test_paused_coordinator_is_replaced_and_changes_nothing_when_it_resumes(
    tmp_path: Path,
) -> None:
    flags = ["--durability", "os", "--session-timeout-ms", "2000", "--beat-interval-ms", "300"]
    with BrokerProcess(tmp_path / "data", workers=3, flags=flags) as broker:
        brokers = {row["node_id"]: row for row in broker.ready["brokers"]}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(SECONDS)
        node, _ = coordinator(broker.bootstrap, "g")
        others = [row["address"] for row in brokers.values() if row["node_id"] != node]
        events: list[str] = []
        consumer = member(",".join(others), events)
        try:
            wait_until(lambda: _poll([consumer]) == [PARTITIONS])
            before = member_ids(others[0], "g")
            events.clear()

            with paused(brokers[node]["pid"]):
                wait_until(lambda: coordinator(others[0], "g")[0] != node)
                _produce(",".join(others), 0, 20)
                seen: set[int] = set()
                wait_until(lambda: _collect([consumer], seen) == 20)
                wait_until(lambda: _commits([consumer]))
            # It finds itself expired, joins again, and has the group as the other one left it.
            wait_until(lambda: coordinator(others[0], "g")[0] == node)
            wait_until(lambda: _commits([consumer]))

            assert _poll([consumer]) == [PARTITIONS]
            assert events == []
            assert member_ids(others[0], "g") == before
            offsets = consumer.committed(consumer.assignment(), SECONDS)
            assert [place.offset for place in offsets] == [5] * PARTITIONS
        finally:
            consumer.close()


@pytest.mark.usefixtures("own_victim")
def test_members_that_do_not_return_after_a_restart_expire(
    tmp_path: Path,
) -> None:
    flags = ["--durability", "os", "--caretaker", "off"]
    flags += ["--classic-groups-min-session-timeout-ms", "1"]
    flags += ["--consumer-groups-session-timeout-ms", str(SESSION_MS)]
    with BrokerProcess(tmp_path / "data", flags=flags) as broker:
        _join_once(broker.bootstrap)
        broker.kill()

        broker.start()

        wait_until(lambda: states(broker.bootstrap) == {"old": "Empty", "new": "Empty"})
        assert [reset_offset(broker.bootstrap, group) for group in ("old", "new")] == [7, 7]


def reset_offset(bootstrap: str, group: str) -> int:
    """Set the offset of a group as an administrator does; return the committed one."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(group, 1, 1)])[group].result(SECONDS)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(group, 0, 7)])
    admin.alter_consumer_group_offsets([wanted])[group].result(SECONDS)
    asked = ConsumerGroupTopicPartitions(group)
    listed = admin.list_consumer_group_offsets([asked])[group].result(SECONDS)
    [place] = listed.topic_partitions
    return int(place.offset)


def states(bootstrap: str) -> dict[str, str]:
    """Return the groups' states; a list asks for no group in particular."""
    answer = ask(bootstrap, LIST_GROUPS, 5, ListGroupsRequest(states_filter=[]))
    return {group.group_id: group.group_state for group in answer.groups}


def _join_once(bootstrap: str) -> None:
    """Be the one member of a group of each protocol, and send no further heartbeat."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="old",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=2_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = ask(bootstrap, JOIN_GROUP, 3, request)
    part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    sync = SyncGroupRequest(
        group_id="old",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[part],
    )
    assert ask(bootstrap, SYNC_GROUP, 3, sync).error_code is ErrorCode.NONE
    beat = ConsumerGroupHeartbeatRequest(
        group_id="new",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=2_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert ask(bootstrap, CONSUMER_GROUP_HEARTBEAT, 1, beat).error_code is ErrorCode.NONE


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Let a process stand still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def member(bootstrap: str, events: list[str]) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 200,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 1500,
        }
    )
    consumer.subscribe(
        ["t"],
        on_assign=lambda _, places: events.append("assigned"),
        on_revoke=lambda _, places: events.append("revoked"),
        on_lost=lambda _, places: events.append("lost"),
    )
    return consumer


def _produce(bootstrap: str, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(start, end):
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def _poll(consumers: list[Consumer]) -> list[int]:
    for consumer in consumers:
        message = consumer.poll(0.02)
        assert message is None
    return [len(consumer.assignment()) for consumer in consumers]


def _collect(consumers: list[Consumer], seen: set[int]) -> int:
    for consumer in consumers:
        for message in consumer.consume(50, 0.05):
            if message.error() is None:
                seen.add(int(message.value() or b""))
    return len(seen)


def _commits(consumers: list[Consumer]) -> bool:
    """Whether all can commit, under the membership that they have."""
    try:
        for consumer in consumers:
            # By name: a commit without anything new is refused by the client itself.
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    except KafkaException:
        return False
    return True


def test_every_broker_names_the_same_coordinator(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", workers=3, flags=["--durability", "os"]) as broker:
        addresses = [row["address"] for row in broker.ready["brokers"]]
        groups = [f"g{number}" for number in range(12)]

        answers = [[coordinator(address, group) for group in groups] for address in addresses]

        assert answers[0] == answers[1] == answers[2]
        assert {node for node, _ in answers[0]} == {1, 2, 3}
