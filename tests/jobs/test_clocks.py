"""A job whose host has a wrong clock deletes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rookery import jobs
from rookery.clock import SystemClock
from rookery.cluster.events.brokerevents import BrokerBeat, BrokerRegistered
from rookery.cluster.replica import Replica
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.jobs.clocks import read_trusted_time
from rookery.log.origin import Handles
from rookery.testing.clock import ManualClock
from tests.direct.sinking import rows
from tests.jobs.world import contents, create, fill

_DAY_MS = 86_400_000
_SILENCE_MS = 3_000


class _Late:
    """This host's clock, off by so much."""

    def __init__(self, ahead_ms: int) -> None:
        self._clock = SystemClock()
        self._ahead_ms = ahead_ms
        self.monotonic_ms = self._clock.monotonic_ms
        self.boottime_ms = self._clock.boottime_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms


@asynccontextmanager
async def broker(place: ClusterAddress, ahead_ms: int, node_id: int = 1) -> AsyncIterator[Replica]:
    """Have a broker registered, whose clock is off by so much; it does not leave in order."""
    handles = Handles(place.origin())
    clock = ManualClock(SystemClock().now_ms() + ahead_ms)
    replica = Replica(handles.cluster_log, clock)
    await replica.open(follow=False)
    event = BrokerRegistered(process_id=bytes([node_id] * 16), node_id=node_id, host="h", port=1)
    await replica.register(event)
    try:
        yield replica
    finally:
        await replica.close()
        await handles.close()


async def beat(replica: Replica) -> None:
    """Send the broker's heartbeats repeatedly."""
    while True:
        await replica.propose([BrokerBeat()])
        await asyncio.sleep(0.02)


async def ask(place: ClusterAddress, silence_ms: int = _SILENCE_MS) -> int:
    async with DirectLog.open(place, "tests") as log:
        return await read_trusted_time(log, silence_ms)


@pytest.mark.parametrize("ahead_ms", [0, 9_000, -9_000])
async def test_clock_close_to_those_of_brokers_is_trusted(
    place: ClusterAddress, ahead_ms: int
) -> None:
    before = SystemClock().now_ms()
    async with broker(place, ahead_ms):
        assert before <= await ask(place) <= SystemClock().now_ms()


async def test_a_clock_far_ahead_of_live_brokers_is_refused(place: ClusterAddress) -> None:
    async with broker(place, -8 * _DAY_MS) as replica:
        beating = asyncio.create_task(beat(replica))
        with pytest.raises(ConfigError, match=r"seconds ahead of that of the brokers.*nothing was"):
            await ask(place)
        beating.cancel()


async def test_majority_of_brokers_decides(place: ClusterAddress) -> None:
    async with broker(place, _DAY_MS), broker(place, 0, 2), broker(place, 100, 3):
        assert await ask(place) <= SystemClock().now_ms()


async def test_old_timestamps_of_dead_brokers_are_ignored(place: ClusterAddress) -> None:
    before = SystemClock().now_ms()
    async with broker(place, -8 * _DAY_MS):
        pass
    # It is waited for in vain.
    assert await ask(place, silence_ms=300) >= before


async def test_idle_log_without_brokers_is_accepted(place: ClusterAddress) -> None:
    later = DirectLog(place, "tests", _Late(8 * _DAY_MS))  # type: ignore[arg-type] # plain ints
    await later.start()
    try:
        assert await read_trusted_time(later, _SILENCE_MS) > SystemClock().now_ms()
    finally:
        await later.close()


def test_clock_slower_than_the_brokers_deletes_nothing(place: ClusterAddress) -> None:
    create(place, "t", 1, retention_bytes="1000")
    create(place, "c", 1, cleanup_policy="compact")
    fill(place, "t", [rows(500, start) for start in range(0, 2_000, 500)])
    before = contents(place, "t")

    async def register() -> None:
        async with broker(place, 3_600_000):
            pass

    asyncio.run(register())

    with pytest.raises(ConfigError, match="behind that of the brokers"):
        jobs.expire(None, place, ["t"])
    with pytest.raises(ConfigError, match="behind that of the brokers"):
        jobs.compact(None, place, ["c"])  # type: ignore[arg-type] # it does not get that far
    assert contents(place, "t") == before


def test_clock_slower_than_the_last_entry_deletes_nothing(place: ClusterAddress) -> None:
    async def work() -> None:
        behind = DirectLog(place, "tests", _Late(-60_000))  # type: ignore[arg-type] # plain ints
        await behind.start()
        try:
            await read_trusted_time(behind, _SILENCE_MS)
        finally:
            await behind.close()

    with pytest.raises(ConfigError, match="behind the last entry of the cluster log"):
        asyncio.run(work())
