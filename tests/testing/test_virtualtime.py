"""Time that passes when all tasks wait."""

from __future__ import annotations

import asyncio

import pytest

from rookery.clock import loop_seconds
from rookery.testing.clock import ManualClock
from rookery.testing.virtualtime import run_virtually


def test_timers_fire_in_order_without_a_wait() -> None:
    async def scenario() -> list[float]:
        ended: list[float] = []

        async def sleep(hours: float) -> None:
            await asyncio.sleep(hours * 3600)
            ended.append(loop_seconds() / 3600)

        await asyncio.gather(*map(sleep, (3, 1, 2)))
        return ended

    assert run_virtually(scenario()) == pytest.approx([1, 2, 3])


def test_clock_follows_virtual_time() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=10)

    async def scenario() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0.0015)

    run_virtually(scenario(), clock)

    assert clock.monotonic_ms() == pytest.approx(10 + 1_500, abs=1)
    assert clock.now_ms() == pytest.approx(5_000 + 1_500, abs=1)
