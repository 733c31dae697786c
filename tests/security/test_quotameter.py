"""Measured rates, and the resulting pauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.security.quotameter import SAMPLES, WINDOW_MS, RateMeter, TokenBucket

START = 1_000_000


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        # At first, the time of ten idle windows counts: 10 s times the limit are free.
        ([(0, 1_000.0)], [0]),
        ([(0, 1_001.0)], [10]),
        ([(0, 2_000.0)], [10_000]),
        ([(0, 1_000.0), (500, 100.0)], [0, 500]),
        ([(0, 1_000.0), (10_999, 0.0)], [0, 0]),
        ([(0, 100_000.0), (11_000, 0.0)], [990_000, 0]),
        ([(0, 100_000.0), (10_999, 0.0)], [990_000, 989_001]),
    ],
)
def test_a_rate_above_the_limit_is_throttled(
    amounts: list[tuple[int, float]], expected: list[int]
) -> None:
    meter = RateMeter()

    assert [meter.record(amount, START + at, 100.0) for at, amount in amounts] == expected


def test_a_pause_is_bounded() -> None:
    assert RateMeter(max_throttle_ms=1_000).record(1e9, START, 1.0) == 1_000


def test_an_amount_that_is_taken_back_does_not_count() -> None:
    meter = RateMeter()
    meter.add(5_000.0, START)
    meter.add(-5_000.0, START)

    assert meter.record(1_000.0, START, 100.0) == 0
    assert meter.rate(START) == 100.0


def test_a_meter_knows_when_it_was_used() -> None:
    meter = RateMeter()
    assert meter.last_ms is None
    assert meter.rate(START) == 0.0

    meter.add(1.0, START)
    meter.add(1.0, START + 5_000)

    assert meter.last_ms == START + 5_000


steps = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 5_000)), max_size=40)


@given(steps, st.integers(1, 1_000))
def test_a_client_that_pauses_as_requested_stays_below_a_multiple_of_its_quota(
    script: list[tuple[int, int]], limit: int
) -> None:
    meter = RateMeter()
    # Kafka's formula does not keep the quota itself: a pause that is longer than all samples gives
    # back the credit for idle windows. Per pause p, at most limit * (12 s + p) can be used, and
    # p or 11 s pass until the next samples begin.
    factor = 2.2
    now, total = START, 0
    for pause, amount in script:
        now += pause + meter.record(amount, now, limit)
        total += amount
        assert total <= limit * (factor * (now - START) / 1_000 + 2 * (SAMPLES + 1)) + len(script)


@given(steps, st.integers(1, 1_000))
def test_no_use_means_no_pause(script: list[tuple[int, int]], limit: int) -> None:
    meter = RateMeter()
    now = START
    for pause, amount in script:
        now += pause
        meter.record(amount, now, limit)
    now += SAMPLES * WINDOW_MS

    assert meter.record(0.0, now, limit) == 0
    assert meter.rate(now) == 0.0


def test_a_bucket_begins_full() -> None:
    bucket = TokenBucket()

    assert bucket.record(110.0, START, 10.0) == 0
    assert bucket.record(1.0, START, 10.0) == 100
    assert bucket.last_ms == START


def test_an_overdrawn_bucket_is_refilled_by_time() -> None:
    bucket = TokenBucket()

    assert bucket.record_strictly(170.0, START, 10.0) == 0
    assert bucket.record_strictly(1.0, START, 10.0) == 6_000
    assert bucket.record_strictly(1.0, START + 5_500, 10.0) == 500
    assert bucket.record_strictly(1.0, START + 6_000, 10.0) == 0
    assert bucket.record_strictly(1.0, START + 6_000, 10.0) == 100


def test_a_lower_limit_shrinks_the_bucket() -> None:
    bucket = TokenBucket()
    assert bucket.record(0.0, START, 1_000.0) == 0

    assert bucket.record(12.0, START, 1.0) == 1_000


@given(steps, st.integers(1, 100))
def test_strict_mutations_stay_within_their_quota(
    script: list[tuple[int, int]], limit: int
) -> None:
    bucket = TokenBucket()
    now, total, largest = START, 0, 0
    for pause, amount in script:
        now += pause
        if bucket.record_strictly(amount, now, limit) == 0:
            total += amount
            largest = max(largest, amount)
        assert total <= limit * (SAMPLES + (now - START) / 1_000) + largest + 1e-6
