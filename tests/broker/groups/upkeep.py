"""A broker's groups without the broker: a replica, a coordinator, and a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from rookery.broker.coordination.machine import MachineRequest, Persist
from rookery.broker.groups.claims import GroupClaims
from rookery.broker.groups.classic import persistence
from rookery.broker.groups.classic.group import ClassicGroup, ClassicState
from rookery.broker.groups.classic.roster import RosterMember
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.groups.kind import GroupSettings
from rookery.broker.groups.kindtable import Kinds
from rookery.broker.groups.machine import GroupMachine
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.groupevents import GroupClaimed, GroupPersisted
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.testing.clock import ManualClock
from rookery.testing.cluster import FaultyLog
from rookery.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.groups.beats import Cluster

SESSION_MS = 45_000


class CountingKinds(Kinds):
    """Decodes groups, each in a given time, and knows how many turns of the loop it took."""

    def __init__(self, clock: ManualClock, decode_ms: int) -> None:
        super().__init__(GroupSettings())
        self._clock, self._decode_ms = clock, decode_ms
        self.loaded: list[str] = []
        self.run = self.longest_run = 0

    def load(
        self, group_id: str, kind: str, body: bytes, now_ms: int, changes: Sequence[bytes] = ()
    ) -> GroupMachine:
        self.loaded.append(group_id)
        self._clock.advance(self._decode_ms)
        self.run += 1
        self.longest_run = max(self.longest_run, self.run)
        return super().load(group_id, kind, body, now_ms, changes)

    async def count_turns(self) -> None:
        """Note every turn of the event loop."""
        while True:
            self.run = 0
            await asyncio.sleep(0)


class Site:
    """One broker's coordinator."""

    def __init__(self, log: FaultyLog, clock: ManualClock, decode_ms: int) -> None:
        self.log, self.clock = log, clock
        self.replica = replica = Replica(log, clock)
        self.kinds = CountingKinds(clock, decode_ms)
        self.coordinator = GroupCoordinator(replica, clock, self.kinds)
        self.claims = GroupClaims(self.coordinator, replica, clock)

    async def store(self, group_id: str, kind: str, body: bytes) -> None:
        """Keep a group as its coordinator does."""
        [claim] = await self.replica.propose([GroupClaimed(group_id=group_id)])
        event = GroupPersisted(
            group_id=group_id, epoch=claim.value, version=0, kind=kind, body=body
        )
        await self.replica.propose([event])

    def state_of(self, group_id: str) -> str:
        """Return a group's state as the next coordinator would find it."""
        group = self.replica.state.groups.by_id[group_id]
        kinds = Kinds(GroupSettings())
        machine = kinds.load(group_id, group.kind, group.body, 0, group.changes)
        return machine.state_name

    async def pass_time(self, ms: int, until: Callable[[], bool]) -> None:
        """Let time pass a second at a time, then wait for what comes of it."""
        for _ in range(ms // 1000):
            self.clock.advance(1000)
            self.coordinator.timer.look()
            await asyncio.sleep(0)
        while not until():  # noqa: ASYNC110 (nothing tells when)
            await asyncio.sleep(0)


@asynccontextmanager
async def site(
    url: str, node_id: int = 1, decode_ms: int = 0, level: int = FEATURE_LEVEL
) -> AsyncIterator[Site]:
    """Join a cluster; the same node id is the same broker, started again."""
    clock, log = ManualClock(), FaultyLog(open_log(url))
    made = Site(log, clock, decode_ms)
    replica = made.replica
    await replica.open()
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=level))
    event = BrokerRegistered(process_id=bytes(16), node_id=node_id, host="h", port=node_id)
    await replica.register(event)
    try:
        yield made
    finally:
        made.coordinator.stop()
        await replica.close()


def classic_body(group_id: str, members: int) -> bytes:
    """Return a stable classic group, or an empty one."""
    group = ClassicGroup(group_id, ClassicSettings())
    for number in range(members):
        protocols = {"range": bytes(40)}
        group.roster.add(
            RosterMember(f"m-{number}", None, "client", "/host", SESSION_MS, 300_000, protocols)
        )
    group.state = ClassicState.STABLE if members else ClassicState.EMPTY
    group.generation, group.protocol_type = 3, "consumer"
    group.protocol = "range" if members else None
    return persistence.keep(group)


def consumer_body(group_id: str) -> bytes:
    """Return a consumer group with one member."""
    message = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m-0",
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    request = MachineRequest(None, message, 1, "client", "/host", "", Cluster(t=4))
    effects = ConsumerGroupMachine.new(group_id, ConsumerSettings()).on(request, 0)
    [body] = [effect.body for effect in effects if isinstance(effect, Persist)]
    return body
