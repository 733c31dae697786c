"""The same requests to a classic group of ours and of a real Kafka get the same answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from rookery.errors import ErrorCode
from rookery.net.upstream import Upstream, connect
from rookery.testing.kafka import KafkaServer
from rookery.wire.message import Api, Message
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from rookery.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from rookery.wire.messages.join_group import JOIN_GROUP, JoinGroupResponse
from rookery.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupResponse
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.sync_group import SYNC_GROUP, SyncGroupResponse
from tests.broker.groups.driving import Driver, Token
from tests.broker.groups.likeness import Likeness

# A held request has no answer for this long; any other is answered much earlier.
_HELD_SECONDS = 0.3
_ANSWER_MS = 20_000
NONE = ErrorCode.NONE
_NUMBERS = itertools.count()
APIS: dict[str, Api[Any, Any]] = {
    "JoinGroupRequest": JOIN_GROUP,
    "SyncGroupRequest": SYNC_GROUP,
    "HeartbeatRequest": HEARTBEAT,
    "LeaveGroupRequest": LEAVE_GROUP,
}


class Sent(NamedTuple):
    """A request that went to both."""

    ours: Token
    theirs: asyncio.Future[Any]


class Recorder(Driver):
    """A group of ours that records its requests."""

    last: tuple[Message, int]

    def send(self, message: Message, version: int) -> Token:
        self.last = message, version
        return super().send(message, version)


class Both(Likeness):
    """Two groups that get the same requests, and must answer alike except for generated ids."""

    def __init__(self, upstream: Upstream, port: int) -> None:
        super().__init__(f"parity-classic-{next(_NUMBERS)}")
        self.ours = Recorder()
        self.upstream = upstream
        self.port = port
        self.links: list[Upstream] = []
        self.calls: list[asyncio.Future[Any]] = []

    async def wait_for_coordinator(self) -> None:
        """Return when Kafka has a coordinator for the group: the first is made when asked for."""
        find = FindCoordinatorRequest(key=self.group_id)
        beat = HeartbeatRequest(group_id=self.group_id, generation_id=0, member_id="nobody")
        for _ in range(10_000):
            coordinator = await self.upstream.call(FIND_COORDINATOR, 2, find, _ANSWER_MS)
            answer = await self.upstream.call(HEARTBEAT, 3, beat, _ANSWER_MS)
            if (coordinator.error_code, answer.error_code) == (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
                return
        raise AssertionError(f"Kafka has no coordinator for {self.group_id}")

    async def close(self) -> None:
        """Disconnect; requests that are held stay held."""
        for call in self.calls:
            call.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)
        for link in [*self.links, self.upstream]:
            link.close()
            await link.wait_closed()

    async def ask(self, token: Token) -> Any:
        """Send the last request of our group to Kafka, too; return our answer, None if held."""
        return await self.compare(await self.send(token))

    async def send(self, token: Token) -> Sent:
        """Send the last request of our group to Kafka, over a separate connection."""
        message, version = self.ours.last
        link = await connect("127.0.0.1", self.port)
        self.links.append(link)
        request = self.translate(message)
        call = link.call(APIS[type(message).__name__], version, request, _ANSWER_MS)
        self.calls.append(asyncio.ensure_future(call))
        return Sent(token, self.calls[-1])

    async def compare(self, sent: Sent) -> Any:
        """Return our answer, or None if it is held; Kafka must have the same."""
        mine = self.ours.answers.get(sent.ours)
        if mine is None:
            done, _ = await asyncio.wait([sent.theirs], timeout=_HELD_SECONDS)
            assert not done, f"ours is held, Kafka said {sent.theirs.result()}"
        else:
            theirs = await sent.theirs
            self.learn(mine, theirs)
            assert self._seen(mine, is_ours=True) == self._seen(theirs, is_ours=False)
        await self._compare_states()
        return mine

    async def hold(self, token: Token) -> Sent:
        """Send what must be held by both."""
        sent = await self.send(token)
        assert await self.compare(sent) is None
        return sent

    def _seen(self, answer: Any, *, is_ours: bool) -> object:
        """Return what both must agree on."""
        names = self.theirs if is_ours else {}
        match answer:
            case JoinGroupResponse():
                return self.joined(answer, names)
            case SyncGroupResponse():
                named = (answer.protocol_type, answer.protocol_name)
                return answer.error_code, *named, answer.assignment
            case LeaveGroupResponse():
                parts = [(m.group_instance_id, m.error_code) for m in answer.members]
                return answer.error_code, parts
            case _:
                return answer.error_code

    async def _compare_states(self) -> None:
        mine = self.ours.group.description()
        if mine.state == "Empty" and not mine.generation:
            return  # Kafka makes a group only when a member is accepted
        request = DescribeGroupsRequest(groups=[self.group_id])
        answer = await self.upstream.call(DESCRIBE_GROUPS, 5, request, _ANSWER_MS)
        theirs = answer.groups[0]
        assert theirs.group_state == mine.state
        assert (theirs.protocol_type, theirs.protocol_data) == (mine.protocol_type, mine.protocol)
        assert sorted(
            (m.group_instance_id or "", m.member_metadata, m.member_assignment)
            for m in theirs.members
        ) == sorted((m.instance_id or "", m.metadata, m.assignment) for m in mine.members)

    async def come(self, **how: Any) -> tuple[str, Sent]:
        """Join as a new member: first get an id, then use it."""
        answer = await self.ask(self.ours.join(**how))
        assert answer.error_code is ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id, await self.send(self.ours.join(answer.member_id, **how))

    async def beat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Heartbeat."""
        self.ours.beat(member_id, generation, instance_id=instance_id)
        await self.ask(self._last_token())

    async def leave(self, *members: tuple[str, str | None], version: int = 5) -> None:
        """Let members leave."""
        self.ours.leave(*members, version=version)
        await self.ask(self._last_token())

    async def commit(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> ErrorCode:
        """Ask whether the member may commit an offset."""
        part = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=self.their_id(member_id),
            group_instance_id=instance_id,
            topics=[OffsetCommitRequestTopic(name=self.group_id, partitions=[part])],
        )
        answer = await self.upstream.call(OFFSET_COMMIT, 8, request, _ANSWER_MS)
        mine = self.ours.group.check_commit(member_id, generation, instance_id)
        assert answer.topics[0].partitions[0].error_code is mine
        return mine

    async def create_topic(self) -> None:
        """Make a topic of the group's name in Kafka."""
        topic = CreatableTopic(
            name=self.group_id, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic])
        answer = await self.upstream.call(CREATE_TOPICS, 5, request, _ANSWER_MS)
        assert answer.topics[0].error_code is NONE

    def _last_token(self) -> Token:
        return max(self.ours.versions)


@pytest.fixture
async def both(kafka: KafkaServer) -> AsyncIterator[Both]:
    """Two empty groups."""
    upstream = await connect("127.0.0.1", kafka.port())
    groups = Both(upstream, kafka.port())
    await groups.wait_for_coordinator()
    yield groups
    await groups.close()


async def test_unknown_member_is_answered_like_kafka(both: Both) -> None:
    ours = both.ours
    await both.beat("nobody", 1)
    await both.ask(ours.sync("nobody", 1))
    await both.leave(("nobody", None))
    await both.leave(("nobody", None), version=2)
    await both.ask(ours.join("nobody"))
    await both.ask(ours.join(session_ms=1))
    await both.ask(ours.join(protocols={}))
    await both.ask(ours.join(protocol_type=""))


async def test_single_member_is_answered_like_kafka(both: Both) -> None:
    ours = both.ours
    member, sent = await both.come()
    await both.compare(sent)
    await both.beat(member, 1)
    await both.beat(member, 0)
    await both.beat("nobody", 1)
    await both.ask(ours.sync(member, 2))
    await both.ask(ours.sync("nobody", 1))
    await both.ask(ours.sync(member, 1, protocol=("consumer", "sticky")))
    await both.ask(ours.sync(member, 1, protocol=("connect", "range")))
    await both.ask(ours.sync(member, 1, protocol=(None, None)))
    await both.ask(ours.join(member))
    await both.ask(ours.sync(member, 1, {member: b"A"}))
    await both.ask(ours.sync(member, 1, {member: b"other"}))
    await both.ask(ours.join(protocol_type="connect"))
    await both.ask(ours.join(protocols={"sticky": b""}))
    await both.ask(ours.join(member, protocols={"sticky": b""}))
    await both.ask(ours.join(member))  # it leads
    await both.ask(ours.sync(member, 2, {member: b"A"}))
    await both.leave((member, None))
    await both.ask(ours.join(member))
    await both.ask(ours.join(protocol_type="connect"))


async def test_two_members_are_answered_like_kafka(both: Both) -> None:
    ours = both.ours
    first, sent = await both.come()
    await both.compare(sent)
    await both.ask(ours.sync(first, 1, {first: b"A"}))
    await both.ask(ours.join(first))
    await both.ask(ours.sync(first, 2, {first: b"A"}))
    second, sent = await both.come()
    await both.compare(sent)
    await both.beat(first, 2)
    await both.ask(ours.sync(first, 2))
    await both.ask(ours.join(first))
    await both.compare(sent)
    follower = await both.hold(ours.sync(second, 3))
    await both.ask(ours.sync(first, 3, {first: b"A", second: b"B"}))
    await both.compare(follower)
    await both.ask(ours.join(second))  # it follows, and is as it was
    rejoin = await both.hold(ours.join(second, protocols={"range": b"more"}))
    await both.ask(ours.join(first))
    await both.compare(rejoin)
    follower = await both.hold(ours.sync(second, 4))
    three, newcomer = await both.come()
    await both.compare(newcomer)
    await both.compare(follower)
    await both.leave((three, None), ("nobody", None))
    await both.compare(newcomer)
    await both.leave((first, None))
    await both.beat(second, 4)
    await both.ask(ours.join(second, protocols={"range": b"more"}))
    await both.leave((second, None))


@pytest.mark.parametrize("version", range(4))
async def test_old_versions_without_a_member_id_are_answered_like_kafka(
    both: Both, version: int
) -> None:
    ours = both.ours
    answer = await both.ask(ours.join(version=version))
    member = answer.member_id
    await both.ask(ours.sync(member, 1, {member: b"A"}, version=min(version, 2)))
    held = await both.hold(ours.join(version=version))
    await both.beat(member, 1)
    await both.leave((member, None), version=min(version, 2))
    await both.compare(held)


async def test_protocol_votes_are_counted_like_kafka(both: Both) -> None:
    ours = both.ours
    like_a, like_b = {"a": b"", "b": b""}, {"b": b"", "a": b""}
    member, sent = await both.come(protocols=like_a)
    await both.compare(sent)
    _, second = await both.come(protocols=like_b)
    await both.compare(second)
    _, third = await both.come(protocols=like_b)
    await both.compare(third)
    await both.ask(ours.join(member, protocols=like_a))
    await both.compare(second)
    await both.compare(third)


async def test_static_members_are_answered_like_kafka(both: Both) -> None:
    ours = both.ours
    first = (await both.ask(ours.join(instance_id="a"))).member_id
    sent = await both.hold(ours.join(instance_id="b"))
    await both.ask(ours.join(first, instance_id="a"))
    second = (await both.compare(sent)).member_id
    follower = await both.hold(ours.sync(second, 2, instance_id="b"))
    await both.ask(ours.sync(first, 2, {first: b"A", second: b"B"}, instance_id="a"))
    await both.compare(follower)
    new_two = (await both.ask(ours.join(instance_id="b"))).member_id
    await both.ask(ours.sync(new_two, 2, instance_id="b"))
    await both.beat(second, 2, "b")
    await both.beat(second, 2)
    await both.beat(new_two, 2, "none")
    await both.ask(ours.sync(second, 2, instance_id="b"))
    await both.ask(ours.join(second, instance_id="b"))
    await both.leave((second, "b"))
    new_one = (await both.ask(ours.join(instance_id="a"))).member_id
    await both.ask(ours.sync(new_one, 2, {new_one: b"ignored"}, instance_id="a"))
    older = (await both.ask(ours.join(instance_id="a", version=8))).member_id
    # The leader joins again: a rebalance, in which the other is restarted twice.
    leader = await both.hold(ours.join(older, instance_id="a"))
    await both.ask(ours.join(instance_id="b"))
    await both.compare(leader)
    again = await both.hold(ours.join(instance_id="b"))
    fresh = await both.hold(ours.join(instance_id="b"))
    await both.compare(again)
    await both.leave(("", "a"), ("", "none"), ("", None))
    await both.compare(fresh)
    await both.leave(("", "b"))


async def test_commits_are_answered_like_kafka(both: Both) -> None:
    ours = both.ours
    await both.create_topic()
    assert await both.commit("", -1) is NONE
    assert await both.commit("nobody", -1) is NONE
    first = (await both.ask(ours.join(instance_id="a"))).member_id
    for generation in (-1, 0, 1, 2):  # CompletingRebalance
        await both.commit(first, generation, "a")
    await both.commit("", -1)
    await both.ask(ours.sync(first, 1, {first: b"A"}, instance_id="a"))
    for member_id, instance_id in (
        (first, "a"),
        (first, None),
        (first, "b"),
        ("b", "a"),
        ("", None),
    ):
        for generation in (-1, 0, 1, 2):  # Stable
            await both.commit(member_id, generation, instance_id)
    second, sent = await both.come()
    await both.compare(sent)
    for generation in (-1, 0, 1, 2):  # PreparingRebalance
        await both.commit(first, generation, "a")
        await both.commit(second, generation)
    await both.leave((first, "a"), (second, None))
    assert ours.group.is_empty
    for generation in (-1, 0, 1, 2):
        await both.commit(first, generation)
        await both.commit("", generation)
