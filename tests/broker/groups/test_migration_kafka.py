"""The same clients change from one protocol to the other in our group and in a real Kafka's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import pytest

from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.settings import ConsumerSettings
from rookery.errors import ErrorCode
from rookery.net.upstream import Upstream, connect
from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings
from rookery.testing.wait import PATIENCE_SECONDS
from rookery.wire.message import Api, Message
from rookery.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    Assignment,
    ConsumerGroupDescribeRequest,
)
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from rookery.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from rookery.wire.messages.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from rookery.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupResponse
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from rookery.wire.messages.sync_group import SYNC_GROUP, SyncGroupResponse
from rookery.wire.protocols.consumer import read_assignment
from tests.broker.groups.beats import Cluster, Reader
from tests.broker.groups.likeness import Likeness
from tests.broker.groups.mixing import (
    COOPERATIVE,
    EAGER,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ClassicReader,
    Mixed,
)

# A held request has no answer for this long; any other is answered much earlier.
_HELD_SECONDS = 0.3
_ANSWER_MS = 20_000
_PARTITIONS = 6
NONE = ErrorCode.NONE
_NUMBERS = itertools.count()
_APIS: dict[str, Api[Any, Any]] = {
    "ConsumerGroupHeartbeatRequest": CONSUMER_GROUP_HEARTBEAT,
    "JoinGroupRequest": JOIN_GROUP,
    "SyncGroupRequest": SYNC_GROUP,
    "HeartbeatRequest": HEARTBEAT,
    "LeaveGroupRequest": LEAVE_GROUP,
}
both_assignors = pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])


BIDIRECTIONAL = ConsumerSettings()
_AT_ONCE = {
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


class Sent(NamedTuple):
    """A request that went to both."""

    message: Message
    ours: int
    theirs: asyncio.Future[Any]


class Recorder(Mixed):
    """A group of ours that records its requests."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        super().__init__(cluster, settings)
        self.asked: list[tuple[Message, int, int]] = []

    def send(self, message: Message, version: int) -> int:
        token = super().send(message, version)
        self.asked.append((message, version, token))
        return token


class Both(Likeness):
    """Two groups that get the same requests, and must answer alike except for generated ids."""

    def __init__(
        self, upstream: Upstream, port: int, settings: ConsumerSettings = BIDIRECTIONAL
    ) -> None:
        super().__init__(f"mixed-{next(_NUMBERS)}")
        self.ours = Recorder(Cluster(), settings)
        self.upstream = upstream
        self.port = port
        self.links: list[Upstream] = []
        self.open: list[Sent] = []
        self.deals_alike = True
        """Whether both give the same partitions to the same members, or only as many."""

    async def prepare(self) -> None:
        """Have a topic, and a coordinator for the group."""
        topic = CreatableTopic(
            name=self.group_id,
            num_partitions=_PARTITIONS,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        made = await self._call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert made.topics[0].error_code is NONE
        self.ours.cluster.create(self.group_id, _PARTITIONS, made.topics[0].topic_id)
        find = FindCoordinatorRequest(key=self.group_id)
        beat = HeartbeatRequest(group_id=self.group_id, generation_id=0, member_id="nobody")
        codes: tuple[int, int] | None = None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while codes != (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
                coordinator = await self._call(FIND_COORDINATOR, 2, find)
                answer = await self._call(HEARTBEAT, 3, beat)
                codes = coordinator.error_code, answer.error_code
            numbers = itertools.count()
            while not await self._is_assigned(f"probe-{next(numbers)}"):
                pass

    async def _is_assigned(self, member_id: str) -> bool:
        """Return whether the coordinator knows the topic: it assigns only known topics."""
        probe = ConsumerGroupHeartbeatRequest(
            group_id=f"probe of {self.group_id}",
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self.group_id],
            topic_partitions=[],
        )
        joined = await self._call(CONSUMER_GROUP_HEARTBEAT, 1, probe)
        left = probe.replace(member_epoch=-1, topic_partitions=None)
        await self._call(CONSUMER_GROUP_HEARTBEAT, 1, left)
        return joined.assignment is not None and bool(joined.assignment.topic_partitions)

    async def close(self) -> None:
        """Disconnect; requests that are held stay held."""
        for sent in self.open:
            sent.theirs.cancel()
        await asyncio.gather(*(sent.theirs for sent in self.open), return_exceptions=True)
        for link in [*self.links, self.upstream]:
            link.close()
            await link.wait_closed()

    def classic(self, assignor: str, instance_id: str | None = None) -> ClassicReader:
        """Return a classic consumer of the topic."""
        return ClassicReader(self.ours, self.group_id, assignor=assignor, instance_id=instance_id)

    def consumer(self, member_id: str, instance_id: str | None = None) -> Reader:
        """Return a consumer of the topic by the consumer protocol."""
        wants = {"subscribed_topic_names": [self.group_id], "instance_id": instance_id}
        return Reader(self.ours, member_id, **wants)

    async def step(self, *readers: ClassicReader | Reader, rounds: int = 1) -> None:
        """Have readers take steps in turn; Kafka must answer each as ours does."""
        for _ in range(rounds):
            for reader in readers:
                reader.step()
                await self.follow()

    async def follow(self) -> None:
        """Send Kafka the new requests of ours, and compare the answers."""
        asked, self.ours.asked = self.ours.asked, []
        for message, version, token in asked:
            self.open.append(await self._send(message, version, token))
            await self._settle()
        await self._compare_groups()

    async def _send(self, message: Message, version: int, token: int) -> Sent:
        link = await connect("127.0.0.1", self.port)
        self.links.append(link)
        api = _APIS[type(message).__name__]
        call = link.call(api, version, self.translate(message), _ANSWER_MS)
        return Sent(message, token, asyncio.ensure_future(call))

    async def _settle(self) -> None:
        """Compare the answers of ours; Kafka must hold the requests that ours holds."""
        for sent in [*self.open]:
            mine = self.ours.answers.get(sent.ours)
            if mine is None:
                done, _ = await asyncio.wait([sent.theirs], timeout=_HELD_SECONDS)
                assert not done, f"ours is held, Kafka said {sent.theirs.result()}"
                continue
            theirs = await sent.theirs
            self.open.remove(sent)
            self.learn(mine, theirs)
            assert self._seen(mine, is_ours=True) == self._seen(theirs, is_ours=False), sent.message

    def _seen(self, answer: Any, *, is_ours: bool) -> object:
        """Return what both must agree on."""
        names = self.theirs if is_ours else {}
        match answer:
            case ConsumerGroupHeartbeatResponse():
                if answer.error_code is not NONE:
                    return answer.error_code
                return answer.member_id, answer.member_epoch, self._places(answer.assignment)
            case JoinGroupResponse():
                return self.joined(answer, names)
            case SyncGroupResponse():
                named = (answer.protocol_type, answer.protocol_name)
                return answer.error_code, *named, self._parts(answer.assignment)
            case LeaveGroupResponse():
                parts = [
                    (names.get(m.member_id, m.member_id), m.group_instance_id, m.error_code)
                    for m in answer.members
                ]
                return answer.error_code, parts
            case _:
                return answer.error_code

    async def _compare_groups(self) -> None:
        machine = self.ours.machine
        if not isinstance(machine, ConsumerGroupMachine):
            request = DescribeGroupsRequest(groups=[self.group_id])
            described = (await self._call(DESCRIBE_GROUPS, 5, request)).groups[0]
            if not machine.is_empty:
                assert described.group_state == machine.state_name
            return
        asked = ConsumerGroupDescribeRequest(
            group_ids=[self.group_id], include_authorized_operations=False
        )
        theirs = (await self._call(CONSUMER_GROUP_DESCRIBE, 1, asked)).groups[0]
        mine = machine.description()
        assert (theirs.error_code, theirs.group_state) == (NONE, mine.state)
        assert theirs.group_epoch == mine.epoch
        assert {
            self.their_id(member.member.member_id): (
                member.member.instance_id,
                member.member.epoch,
                0 if member.member.classic else 1,
                self._which(at for part in member.assigned.values() for at in part),
                self._which(at for part in member.target.values() for at in part),
            )
            for member in mine.members
        } == {
            member.member_id: (
                member.instance_id,
                member.member_epoch,
                member.member_type,
                self._numbers(member.assignment),
                self._numbers(member.target_assignment),
            )
            for member in theirs.members
        }

    async def listed(self) -> tuple[str, str]:
        """Return the type of the group in Kafka, by ListGroups and an old DescribeGroups."""
        listed = await self._call(LIST_GROUPS, 5, ListGroupsRequest())
        [kind] = [group.group_type for group in listed.groups if group.group_id == self.group_id]
        request = DescribeGroupsRequest(groups=[self.group_id])
        described = (await self._call(DESCRIBE_GROUPS, 5, request)).groups[0]
        return kind, described.group_state

    async def commit(self, member_id: str, epoch: int, version: int) -> None:
        """Ask whether a member may commit an offset."""
        part = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=self.their_id(member_id),
            topics=[OffsetCommitRequestTopic(name=self.group_id, partitions=[part])],
        )
        answer = await self._call(OFFSET_COMMIT, version, request)
        mine = self.ours.gate.check_commit(member_id, epoch, None, version=version)
        theirs = answer.topics[0].partitions[0].error_code
        assert mine is theirs, (member_id, epoch, version, mine, theirs)

    async def fetch(self, member_id: str | None, epoch: int) -> None:
        """Ask whether a member may see offsets."""
        theirs = self.their_id(member_id) if member_id is not None else None
        asked = OffsetFetchRequestGroup(
            group_id=self.group_id, member_id=theirs, member_epoch=epoch, topics=None
        )
        answer = await self._call(OFFSET_FETCH, 9, OffsetFetchRequest(groups=[asked]))
        mine = self.ours.gate.check_fetch(member_id, epoch)
        assert answer.groups[0].error_code is mine, (member_id, epoch, mine)

    async def _call(self, api: Api[Any, Any], version: int, request: Message) -> Any:
        return await self.upstream.call(api, version, request, _ANSWER_MS)

    def _places(self, assignment: Any) -> object:
        return None if assignment is None else self._numbers(assignment)

    def _parts(self, assignment: bytes) -> object:
        if not assignment:
            return None
        parts = read_assignment(assignment).assigned_partitions
        return assignment[:2], self._which(at for part in parts for at in part.partitions)

    def _numbers(self, assignment: Assignment) -> object:
        parts = assignment.topic_partitions
        return self._which(at for part in parts for at in part.partitions)

    def _which(self, partitions: Iterable[int]) -> object:
        """Return which partitions they are, or how many where each may deal as it likes."""
        return sorted(partitions) if self.deals_alike else len(list(partitions))


@pytest.fixture(scope="module")
def kafka(own_kafka: None) -> Iterator[KafkaServer]:
    """One server that assigns at once; by itself it lets some time pass between assignments."""
    with KafkaServer(KafkaSettings(properties=_AT_ONCE)) as server:
        yield server


@pytest.fixture
async def both(kafka: KafkaServer) -> AsyncIterator[Both]:
    """Two groups without members."""
    async with asked_alike(kafka, BIDIRECTIONAL) as groups:
        yield groups


@asynccontextmanager
async def asked_alike(kafka: KafkaServer, settings: ConsumerSettings) -> AsyncIterator[Both]:
    """Ask a group of ours and one of Kafka's the same for the time of a block."""
    upstream = await connect("127.0.0.1", kafka.port())
    groups = Both(upstream, kafka.port(), settings)
    try:
        await groups.prepare()
        yield groups
    finally:
        await groups.close()


@pytest.mark.usefixtures("own_kafka")
@pytest.mark.kafka
@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
async def test_disabled_and_upgrade_policies_behave_like_kafka(
    policy: Literal["disabled", "upgrade"],
) -> None:
    properties = _AT_ONCE | {"group.consumer.migration.policy": policy}
    settings = ConsumerSettings(migration_policy=policy)
    with KafkaServer(KafkaSettings(properties=properties)) as kafka:
        async with asked_alike(kafka, settings) as both:
            old = both.classic(EAGER)
            await both.step(old, rounds=6)
            await both.step(both.consumer("new"))
            assert both.ours.kind == ("classic" if policy == "disabled" else "consumer")
        async with asked_alike(kafka, settings) as both:
            both.ours.machine = ConsumerGroupMachine.new(
                GROUP, settings, epoch=1
            )  # Kafka's first one is 2
            new, old = both.consumer("new"), both.classic(EAGER)
            await both.step(new, old, rounds=10)
            assert len(old.owned) == (0 if policy == "disabled" else 3)
            new.leave()
            await both.follow()
            assert both.ours.kind == "consumer"


@both_assignors
async def test_members_migrate_one_by_one_like_kafka(both: Both, assignor: str) -> None:
    old = both.classic(assignor)
    await both.step(old, rounds=6)
    assert len(old.owned) == _PARTITIONS
    new = both.consumer("new")
    await both.step(new)
    assert both.ours.kind == "consumer"
    assert await both.listed() == ("consumer", "Dead")
    await both.step(old, new, rounds=12)
    assert (len(old.owned), len(new.owned)) == (3, 3)
    old.leave()
    await both.follow()
    await both.step(new, rounds=3)
    assert len(new.owned) == _PARTITIONS

    again = both.classic(assignor)
    await both.step(again, new, rounds=12)
    assert (len(again.owned), len(new.owned)) == (3, 3)
    new.leave()
    await both.follow()
    assert both.ours.kind == "classic"
    assert await both.listed() == ("classic", "PreparingRebalance")
    await both.step(again, rounds=8)
    assert len(again.owned) == _PARTITIONS
    again.leave()
    await both.follow()


async def test_migration_of_waiting_members_matches_kafka(both: Both) -> None:
    both.deals_alike = False
    first, second = both.classic(EAGER), both.classic(EAGER)
    await both.step(first, rounds=6)
    await both.step(second, rounds=3)
    assert second.is_waiting
    new = both.consumer("new")
    await both.step(new)
    assert not second.is_waiting


async def test_migration_without_an_assignment_matches_kafka(both: Both) -> None:
    both.deals_alike = False
    old = both.classic(EAGER)
    await both.step(old, rounds=3)
    assert both.ours.machine.state_name == "CompletingRebalance"
    await both.step(both.consumer("new"))


async def test_migration_of_static_members_matches_kafka(both: Both) -> None:
    old = both.classic(EAGER, "one")
    await both.step(old, rounds=6)
    new = both.consumer("new", "two")
    await both.step(old, new, rounds=8)
    up = both.consumer("up", "one")
    await both.step(up)
    old.heartbeat()
    await both.follow()
    await both.step(up, new, rounds=4)
    assert both.consumer("other", "one").beat() is ErrorCode.UNRELEASED_INSTANCE_ID
    await both.follow()
    down = both.classic(EAGER, "two")
    await both.step(down, rounds=4)
    assert new.beat() is ErrorCode.FENCED_INSTANCE_ID
    await both.follow()
    again = both.classic(EAGER, "one")
    await both.step(again, rounds=4)
    assert both.ours.kind == "classic"


async def test_codes_of_a_mixed_group_match_kafka(both: Both) -> None:
    new, old = both.consumer("new"), both.classic(EAGER)
    await both.step(old, rounds=6)
    await both.step(new, old, rounds=8)
    at = old.generation
    for member_id, generation in (("new", new.epoch), ("nobody", at), (old.member_id, at - 1)):
        stray = both.classic(EAGER)
        stray.member_id, stray.generation = member_id, generation
        stray.heartbeat()
        await both.follow()
    for member_id in ("new", "nobody"):
        stray = both.classic(EAGER)
        stray.member_id = member_id
        stray.leave()
        await both.follow()
    for member_id, epoch in itertools.product(("new", old.member_id, "nobody"), range(-1, at + 2)):
        for version in (2, 8, 9):
            await both.commit(member_id, epoch, version)
        await both.fetch(member_id, epoch)
    await both.commit("", -1, 8)
    await both.fetch(None, -1)
    await both.fetch("", -1)
    other = both.classic(COOPERATIVE)
    await both.step(other, rounds=2)
    assert other.last is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("protocol_type", "metadata"), [("connect", b"\0\0\0\0\0\0\0\0\0\0"), ("consumer", b"")]
)
async def test_groups_that_cannot_be_upgraded_match_kafka(
    both: Both, protocol_type: str, metadata: bytes
) -> None:
    both.ours.send(
        JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id="",
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        ),
        2,
    )
    await both.follow()
    new = both.consumer("new")
    await both.step(new)
    assert both.ours.kind == "classic"
    both.ours.beat(member_id="new", member_epoch=3)
    await both.follow()
