from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.testing.clock import ManualClock, SeededRandom


def test_the_system_clock_tells_wall_time() -> None:
    clock: Clock = SystemClock()

    before, now, after = time.time_ns(), clock.now_ms(), time.time_ns()

    assert before // 1_000_000 <= now <= after // 1_000_000


def test_the_system_clock_never_goes_back() -> None:
    clock: Clock = SystemClock()

    readings = [clock.monotonic_ms() for _ in range(1000)]
    boottimes = [clock.boottime_ms() for _ in range(1000)]

    assert readings == sorted(readings)
    assert boottimes == sorted(boottimes)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long it is up")
def test_boot_time_counts_what_the_machine_slept_through() -> None:
    clock: Clock = SystemClock()

    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    now = clock.boottime_ms()
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    assert before <= now <= after


def test_the_manual_clock_moves_both_when_time_passes() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=10)

    clock.advance(250)

    assert (clock.now_ms(), clock.monotonic_ms()) == (5_250, 260)


def test_a_manual_clock_that_sleeps_stops_its_monotonic_time_only() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=10)
    booted = clock.boottime_ms()

    clock.suspend(250)

    assert (clock.now_ms(), clock.monotonic_ms()) == (5_250, 10)
    assert clock.boottime_ms() == booted + 250


def test_setting_the_wall_clock_is_not_time_passing() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=10)

    clock.set_wall(1_000)

    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 10)


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)


@pytest.mark.parametrize("source", [SystemRandom(), SeededRandom(7)])
def test_tokens_have_the_size_asked_for_and_differ(source: Random) -> None:
    tokens = {source.token(16) for _ in range(100)}

    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {16}


@pytest.mark.parametrize("source", [SystemRandom(), SeededRandom(7)])
@given(value=st.floats(0, 1e6), spread=st.floats(0, 1))
def test_jitter_stays_within_its_spread(source: Random, value: float, spread: float) -> None:
    moved = source.jitter(value, spread)

    assert value * (1 - spread) * 0.999_999 <= moved <= value * (1 + spread) * 1.000_001


def test_jitter_does_move() -> None:
    assert len({SystemRandom().jitter(100.0) for _ in range(20)}) > 1


def test_a_seed_repeats() -> None:
    assert SeededRandom(3).token(32) == SeededRandom(3).token(32) != SeededRandom(4).token(32)
