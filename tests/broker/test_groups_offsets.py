"""Offsets and groups by single requests, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from rookery.broker.groups.removal import OffsetRetention
from rookery.clock import SystemClock, Time
from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.wire.message import Api, Message
from rookery.wire.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from rookery.wire.messages.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
)
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from rookery.wire.messages.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from rookery.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponseTopic,
)
from rookery.wire.messages.sync_group import (
    SYNC_GROUP,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from rookery.wire.protocols.consumer import ConsumerProtocolSubscription, write_subscription
from tests.broker.conftest import Start
from tests.broker.raw import create

DAY_MS = 86_400_000


class Client:
    """Asks one broker, as any client would."""

    def __init__(self, broker: ServedBroker, topic_id: bytes = bytes(16)) -> None:
        self.broker = broker
        self.topic_id = topic_id

    def ask(self, api: Api[Any, Any], version: int, request: Message) -> Any:
        return ask(self.broker.bootstrap, api, version, request)

    def commit(
        self, offset: int, version: int = 8, *, group: str = "g", **changes: Any
    ) -> ErrorCode:
        partition = changes.pop("partition", 0)
        topic = OffsetCommitRequestTopic(
            name=changes.pop("name", "t"),
            topic_id=changes.pop("topic_id", self.topic_id),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=3,
                    committed_metadata=changes.pop("metadata", "note"),
                )
            ],
        )
        request = OffsetCommitRequest(group_id=group, topics=[topic], **changes)
        answer = self.ask(OFFSET_COMMIT, version, request)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    def fetch(
        self, version: int = 8, *, group: str = "g", partitions: list[int] | None = None
    ) -> list[OffsetFetchResponseTopic]:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopic(
                    name="t", topic_id=self.topic_id, partition_indexes=partitions
                )
            ]
        request = OffsetFetchRequest(
            group_id=group,
            topics=topics,
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
            require_stable=version >= 7,
        )
        answer = self.ask(OFFSET_FETCH, version, request)
        described: list[OffsetFetchResponseTopic]
        described = answer.groups[0].topics if version >= 8 else answer.topics
        return described

    def offset(self, partition: int = 0, version: int = 8) -> int:
        return self.fetch(version, partitions=[partition])[0].partitions[0].committed_offset

    def join(self, member_id: str = "", version: int = 3) -> JoinGroupResponse:
        metadata = write_subscription(
            ConsumerProtocolSubscription(topics=["t"], user_data=None, owned_partitions=[])
        )
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        answer: JoinGroupResponse = self.ask(JOIN_GROUP, version, request)
        return answer

    def settle(self) -> tuple[str, int]:
        """Be the only member of the group; return who, and in which generation."""
        joined = self.join()
        part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        synced = self.ask(
            SYNC_GROUP,
            3,
            SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[part],
            ),
        )
        assert synced.error_code is ErrorCode.NONE
        return joined.member_id, joined.generation_id

    def describe(self, group: str = "g", version: int = 6) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=version >= 3)
        described: DescribedGroup = self.ask(DESCRIBE_GROUPS, version, request).groups[0]
        return described

    def delete_offsets(self, *partitions: int, group: str = "g", topic: str = "t") -> Any:
        rows = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=rows)]
        return self.ask(OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=topics))

    def delete(self, group: str = "g") -> ErrorCode:
        answer = self.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group]))
        code: ErrorCode = answer.results[0].error_code
        return code


@pytest.fixture
def client(broker: ServedBroker) -> Client:
    return Client(broker, create(broker, "t", 2))


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit_works_in_every_version(client: Client, version: int) -> None:
    assert client.commit(42, version) is ErrorCode.NONE

    assert client.offset() == 42


@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch_works_in_every_version(client: Client, version: int) -> None:
    client.commit(42)

    [topic] = client.fetch(version, partitions=[0, 1])

    assert topic.topic_id == client.topic_id if version >= 10 else topic.name == "t"
    known, unknown = topic.partitions
    assert (known.committed_offset, known.metadata, known.error_code) == (42, "note", 0)
    assert known.committed_leader_epoch == (3 if version >= 5 else -1)
    # Never committed is neither an error nor zero: the client's own policy decides.
    assert (unknown.committed_offset, unknown.metadata, unknown.error_code) == (-1, "", 0)


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_can_be_fetched(client: Client, version: int) -> None:
    client.commit(1, partition=0)
    client.commit(2, partition=1)

    [topic] = client.fetch(version)

    assert {
        partition.partition_index: partition.committed_offset for partition in topic.partitions
    } == {0: 1, 1: 2}


def test_invalid_commits_are_refused(client: Client) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.commit(1, name="other") is unknown
    assert client.commit(1, partition=2) is unknown
    assert client.commit(1, partition=-1) is unknown
    assert client.commit(1, 10, topic_id=bytes(16)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert client.commit(1, group="") is ErrorCode.INVALID_GROUP_ID
    assert client.commit(1, metadata="ü" * 2049) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert client.offset() == -1
    assert client.commit(1, metadata="ü" * 2048) is ErrorCode.NONE


def test_commit_of_many_offsets_spans_several_entries(broker: ServedBroker) -> None:
    create(broker, "wide", 3000)
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index, committed_metadata="m" * 300
        )
        for index in range(3000)
    ]
    topic = OffsetCommitRequestTopic(name="wide", partitions=rows)
    request = OffsetCommitRequest(group_id="g", topics=[topic])

    answer = ask(broker.bootstrap, OFFSET_COMMIT, 8, request)

    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.NONE}
    [committed] = Client(broker).fetch()
    assert [partition.committed_offset for partition in committed.partitions] == list(range(3000))


def test_non_member_cannot_commit_to_a_group_with_members(client: Client) -> None:
    member, generation = client.settle()

    assert client.commit(5) is ErrorCode.UNKNOWN_MEMBER_ID
    old: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": generation - 1}
    assert client.commit(5, **old) is ErrorCode.ILLEGAL_GENERATION
    mine: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": generation}
    assert client.commit(6, **mine) is ErrorCode.NONE
    assert client.offset() == 6


def test_requests_to_an_unknown_group_do_not_create_it(client: Client) -> None:
    beat = HeartbeatRequest(group_id="none", generation_id=1, member_id="m")
    sync = SyncGroupRequest(group_id="none", generation_id=1, member_id="m", assignments=[])
    leave = LeaveGroupRequest(group_id="none", member_id="m")

    assert client.ask(HEARTBEAT, 3, beat).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.ask(SYNC_GROUP, 3, sync).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.ask(LEAVE_GROUP, 2, leave).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.join("stranger").error_code is ErrorCode.UNKNOWN_MEMBER_ID
    stranger: dict[str, Any] = {"group": "none", "member_id": "m"}
    unknown = ErrorCode.ILLEGAL_GENERATION
    assert client.commit(1, generation_id_or_member_epoch=1, **stranger) is unknown
    assert client.delete("none") is ErrorCode.GROUP_ID_NOT_FOUND
    assert client.delete_offsets(0).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert client.describe().error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert client.describe(version=5).group_state == "Dead"
    assert client.broker.broker.replica.state.groups.by_id == {}
    assert len(client.broker.broker.groups) == 0


def test_offsets_of_subscribed_topics_are_not_deleted(client: Client) -> None:
    client.commit(1)
    client.commit(2, partition=1)
    member, _ = client.settle()

    [topic] = client.delete_offsets(0, 7).topics
    assert [row.error_code for row in topic.partitions] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert client.delete() is ErrorCode.NON_EMPTY_GROUP

    client.ask(LEAVE_GROUP, 2, LeaveGroupRequest(group_id="g", member_id=member))
    [topic] = client.delete_offsets(0).topics
    assert topic.partitions[0].error_code is ErrorCode.NONE
    assert (client.offset(0), client.offset(1)) == (-1, 2)
    assert client.delete() is ErrorCode.NONE
    assert client.offset(1) == -1


def test_groups_are_listed_by_state_and_type(client: Client) -> None:
    client.settle()
    client.commit(1, group="simple")

    def listed(**filters: list[str]) -> list[tuple[str, str, str, str]]:
        groups = client.ask(LIST_GROUPS, 5, ListGroupsRequest(**filters)).groups
        return sorted(
            (group.group_id, group.group_state, group.group_type, group.protocol_type)
            for group in groups
        )

    mine = ("g", "Stable", "classic", "consumer")
    simple = ("simple", "Empty", "classic", "")
    assert listed() == [mine, simple]
    assert listed(states_filter=["stable"]) == [mine]
    assert listed(states_filter=["Empty", "Dead"]) == [simple]
    assert listed(types_filter=["Classic"]) == [mine, simple]
    assert listed(types_filter=["consumer"]) == []


def test_a_group_is_described(client: Client) -> None:
    member, _ = client.settle()

    group = client.describe()

    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [described.member_id for described in group.members] == [member]
    assert group.members[0].client_host == "/127.0.0.1"
    assert group.authorized_operations > 0
    assert client.describe(version=0).authorized_operations == -(2**31)


def test_coordinators_are_found_in_every_version(client: Client) -> None:
    own = (client.broker.node_id, "127.0.0.1", client.broker.port)
    for version in range(4):
        answer = client.ask(FIND_COORDINATOR, version, FindCoordinatorRequest(key="g"))
        assert (answer.node_id, answer.host, answer.port) == own
    for version, kind in ((4, 0), (5, 1), (6, 0)):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b"])
        coordinators = client.ask(FIND_COORDINATOR, version, request).coordinators
        assert [
            (coordinator.key, coordinator.node_id, coordinator.port) for coordinator in coordinators
        ] == [(key, own[0], own[2]) for key in "ab"]
    shares = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"])
    [refused] = client.ask(FIND_COORDINATOR, 6, shares).coordinators
    assert refused.error_code is ErrorCode.INVALID_REQUEST


def _two_brokers(start: Start) -> tuple[str, Client, Client]:
    """Return a group, a client of the broker that coordinates it, and one of another."""
    brokers = [start(), start()]
    topic_id = create(brokers[0], "t", 2)
    names = (f"g{number}" for number in count())
    group = next(name for name in names if brokers[0].broker.groups.is_ours(name))
    right, other = (Client(broker, topic_id) for broker in brokers)
    return group, right, other


def test_wrong_broker_answers_not_coordinator(start: Start) -> None:
    group, right, wrong = _two_brokers(start)

    away = ErrorCode.NOT_COORDINATOR
    assert wrong.commit(1, group=group) is away
    assert wrong.delete(group) is away
    assert wrong.describe(group).error_code is away
    assert wrong.delete_offsets(0, group=group).error_code is away
    assert right.commit(1, group=group) is ErrorCode.NONE


def test_every_broker_returns_committed_offsets(start: Start) -> None:
    group, right, other = _two_brokers(start)

    for offset in (5, 6):
        assert right.commit(offset, group=group) is ErrorCode.NONE
        for version in (7, 8):
            [topic] = other.fetch(version, group=group, partitions=[0])
            assert topic.partitions[0].committed_offset == offset
    for name in (group, f"{group}-unknown"):
        stranger = OffsetFetchRequestGroup(
            group_id=name, member_id="m", member_epoch=3, topics=None
        )
        request = OffsetFetchRequest(groups=[stranger])
        codes = {
            asker.ask(OFFSET_FETCH, 9, request).groups[0].error_code for asker in (right, other)
        }
        assert len(codes) == 1, codes


class FastClock(SystemClock):
    """The machine's clock, advanced by a given number of milliseconds."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    __slots__ = ("_ahead_ms",)

    def now_ms(self) -> Time:
        return Time(super().now_ms() + self._ahead_ms)


def expire(broker: ServedBroker, after_ms: int, *, is_clock_sound: bool = True) -> None:
    """Let offsets expire as if so much time had passed."""
    inner = broker.broker
    retention = OffsetRetention(
        inner.groups, inner.replica, FastClock(after_ms), DAY_MS, lambda: is_clock_sound
    )
    broker.do(retention.run())


def groups_of(broker: ServedBroker) -> Iterator[str]:
    return iter(broker.broker.replica.state.groups.by_id)


def test_offsets_of_an_empty_group_expire_and_the_group_with_them(client: Client) -> None:
    client.commit(1)
    expire(client.broker, DAY_MS - 60_000)
    assert client.offset() == 1

    expire(client.broker, DAY_MS + 60_000)

    assert client.offset() == -1
    assert list(groups_of(client.broker)) == []
    assert len(client.broker.broker.groups) == 0


def test_broker_with_a_wrong_clock_expires_nothing(client: Client) -> None:
    client.commit(1)

    expire(client.broker, 2 * DAY_MS, is_clock_sound=False)

    assert client.offset() == 1


def test_offsets_of_topics_that_a_member_reads_do_not_expire(client: Client) -> None:
    create(client.broker, "other")
    client.commit(1)
    client.commit(1, name="other")
    client.settle()

    expire(client.broker, 2 * DAY_MS)

    assert [topic.name for topic in client.fetch()] == ["t"]


def test_offsets_age_from_when_the_last_member_left(client: Client) -> None:
    client.commit(1)
    member, _ = client.settle()
    client.ask(LEAVE_GROUP, 2, LeaveGroupRequest(group_id="g", member_id=member))
    group = client.broker.broker.replica.state.groups.by_id["g"]

    async def leave_later() -> None:
        group.persisted_ms += DAY_MS

    client.broker.do(leave_later())
    expire(client.broker, DAY_MS + 60_000)
    assert client.offset() == 1

    expire(client.broker, 2 * DAY_MS + 60_000)
    assert client.offset() == -1


def test_retention_time_of_an_old_commit_version_is_honoured(client: Client) -> None:
    client.commit(1, 3, retention_time_ms=1000)
    client.commit(1, partition=1)

    expire(client.broker, 60_000)

    assert (client.offset(0), client.offset(1)) == (-1, 1)
