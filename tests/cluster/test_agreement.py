"""A change of rules is answered when all live brokers have applied it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from rookery.cluster.agreement import SecurityAgreement
from rookery.cluster.events.brokerevents import (
    BrokerBeat,
    BrokerExpired,
    BrokerRegistered,
    ClusterCreated,
)
from rookery.cluster.events.securityevents import AclRow, AclsCreated
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.testing.clock import ManualClock

RULE = AclRow(
    resource_type=2, pattern_type=3, resource_name="t", principal="User:a", host="*", operation=3,
    permission=3,
)  # fmt: skip
FOREVER_MS = 60_000
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


async def change(replica: Replica) -> None:
    await replica.propose([AclsCreated(rules=[RULE])])


async def test_a_change_is_awaited_until_the_other_broker_has_applied_it() -> None:
    async with two_replicas(other_follows=False) as (mine, other):
        agreement = SecurityAgreement(mine)
        SecurityAgreement(other)
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
        agreement = SecurityAgreement(mine)
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
        agreements = SecurityAgreement(mine), SecurityAgreement(other)
        await change(mine)
        first = await agreements[0].wait(FOREVER_MS)
        await change(other)
        second = await agreements[1].wait(FOREVER_MS)
    assert first
    assert second


async def test_an_expired_broker_is_not_awaited() -> None:
    async with two_replicas(other_follows=False) as (mine, other):
        agreement = SecurityAgreement(mine)
        await change(mine)
        waiting = asyncio.create_task(agreement.wait(FOREVER_MS))
        await mine.barrier()
        expiry = BrokerExpired(incarnation=other.incarnation, last_sequence=0)
        await mine.propose([expiry])
        is_reached = await waiting
    assert is_reached


async def test_a_change_without_other_brokers_needs_no_wait() -> None:
    replica = Replica(open_log(f"memory:agreement-{next(_names)}"), ManualClock())
    await replica.open()
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=3))
    await replica.register(BrokerRegistered(process_id=bytes(16), node_id=1, host="h", port=1))
    agreement = SecurityAgreement(replica)
    await change(replica)
    is_reached = await agreement.wait(0)
    await replica.close()
    assert is_reached
