"""A change of rules is answered when no broker decides without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Self

import pytest

from rookery.cluster.agreement import SecurityAgreement
from rookery.cluster.events.brokerevents import (
    BrokerBeat,
    BrokerExpired,
    BrokerLeft,
    BrokerRegistered,
    ClusterCreated,
)
from rookery.cluster.events.securityevents import AclRow, AclsCreated
from rookery.cluster.member import ClusterMember
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.settings import MemberSettings
from rookery.cluster.state.brokers import LiveBroker
from rookery.testing.clock import ManualClock
from rookery.testing.cluster import FaultyLog
from rookery.testing.virtualtime import run_virtually
from rookery.wire.message import Message

RULE = AclRow(
    resource_type=2, pattern_type=3, resource_name="t", principal="User:a", host="*", operation=3,
    permission=3,
)  # fmt: skip
FOREVER_MS = 60_000
LEASE_MS = 20_000
_names = count(1)


@asynccontextmanager
async def two_replicas(*, other_follows: bool) -> AsyncIterator[tuple[Replica, Replica]]:
    url = f"memory:agreement-{next(_names)}"
    replicas = [Replica(open_log(url), ManualClock()) for _ in range(2)]
    for node_id, replica in enumerate(replicas, 1):
        await replica.open(follow=node_id == 1 or other_follows)
        await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=3))
        event = BrokerRegistered(process_id=bytes(16), node_id=node_id, host="h", port=node_id)
        await replica.register(event)
    await replicas[0].barrier()
    yield replicas[0], replicas[1]
    for replica in replicas:
        await replica.close()


def agree(replica: Replica) -> SecurityAgreement:
    return SecurityAgreement(replica, ManualClock(), LEASE_MS)


async def change(replica: Replica) -> None:
    await replica.propose([AclsCreated(rules=[RULE])])


async def test_a_change_is_awaited_until_the_other_broker_has_applied_it() -> None:
    async with two_replicas(other_follows=False) as (mine, other):
        agreement = agree(mine)
        agree(other)
        await change(mine)
        waiting = asyncio.create_task(agreement.wait(FOREVER_MS))
        await mine.barrier()
        was_done = waiting.done()
        await other.barrier()
        is_reached = await waiting
        rules = list(other.state.security.acls)
    assert not was_done
    assert is_reached
    assert rules


async def test_an_entry_from_before_the_change_does_not_count() -> None:
    async with two_replicas(other_follows=False) as (mine, other):
        agreement = agree(mine)
        await change(mine)
        # The writer has not read the change when it writes this entry.
        await other.propose([BrokerBeat()])
        await mine.barrier()
        early = await agreement.wait(0)
        await other.propose([BrokerBeat()])
        late = await agreement.wait(FOREVER_MS)
    assert (early, late) == (False, True)


async def test_a_broker_that_follows_acknowledges_at_once() -> None:
    async with two_replicas(other_follows=True) as (mine, other):
        agreements = agree(mine), agree(other)
        await change(mine)
        first = await agreements[0].wait(FOREVER_MS)
        await change(other)
        second = await agreements[1].wait(FOREVER_MS)
    assert first
    assert second


async def test_a_change_without_other_brokers_needs_no_wait() -> None:
    replica = Replica(open_log(f"memory:agreement-{next(_names)}"), ManualClock())
    await replica.open()
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=3))
    await replica.register(BrokerRegistered(process_id=bytes(16), node_id=1, host="h", port=1))
    agreement = agree(replica)
    await change(replica)
    is_reached = await agreement.wait(0)
    await replica.close()
    assert is_reached


# Brokers that are silent.


async def expire(replica: Replica, incarnation: int) -> None:
    """Expire a broker at once, as if its address had refused a connection."""
    await replica.barrier()
    last = replica.state.brokers.sequences[incarnation]
    [outcome] = await replica.propose([BrokerExpired(incarnation=incarnation, last_sequence=last)])
    assert not outcome.error


class Pair:
    """Two brokers in virtual time: this one, and one that can be cut off from the cluster log."""

    def __init__(self, clock: ManualClock, *, has_ended: bool = False) -> None:
        self.url = f"memory:agreement-{next(_names)}"
        self.clock = clock
        self.mine = Replica(open_log(self.url), clock)
        self.log = FaultyLog(open_log(self.url))
        self.other = Replica(self.log, clock)
        self.members = [self._member(self.mine, 1), self._member(self.other, 2)]

        def judge(broker: LiveBroker) -> bool:
            return has_ended and broker.node_id == len(self.members)

        self.agreement = SecurityAgreement(self.mine, clock, LEASE_MS, judge)
        SecurityAgreement(self.other, clock, LEASE_MS)

    def _member(self, replica: Replica, node_id: int) -> ClusterMember:
        async def registration() -> Message:
            return BrokerRegistered(process_id=bytes(16), node_id=node_id, host="h", port=node_id)

        settings = MemberSettings(beat_ms=1000, lease_ms=LEASE_MS)
        return ClusterMember(replica, self.clock, registration, settings)

    async def __aenter__(self) -> Self:
        for replica, member in zip((self.mine, self.other), self.members, strict=True):
            await replica.open()
            await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=3))
            await member.join()
        return self

    async def cut_off(self) -> None:
        """Cut the other broker off between two beats."""
        await asyncio.sleep(3.3)
        self.log.cut()

    async def __aexit__(self, *_: object) -> None:
        for replica, member in zip((self.mine, self.other), self.members, strict=True):
            await member.close()
            await replica.close()


@pytest.mark.parametrize("is_expired_first", [False, True])
def test_an_expired_broker_is_awaited_until_its_lease_has_ended(*, is_expired_first: bool) -> None:
    async def scenario() -> None:
        async with Pair(clock) as pair:
            await pair.cut_off()
            if is_expired_first:
                await expire(pair.mine, pair.other.incarnation)
            await change(pair.mine)
            waiting = asyncio.create_task(pair.agreement.wait(FOREVER_MS))
            await asyncio.sleep(1)
            if not is_expired_first:
                await expire(pair.mine, pair.other.incarnation)
            leases = []
            while not waiting.done():
                leases.append(pair.members[1].has_lease)
                await asyncio.sleep(0.1)
            # Without a reason to wait any longer, it ends with the lease.
            assert leases.count(True) * 100 > LEASE_MS - 5_000
            assert leases.count(False) * 100 < 1_000
            assert not pair.members[1].has_lease
            assert waiting.result()

    clock = ManualClock()
    run_virtually(scenario(), clock)


def test_a_broker_that_was_expired_before_the_start_is_awaited() -> None:
    async def scenario() -> None:
        async with Pair(clock) as pair:
            await pair.cut_off()
            await expire(pair.mine, pair.other.incarnation)
            late = Replica(open_log(pair.url), clock)
            agreement = SecurityAgreement(late, clock, LEASE_MS)
            await late.open()
            event = BrokerRegistered(process_id=bytes(16), node_id=3, host="h", port=3)
            await late.register(event)
            await change(late)
            leases = [pair.members[1].has_lease]
            assert await agreement.wait(FOREVER_MS)
            leases.append(pair.members[1].has_lease)
            assert leases == [True, False]
            await late.close()

    clock = ManualClock()
    run_virtually(scenario(), clock)


@pytest.mark.parametrize("has_left", [False, True])
def test_a_broker_that_has_ended_or_left_is_not_awaited(*, has_left: bool) -> None:
    async def scenario() -> None:
        async with Pair(clock, has_ended=not has_left) as pair:
            if has_left:
                await pair.other.propose([BrokerLeft()])
            await pair.cut_off()
            if not has_left:
                await expire(pair.mine, pair.other.incarnation)
            await change(pair.mine)
            assert await pair.agreement.wait(100)

    clock = ManualClock()
    run_virtually(scenario(), clock)


def test_a_broker_that_joins_again_does_not_await_itself() -> None:
    async def scenario() -> None:
        async with Pair(clock) as pair:
            await pair.mine.propose([BrokerBeat()])
            before = pair.mine.incarnation
            await expire(pair.other, before)
            await pair.mine.barrier()
            await pair.members[0].join()
            assert pair.mine.incarnation != before
            await change(pair.mine)
            assert await pair.agreement.wait(1000)

    clock = ManualClock()
    run_virtually(scenario(), clock)
