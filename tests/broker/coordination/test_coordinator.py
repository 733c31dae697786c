"""A coordinator of keys other than groups: partitions of a share group, each with one owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest

from rookery.broker.coordination.coordinator import Coordinator
from rookery.broker.coordination.machine import Effect, Event, MachineRequest, Persist, Reply, Tick
from rookery.broker.coordination.seats import HeldRequest, Seat
from rookery.cluster.entry import EVENTS, Entry
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import coordinator_of
from rookery.cluster.state.outcome import EntryOutcome, Outcome
from rookery.cluster.state.state import State
from rookery.errors import ApiError, ErrorCode
from rookery.testing.clock import ManualClock
from rookery.wire.message import GroupId, Message, PartitionId, TopicId, i32, i64
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse

TOPIC = bytes(range(16))
LOCK_MS = 2_000


class SharePartition(NamedTuple):
    """The keys of this test."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareClaimed(Message, key=201, versions=range(1), flexible=0):
    """A broker becomes the owner of a share partition, in a new epoch."""

    group_id: GroupId
    topic_id: TopicId
    partition: PartitionId


class ShareStored(Message, key=202, versions=range(1), flexible=0):
    """The new state of a share partition; void but from its owner."""

    group_id: GroupId
    topic_id: TopicId
    partition: PartitionId
    epoch: i32
    version: i64
    acknowledged: i64


class ShareState:
    """A share partition as all brokers know it."""

    def __init__(self) -> None:
        self.owner = self.epoch = self.version = self.acknowledged = 0

    def is_led_by(self, incarnation: int, epoch: int) -> bool:
        return (self.owner, self.epoch) == (incarnation, epoch)


Shares = dict[SharePartition, ShareState]


def shares_of(state: State) -> Shares:
    shares: Shares = vars(state).setdefault("shares", {})
    return shares


def key_of(event: ShareClaimed | ShareStored) -> SharePartition:
    return SharePartition(event.group_id, event.topic_id, event.partition)


def claimed(state: State, entry: Entry, event: ShareClaimed, done: EntryOutcome) -> Outcome:
    share = shares_of(state).setdefault(key_of(event), ShareState())
    share.owner = entry.incarnation
    share.epoch += 1
    done.claims_changed.append(key_of(event))
    return Outcome(ErrorCode.NONE, share.epoch)


def stored(state: State, entry: Entry, event: ShareStored, _done: EntryOutcome) -> Outcome:
    share = shares_of(state)[key_of(event)]
    is_current = share.version == event.version
    if not is_current or not share.is_led_by(entry.incarnation, event.epoch):
        return Outcome(ErrorCode.NOT_COORDINATOR)
    share.acknowledged = event.acknowledged
    share.version += 1
    return Outcome(ErrorCode.NONE, share.version)


class ShareMachine:
    """Counts acknowledgements: generation 0 looks, 1 locks for a while, 2 acknowledges."""

    def __init__(self, acknowledged: int) -> None:
        self.acknowledged = acknowledged
        self.deadline_ms: int | None = None
        self.expired = 0
        self.is_broken = False

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        if self.is_broken:
            raise ZeroDivisionError
        if isinstance(event, Tick):
            self.deadline_ms = None
            self.expired += 1
        if not isinstance(event, MachineRequest) or not isinstance(event.message, HeartbeatRequest):
            return []
        answer = Reply(event.token, HeartbeatResponse(error_code=ErrorCode.NONE))
        if event.message.generation_id == 1:
            self.deadline_ms = now_ms + LOCK_MS
        if event.message.generation_id < 2:
            return [answer]
        self.acknowledged += 1
        return [Persist(str(self.acknowledged).encode()), answer]


class ShareSubject:
    """Share partitions for a coordinator."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.problems: list[str] = []

    def is_ours(self, key: SharePartition) -> bool:
        brokers = self._replica.state.brokers
        own = brokers.of(self._replica.incarnation)
        return own is not None and own.node_id == coordinator_of(key.group_id, brokers.nodes)

    def find(self, key: SharePartition) -> ShareState | None:
        return shares_of(self._replica.state).get(key)

    def claim(self, key: SharePartition) -> Message:
        return ShareClaimed(**key._asdict())

    def load(self, key: SharePartition, now_ms: int) -> ShareMachine:
        share = self.find(key)
        return ShareMachine(0 if share is None else share.acknowledged)

    def on(
        self, key: SharePartition, machine: ShareMachine, event: Event, now_ms: int
    ) -> tuple[ShareMachine, list[Effect]]:
        return machine, machine.on(event, now_ms)

    def events(
        self,
        seat: Seat[SharePartition, ShareMachine],
        machine: ShareMachine,
        persists: Sequence[Persist],
    ) -> list[Message]:
        return [
            ShareStored(
                **seat.key._asdict(),
                epoch=seat.epoch,
                version=seat.version,
                acknowledged=int(persists[-1].body),
            )
        ]

    def report(self, key: SharePartition, problem: str, error: Exception) -> None:
        self.problems.append(f"{key.partition} {problem}: {error!r}")


class Site:
    """One broker's share partitions."""

    def __init__(self, replica: Replica, clock: ManualClock) -> None:
        self.replica, self.clock = replica, clock
        self.subject = ShareSubject(replica)
        self.coordinator = Coordinator(replica, clock, self.subject)

    async def ask(self, key: SharePartition, step: int, *, creates: bool = False) -> ErrorCode:
        message = HeartbeatRequest(group_id=key.group_id, generation_id=step, member_id="m")
        request = MachineRequest(HeldRequest(HEARTBEAT, message), message, 3, "client", "/host", "")
        answer: Any = self.coordinator.ask(key, request, lambda _: lambda: None, creates=creates)
        code: ErrorCode = (await answer if asyncio.isfuture(answer) else answer).error_code
        return code

    async def machine(self, key: SharePartition) -> ShareMachine:
        machine = await self.coordinator.run(key, lambda seat: seat.machine)
        assert machine is not None
        return machine


Open = Callable[[int], Awaitable[Site]]


@pytest.fixture
async def sites(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Open]:
    """Opens brokers of one cluster, whose log knows the events of share partitions."""
    for event, handle in ((ShareClaimed, claimed), (ShareStored, stored)):
        assert event.KEY is not None
        monkeypatch.setitem(EVENTS, event.KEY, event)
        monkeypatch.setitem(State._handlers, event, handle)
    opened: list[Site] = []

    async def begin(node_id: int) -> Site:
        clock = ManualClock()
        replica = Replica(open_log(f"memory:{request.node.nodeid}"), clock)
        site = Site(replica, clock)
        opened.append(site)
        await replica.open()
        await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
        event = BrokerRegistered(process_id=bytes(16), node_id=node_id, host="h", port=1)
        await replica.register(event)
        return site

    yield begin
    for site in opened:
        site.coordinator.stop()
        await site.replica.close()


KEY = SharePartition("g", TOPIC, 0)
OTHER = SharePartition("g", TOPIC, 1)


async def test_each_partition_is_claimed_and_persisted_separately(sites: Open) -> None:
    site = await sites(1)

    codes = await asyncio.gather(
        site.ask(KEY, 2, creates=True), site.ask(KEY, 2), site.ask(OTHER, 2, creates=True)
    )

    assert list(codes) == [ErrorCode.NONE] * 3
    shares = shares_of(site.replica.state)
    assert {key: share.acknowledged for key, share in shares.items()} == {KEY: 2, OTHER: 1}
    assert KEY in site.coordinator
    assert len(site.coordinator) == 2


async def test_reading_a_missing_partition_does_not_create_it(sites: Open) -> None:
    site = await sites(1)

    assert await site.ask(KEY, 0) is ErrorCode.NONE

    assert shares_of(site.replica.state) == {}
    assert len(site.coordinator) == 0


async def test_successor_continues_and_its_predecessor_is_fenced(sites: Open) -> None:
    before = await sites(1)
    await before.ask(KEY, 2, creates=True)
    successor = await sites(1)

    assert await successor.ask(KEY, 2) is ErrorCode.NONE

    assert (await successor.machine(KEY)).acknowledged == 2
    await before.replica.barrier()
    assert KEY not in before.coordinator
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await before.machine(KEY)


async def test_deadlines_are_kept_for_each_partition(sites: Open) -> None:
    site = await sites(1)
    for key in (KEY, OTHER):
        await site.ask(key, 2, creates=True)
    await site.ask(KEY, 1)

    for _ in range(LOCK_MS // 1000 + 1):
        site.clock.advance(1000)
        site.coordinator.timer.look()

    assert [(await site.machine(key)).expired for key in (KEY, OTHER)] == [1, 0]


async def test_failure_of_one_partition_does_not_affect_others(sites: Open) -> None:
    site = await sites(1)
    for key in (KEY, OTHER):
        await site.ask(key, 2, creates=True)

    (await site.machine(KEY)).is_broken = True

    assert await site.ask(KEY, 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await site.ask(OTHER, 0) is ErrorCode.NONE
    assert site.subject.problems == ["0 cannot be coordinated: ZeroDivisionError()"]
    # The next request loads what was persisted.
    assert (await site.machine(KEY)).acknowledged == 1


async def test_cancelled_lookup_of_a_key_does_not_cancel_others(
    sites: Open,
) -> None:
    site = await sites(1)
    dropped = asyncio.create_task(site.ask(KEY, 0))
    await asyncio.sleep(0)
    site.coordinator.drop_all()

    created = await site.ask(KEY, 2, creates=True)

    assert (await dropped, created) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)
    assert KEY in site.coordinator
    assert site.subject.problems == []
