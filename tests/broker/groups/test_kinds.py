"""A kind of group is one file: a kind and its API that only this test has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rookery.broker import apis, call
from rookery.broker.groups import kinds
from rookery.broker.groups.kind import GroupSettings
from rookery.broker.groups.kindtable import Kinds, group_kinds
from rookery.broker.groups.machine import gate_of
from rookery.broker.settings import BrokerSettings
from rookery.errors import Corrupt, ErrorCode
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.message import Api
from rookery.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from rookery.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from rookery.wire.messages.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from rookery.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.offset_delete import OFFSET_DELETE, OffsetDeleteRequest
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from rookery.wire.messages.streams_group_heartbeat import (
    STREAMS_GROUP_HEARTBEAT,
    StreamsGroupHeartbeatRequest,
)
from tests.broker.raw import create

PLUGS = Path(__file__).with_name("plugs")
SETTINGS = BrokerSettings(durability="os")


@pytest.fixture
def plugs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds the test's files to the folders that the broker scans."""
    monkeypatch.setattr(call, "_routes", dict(call.routes()))
    before = set(sys.modules)
    for package, name in ((kinds, "kinds"), (apis, "apis")):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(PLUGS / name)])
    _scan_again()
    yield
    monkeypatch.undo()
    for name in set(sys.modules) - before:
        if name.startswith((kinds.__name__, apis.__name__)):
            del sys.modules[name]
    _scan_again()


def _scan_again() -> None:
    call.routes.cache_clear()
    group_kinds.cache_clear()


class Client:
    """Asks one broker after the other about a group."""

    def __init__(self, broker: ServedBroker, group_id: str) -> None:
        self.broker = broker
        self.group_id = group_id

    def ask(self, api: Api[Any, Any], version: int, request: Any) -> Any:
        return ask(self.broker.bootstrap, api, version, request)

    def beat(self, member_id: str, epoch: int) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            endpoint_information_epoch=0,
        )
        return self.ask(STREAMS_GROUP_HEARTBEAT, 0, request)

    def listed(self, *types: str) -> list[tuple[str, str, str, str]]:
        answer = self.ask(LIST_GROUPS, 5, ListGroupsRequest(types_filter=list(types)))
        return [
            (group.group_id, group.group_type, group.group_state, group.protocol_type)
            for group in answer.groups
        ]

    def delete(self) -> ErrorCode:
        answer = self.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[self.group_id]))
        code: ErrorCode = answer.results[0].error_code
        return code

    def join_classic(self) -> Any:
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        return self.ask(JOIN_GROUP, 3, request)


@pytest.fixture
def client(plugs: None, tmp_path: Path) -> Iterator[Client]:
    with ServedBroker(tmp_path / "data", SETTINGS) as broker:
        yield Client(broker, "g")


def test_group_of_a_new_kind_is_created_listed_and_deleted(client: Client) -> None:
    joined, again, second = client.beat("a", 0), client.beat("a", 1), client.beat("b", 0)

    assert joined.error_code is again.error_code is second.error_code is ErrorCode.NONE
    assert (joined.member_epoch, again.member_epoch, second.member_epoch) == (1, 1, 2)
    assert client.listed() == client.listed("Tally") == [("g", "tally", "Stable", "tally")]
    assert client.listed("classic", "consumer") == []
    assert client.delete() is ErrorCode.NON_EMPTY_GROUP
    client.beat("a", -1)
    client.beat("b", -1)
    assert client.listed("tally") == [("g", "tally", "Empty", "tally")]
    assert client.delete() is ErrorCode.NONE
    assert client.listed() == []


def test_group_of_a_new_kind_is_not_described_as_one_of_another(client: Client) -> None:
    client.beat("a", 0)

    old, new = (
        client.ask(DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=["g"])).groups[0]
        for version in (5, 6)
    )
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    [consumer] = client.ask(CONSUMER_GROUP_DESCRIBE, 0, request).groups

    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert consumer.error_code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(("member_id", "epoch"), [("", -1), ("a", 1)])
def test_group_without_commits_refuses_offsets(client: Client, member_id: str, epoch: int) -> None:
    create(client.broker, "t")
    client.beat("a", 0)

    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[topic],
    )
    committed = client.ask(OFFSET_COMMIT, 9, commit)
    deleted = client.ask(OFFSET_DELETE, 0, OffsetDeleteRequest(group_id="g", topics=[]))
    group = OffsetFetchRequestGroup(
        group_id="g", member_id=member_id or None, member_epoch=epoch, topics=None
    )
    fetched = client.ask(OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group])).groups[0]

    [answer] = committed.topics[0].partitions
    assert answer.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert deleted.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert (fetched.error_code, fetched.topics) == (ErrorCode.NONE, [])


def test_requests_of_other_kinds_are_refused(client: Client) -> None:
    client.beat("a", 0)

    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="a")
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    codes = [
        client.join_classic().error_code,
        client.ask(HEARTBEAT, 3, heartbeat).error_code,
        client.ask(CONSUMER_GROUP_HEARTBEAT, 0, consumer).error_code,
    ]

    assert codes == [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert client.listed() == [("g", "tally", "Stable", "tally")]


def test_classic_group_is_not_converted_to_a_kind_that_cannot_replace_it(client: Client) -> None:
    member_id = client.join_classic().member_id
    assert client.beat("a", 0).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    client.ask(LEAVE_GROUP, 2, LeaveGroupRequest(group_id="g", member_id=member_id))
    assert client.listed() == [("g", "classic", "Empty", "consumer")]

    assert client.beat("a", 0).error_code is ErrorCode.GROUP_ID_NOT_FOUND

    assert client.listed() == [("g", "classic", "Empty", "consumer")]


@pytest.mark.usefixtures("plugs")
def test_group_of_a_new_kind_fails_over_to_another_broker(tmp_path: Path) -> None:
    first = ServedBroker(tmp_path / "data", SETTINGS)
    first.start()
    try:
        with ServedBroker(tmp_path / "data", SETTINGS) as second:
            # The first broker gives groups up when it learns of the second.
            wait_until(lambda: len(first.broker.replica.state.brokers.by_node) == 2)
            names = (f"g{number}" for number in count())
            group_id = next(name for name in names if first.broker.groups.is_ours(name))
            client = Client(first, group_id)
            assert client.beat("a", 0).member_epoch == 1

            first.stop()
            client.broker = second

            assert client.beat("a", 1).member_epoch == 1
            assert client.beat("b", 0).member_epoch == 2
            assert client.listed() == [(group_id, "tally", "Stable", "tally")]
    finally:
        if first._thread.is_alive():
            first.stop()


def test_every_kind_is_consistent() -> None:
    names = [row.name for row in group_kinds()]

    assert sorted(names) == ["classic", "consumer"]
    assert len({row.joined_by.key for row in group_kinds()}) == len(names)
    for row in group_kinds():
        machine = row.new("g", GroupSettings(), 7)
        assert (machine.kind, machine.epoch, machine.is_empty) == (row.name, 7, True)
        assert gate_of(machine) is machine
        assert row.joined_by in row.answers
        assert row.succeeds <= set(names) - {row.name}


def test_unknown_kind_is_reported_as_corrupt() -> None:
    with pytest.raises(Corrupt, match="of kind 'tally', which this broker does not know"):
        Kinds(GroupSettings()).load("g", "tally", b"", 0)
