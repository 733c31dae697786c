"""Expired brokers: only those whose expiry counts are reported."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from rookery.broker.process.membership import Membership
from rookery.broker.settings import BrokerSettings
from rookery.cluster.events.brokerevents import (
    BrokerBeat,
    BrokerLeft,
    BrokerRegistered,
    ClusterCreated,
    ProcessRegistered,
)
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.brokers import LiveBroker
from rookery.net.reach import Reach
from rookery.service.periodic import PeriodicTasks
from rookery.testing.clock import ManualClock
from rookery.testing.cluster import FaultyLog
from rookery.testing.virtualtime import run_virtually
from rookery.testing.wait import wait_until_async

SESSION_MS = 10_000
BEAT_MS = 1_000
_names = count(1)


async def unknown(_: LiveBroker) -> Reach:
    return Reach.UNKNOWN


async def join(url: str, node_id: int, clock: ManualClock) -> tuple[Replica, FaultyLog]:
    log = FaultyLog(open_log(url))
    replica = Replica(log, clock)
    await replica.open()
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
    event = BrokerRegistered(process_id=bytes(16), node_id=node_id, host="h", port=node_id)
    await replica.register(event)
    return replica, log


@pytest.mark.parametrize("beats", [False, True])
async def test_broker_that_beats_before_its_expiry_is_applied_is_not_reported(
    caplog: pytest.LogCaptureFixture, *, beats: bool
) -> None:
    clock, url = ManualClock(), f"memory:membership-{next(_names)}"
    observer, log = await join(url, 1, clock)
    other, _ = await join(url, 2, clock)
    settings = BrokerSettings(session_timeout_ms=SESSION_MS)
    membership = Membership(observer, clock, settings, unknown)
    await observer.barrier()
    assert await membership.look() == []
    clock.advance(SESSION_MS)
    log.hold()
    arrived = log.arrived
    looking = asyncio.create_task(membership.look())
    while log.arrived == arrived:  # noqa: ASYNC110 (nothing tells when)
        await asyncio.sleep(0)
    if beats:
        await other.propose([BrokerBeat()])
    log.let_through()

    expired = await looking

    assert expired == ([] if beats else [other.incarnation])
    assert ("is expired" in caplog.text) is not beats
    for replica in (observer, other):
        await replica.close()


async def test_clocks_of_departed_processes_are_removed() -> None:
    clock, url = ManualClock(), f"memory:membership-{next(_names)}"
    own, _ = await join(url, 1, clock)
    other = Replica(open_log(url), clock)
    await other.open()
    membership = Membership(own, clock, BrokerSettings(session_timeout_ms=SESSION_MS), unknown)
    for number in range(20):
        await other.register(ProcessRegistered(process_id=bytes([number]) * 16, purpose="test"))
        await other.propose([BrokerBeat()])
        await other.propose([BrokerLeft()])
    await other.register(ProcessRegistered(process_id=bytes(16), purpose="test"))
    await other.propose([BrokerBeat()])
    await own.barrier()
    await membership.look()
    assert list(membership._skews) == [other.incarnation]
    for replica in (own, other):
        await replica.close()


async def silent_broker(
    result: Reach, beats: float
) -> tuple[Membership, Replica, Replica, list[int]]:
    """Return an observer of a broker that has been silent for this many beats."""
    clock, url = ManualClock(), f"memory:membership-{next(_names)}"
    observer, _ = await join(url, 1, clock)
    other, _ = await join(url, 2, clock)
    tried: list[int] = []

    async def reach(broker: LiveBroker) -> Reach:
        tried.append(broker.node_id)
        return result

    settings = BrokerSettings(session_timeout_ms=SESSION_MS, beat_interval_ms=BEAT_MS)
    membership = Membership(observer, clock, settings, reach)
    await observer.barrier()
    assert await membership.look() == []
    clock.advance(int(beats * BEAT_MS))
    return membership, observer, other, tried


@pytest.mark.parametrize(
    ("result", "beats", "is_expired"),
    [
        (Reach.REFUSED, 2.4, False),
        (Reach.REFUSED, 2.5, True),
        (Reach.SILENT, 4.9, False),
        (Reach.SILENT, 5, True),
        (Reach.UNKNOWN, 9.9, False),
        (Reach.OPEN, 9.9, False),
        (Reach.OPEN, 10, True),
    ],
)
async def test_silent_broker_is_expired_early_only_if_its_port_is_closed(
    result: Reach, beats: float, *, is_expired: bool
) -> None:
    membership, observer, other, tried = await silent_broker(result, beats)
    expired = await membership.look()
    assert expired == ([other.incarnation] if is_expired else [])
    # A broker that beats is not tried, nor is one whose session is over.
    assert tried == ([2] if 2.5 <= beats < 10 else [])
    for replica in (observer, other):
        await replica.close()


async def test_observer_that_was_paused_does_not_expire_active_brokers() -> None:
    membership, observer, other, tried = await silent_broker(Reach.REFUSED, 30)
    await other.propose([BrokerBeat()])
    assert await membership.look() == []
    assert not tried
    for replica in (observer, other):
        await replica.close()


async def expire_dead_broker(
    result: Reach, seconds: float, kill_ms: int, clock: ManualClock
) -> int:
    """Return how long after its death a broker is expired, with the default settings.

    Args:
        result: what an attempt to reach the dead broker ends with.
        seconds: how long such an attempt takes.
        kill_ms: when the broker dies after one of its beats.
        clock: moves along with the loop.
    """
    settings, url = BrokerSettings(), f"memory:membership-{next(_names)}"
    observer, _ = await join(url, 1, clock)
    other, _ = await join(url, 2, clock)

    async def reach(_: LiveBroker) -> Reach:
        await asyncio.sleep(seconds)
        return result

    async def beat() -> None:
        while True:
            await other.propose([BrokerBeat()])
            await asyncio.sleep(settings.member().beat_ms / 1000)

    membership, tasks = Membership(observer, clock, settings, reach), PeriodicTasks()
    tasks.every(membership.look_ms, "expiry", membership.look)
    beating = asyncio.create_task(beat())
    await asyncio.sleep(60 + kill_ms / 1000)
    assert other.incarnation in observer.state.brokers.sequences
    beating.cancel()
    died_ms = clock.monotonic_ms()
    live = observer.state.brokers.sequences
    await wait_until_async(lambda: other.incarnation not in live, "the expiry")
    expired_ms = clock.monotonic_ms()
    await tasks.stop()
    for replica in (observer, other):
        await replica.close()
    return expired_ms - died_ms


# A client finds the next broker within two seconds, so a killed one costs it six at most.
@pytest.mark.parametrize(
    ("result", "seconds", "most_ms"),
    [
        (Reach.REFUSED, 0, 4_000),
        # A proxy accepts a connection first.
        (Reach.REFUSED, 0.3, 4_000),
        # The whole host is gone.
        (Reach.SILENT, 1, 7_000),
    ],
)
@pytest.mark.parametrize("kill_ms", [1, 250, 499, 501, 750, 999])
def test_dead_broker_is_expired_within_seconds_by_default(
    result: Reach, seconds: float, most_ms: int, kill_ms: int
) -> None:
    clock = ManualClock()

    passed_ms = run_virtually(expire_dead_broker(result, seconds, kill_ms, clock), clock)

    assert passed_ms <= most_ms
