"""The clocks and random sources: the system's, and those for tests."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.testing.clock import ManualClock, SeededRandom


def test_system_clock_returns_wall_time() -> None:
    clock: Clock = SystemClock()

    before, now, after = time.time_ns(), clock.now_ms(), time.time_ns()

    assert before // 1_000_000 <= now <= after // 1_000_000


def test_system_clock_is_monotonic() -> None:
    clock: Clock = SystemClock()

    readings = [clock.monotonic_ms() for _ in range(1000)]
    boottimes = [clock.boottime_ms() for _ in range(1000)]

    assert readings == sorted(readings)
    assert boottimes == sorted(boottimes)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a clock of the boot time")
def test_boot_time_includes_time_suspended() -> None:
    clock: Clock = SystemClock()

    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    now = clock.boottime_ms()
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    assert before <= now <= after


def test_manual_clock_advances_wall_and_monotonic_time() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=10)

    clock.advance(250)

    assert (clock.now_ms(), clock.monotonic_ms()) == (5_250, 260)


def test_suspended_manual_clock_stops_monotonic_time_only() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=10)
    booted = clock.boottime_ms()

    clock.suspend(250)

    assert (clock.now_ms(), clock.monotonic_ms()) == (5_250, 10)
    assert clock.boottime_ms() == booted + 250


def test_setting_the_wall_clock_does_not_advance_monotonic_time() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=10)

    clock.set_wall(1_000)

    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 10)


def test_manual_clock_refuses_negative_time() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)


@pytest.mark.parametrize("source", [SystemRandom(), SeededRandom(7)])
def test_tokens_have_the_requested_size_and_differ(source: Random) -> None:
    tokens = {source.token(16) for _ in range(100)}

    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {16}


@pytest.mark.parametrize("source", [SystemRandom(), SeededRandom(7)])
@given(value=st.floats(0, 1e6), spread=st.floats(0, 1))
def test_jitter_stays_within_its_spread(source: Random, value: float, spread: float) -> None:
    moved = source.jitter(value, spread)

    assert value * (1 - spread) * 0.999_999 <= moved <= value * (1 + spread) * 1.000_001


def test_jitter_varies() -> None:
    assert len({SystemRandom().jitter(100.0) for _ in range(20)}) > 1


def test_seeded_random_repeats() -> None:
    assert SeededRandom(3).token(32) == SeededRandom(3).token(32) != SeededRandom(4).token(32)
