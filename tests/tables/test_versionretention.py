"""Which versions of a table are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.clock import Time
from rookery.tables.port import UpkeepPolicy
from rookery.tables.versionretention import superfluous

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOW = Time(1_000 * DAY)


def kept(times: list[int], policy: UpkeepPolicy) -> list[int]:
    gone = set(superfluous(times, policy, NOW))
    return [time for place, time in enumerate(times) if place not in gone]


def test_one_commit_per_second_for_a_week_leaves_few_hundred_snapshots() -> None:
    times = list(range(NOW - 9 * DAY, NOW, 1000))
    times_kept = kept(times, UpkeepPolicy())

    assert times_kept[0] >= NOW - 7 * DAY
    assert [time for time in times_kept if time >= NOW - 10 * MINUTE] == times[-600:]
    ages = [(NOW - time) // MINUTE for time in times_kept]
    assert len([age for age in ages if 10 <= age < 60]) <= 51
    assert len([age for age in ages if age >= 60]) <= 7 * 24 + 1


def test_no_snapshot_is_removed_within_the_keep_every_period() -> None:
    times = list(range(NOW - DAY, NOW, MINUTE // 2))
    assert kept(times, UpkeepPolicy(keep_every_ms=7 * DAY)) == times


def test_newest_snapshots_are_kept_whatever_their_age() -> None:
    times = [NOW - 30 * DAY + number for number in range(9)]
    assert kept(times, UpkeepPolicy()) == times[-5:]
    assert kept(times, UpkeepPolicy(keep_versions=0)) == times[-1:]


@given(st.lists(st.integers(NOW - 10 * DAY, NOW), max_size=200).map(sorted))
def test_kept_snapshots_cover_every_time_in_the_retention(times: list[int]) -> None:
    policy = UpkeepPolicy()
    times_kept = kept(times, policy)
    assert kept(times_kept, policy) == times_kept  # a second round finds nothing to do
    for time in times:
        if time >= NOW - policy.keep_ms:
            step = HOUR if time < NOW - HOUR else MINUTE
            assert any(0 <= other - time <= step for other in times_kept)
