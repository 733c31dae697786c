"""The plan: work that is due, within its bounds, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.cluster.state.partition import BatchPosition, Partition, Row, RowKind
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import ConfigError
from rookery.formats.keys import STORED, object_id
from rookery.log.maintain.plan import Lag, RewritePlanner
from rookery.log.maintain.rewritejob import MergeJob, RowRange, SegmentJob
from rookery.log.settings import RewriteSettings

SETTINGS = RewriteSettings(
    merge_bytes=1000,
    merge_rows=50,
    merge_age_ms=100,
    max_age_ms=10_000,
    row_bytes=100,
    segment_bytes=500,
    segment_age_ms=1000,
    segment_min_bytes=50,
)
JOURNAL = object_id(3, 1)
FLUSHED = object_id(3, STORED)
MERGED = object_id(4, STORED)
ENTRY = -7


Short = tuple[str, int, int, int]


class Piece(NamedTuple):
    """A row to be."""

    object_id: int
    position: int
    size: int
    kind: int = 0


def a_state(*partitions: Iterable[Piece]) -> State:
    """Make a state with one topic; every row has two offsets."""
    state = State()
    topic = Topic(b"t" * 16, "t", 1)
    topic.grow(len(partitions), [1])
    state.topics.add(topic)
    for partition, pieces in zip(topic.partitions, partitions, strict=True):
        fill(partition, pieces)
    return state


def fill(partition: Partition, pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        place = BatchPosition(piece.object_id, piece.position, piece.size)
        # Rows are made by hand, so that those which lie together stay apart.
        partition.append(BatchPosition(1, -1, piece.size), 2, 5, is_append_time=False)
        last = len(partition.objects) - 1
        row = partition.row(last)
        partition.replace(
            range(last, last + 1),
            [Row(row.base_offset, row.end_offset, *place, row.max_timestamp, piece.kind)],
        )


def in_object(object_id: int, *sizes: int, kind: int = 0, at: int = 0) -> list[Piece]:
    """Make adjacent rows."""
    pieces = []
    for size in sizes:
        pieces.append(Piece(object_id, at, size, kind))
        at += size
    return pieces


def merged(number: int, *sizes: int) -> list[Piece]:
    return in_object(MERGED + number, *sizes, kind=RowKind.FINAL)


def ranges_of(jobs: Iterable[MergeJob | SegmentJob]) -> list[RowRange]:
    return [
        part for job in jobs for part in (job.ranges if isinstance(job, MergeJob) else [job.range])
    ]


def offsets(jobs: Iterable[MergeJob | SegmentJob]) -> list[Short]:
    """Tell a plan in short: kind, partition, first offset, end."""
    return [
        (job.kind, part.partition, part.base_offset, part.end_offset)
        for job in jobs
        for part in ranges_of([job])
    ]


def plan_at(
    state: State, *times: int, planner: RewritePlanner | None = None, before: int = 0
) -> list[Short]:
    """Plan at each of these times; return the last plan, in short."""
    planner = planner or RewritePlanner(SETTINGS)
    plans = [planner.plan(state, now, before_entry=before) for now in times]
    return offsets(plans[-1])


@pytest.mark.parametrize(
    "pieces",
    [in_object(JOURNAL, 10, 10), in_object(FLUSHED, 10, 10), in_object(ENTRY, 10, 10)],
)
def test_few_bytes_are_merged_when_they_are_old(pieces: list[Piece]) -> None:
    state = a_state(pieces)
    assert not plan_at(state, 0, 99)
    assert plan_at(state, 0, 100) == [("merge", 0, 0, 4)]


def test_many_bytes_are_merged_immediately_up_to_the_bound() -> None:
    state = a_state(*(in_object(FLUSHED, 100, at=100 * n) for n in range(12)))
    plan = plan_at(state, 0)
    assert plan == [("merge", n, 0, 2) for n in range(10)]


def test_oldest_rows_are_merged_first() -> None:
    state = a_state(
        in_object(FLUSHED + 2, 600),
        in_object(FLUSHED, 50, 50, 100),
        in_object(FLUSHED + 1, 300, 300),
    )
    # 600 and more are a segment of their own, so keep below it.
    planner = RewritePlanner(
        RewriteSettings(merge_bytes=500, merge_age_ms=100, segment_bytes=10_000)
    )
    assert plan_at(state, 0, planner=planner) == [("merge", 1, 0, 6), ("merge", 2, 0, 2)]


def test_partition_close_to_a_segment_is_not_merged_early() -> None:
    busy = in_object(FLUSHED, *[20] * 10)
    others = [in_object(FLUSHED, 90, at=200 + 90 * n) for n in range(12)]
    state = a_state(busy, *others)
    assert {short[1] for short in plan_at(state, 0)} == set(range(1, 12))
    # … but it is when it is old.
    assert plan_at(a_state(busy), 0, 100) == [("merge", 0, 0, 20)]


def test_last_row_of_the_active_journal_is_not_merged() -> None:
    first, second = in_object(JOURNAL, 10, 20), in_object(JOURNAL, 10, 10, at=30)
    state = a_state(first, second)
    planner = RewritePlanner(SETTINGS)
    assert not plan_at(state, 0, planner=planner)
    partition = state.topics.by_name["t"].partitions[1]
    fill(partition, in_object(JOURNAL, 5, at=50))
    assert not plan_at(state, 50, planner=planner)
    assert plan_at(state, 100, planner=planner) == [("merge", 0, 0, 4), ("merge", 1, 0, 4)]
    assert plan_at(state, 150, planner=planner) == [("merge", 0, 0, 4), ("merge", 1, 0, 6)]


def test_age_counts_from_the_arrival_of_each_row() -> None:
    planner = RewritePlanner(SETTINGS)
    planner.plan(a_state(in_object(FLUSHED, 10, 10)), 0)
    rest = a_state(in_object(FLUSHED, 10, at=10))
    planner.plan(rest, 90)  # the first row was retained away
    assert not plan_at(rest, 189, planner=planner)
    assert plan_at(rest, 190, planner=planner) == [("merge", 0, 0, 2)]


def test_a_range_has_no_more_rows_than_an_event_can_hold() -> None:
    planner = RewritePlanner(RewriteSettings(merge_age_ms=100))
    plan = plan_at(a_state(in_object(FLUSHED, *[1] * 2500)), 0, 100, planner=planner)
    assert plan == [("merge", 0, 0, 2000), ("merge", 0, 2000, 4000), ("merge", 0, 4000, 5000)]


def test_payloads_are_moved_out_of_entries_up_to_a_number() -> None:
    state = a_state(in_object(-7, 10), in_object(-9, 10))
    assert not plan_at(state, 0, before=6)
    # What else waits goes along.
    assert plan_at(state, 0, before=7) == [("merge", 0, 0, 2), ("merge", 1, 0, 2)]
    assert not plan_at(a_state(in_object(JOURNAL, 10)), 0, before=9)


def test_forced_payloads_take_precedence() -> None:
    state = a_state(in_object(FLUSHED, 240, 240, 240), in_object(-7, 240), in_object(-9, 240))
    settings = RewriteSettings(merge_bytes=300, merge_age_ms=100, segment_bytes=10_000)
    planner = RewritePlanner(settings)
    planner.plan(a_state(in_object(FLUSHED, 240, 240, 240), [], []), 0)
    plan = plan_at(state, 10, planner=planner, before=7)
    assert ("merge", 1, 0, 2) in plan
    assert ("merge", 2, 0, 2) not in plan


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (in_object(FLUSHED, *[100] * 5), [(0, 10)]),
        (in_object(FLUSHED, *[100] * 12), [(0, 10), (10, 20)]),
        (in_object(FLUSHED, *[90] * 6), [(0, 10)]),
        (in_object(FLUSHED, 700, 10), [(0, 2)]),
        (merged(0, 250, 250), [(0, 4)]),
        (merged(0, 499), []),
        # The last row in a journal may still grow.
        (in_object(JOURNAL, *[100] * 5), []),
        (in_object(JOURNAL, *[100] * 6), [(0, 10)]),
        # Existing segments divide the rest.
        ([*merged(0, 300), Piece(MERGED + 1, 0, 900, 6), *merged(2, 300)], []),
        ([Piece(MERGED + 1, 0, 900, 6), *merged(2, 300, 300)], [(2, 4)]),
        # Lost bytes take part in it.
        ([Piece(0, 0, 0), *merged(0, 300), Piece(0, 0, 0), *merged(1, 200)], [(0, 6)]),
    ],
)
def test_rows_of_segment_size_become_a_segment(
    pieces: list[Piece], expected: list[tuple[int, int]]
) -> None:
    state = a_state(pieces)
    jobs = [job for job in RewritePlanner(SETTINGS).plan(state, 0) if isinstance(job, SegmentJob)]
    assert [(job.range.base_offset, job.range.end_offset) for job in jobs] == expected


def test_old_rows_become_a_segment_above_a_minimum_size() -> None:
    state = a_state(merged(0, 30, 30), merged(1, 40), [Piece(0, 0, 0), *merged(2, 60)])
    assert not plan_at(state, 0, 999)
    assert plan_at(state, 0, 1000) == [("segment", 0, 0, 4), ("segment", 2, 0, 4)]


def test_few_rows_become_a_segment_after_segment_ms() -> None:
    state = a_state(merged(0, 1))
    [time_ms] = {*next(iter(state.topics)).partitions[0].times}

    def planned(*moments: tuple[int, int]) -> list[Short]:
        planner = RewritePlanner(SETTINGS, segment_ms=lambda _: 5_000)
        plans = [planner.plan(state, now, wall_ms=time_ms + age) for now, age in moments]
        return offsets(plans[-1])

    assert not planned((0, 0), (999, 9_000))  # old records that have just been written
    assert not planned((0, 0), (1_000, 4_999))
    assert planned((0, 0), (1_000, 5_000)) == [("segment", 0, 0, 2)]
    assert not planned((0, -1), (4_999, -1))  # a time in the future
    assert planned((0, -1), (5_000, -1)) == [("segment", 0, 0, 2)]


def test_rows_keep_their_age_when_they_are_merged_again() -> None:
    planner = RewritePlanner(SETTINGS)
    planner.plan(a_state(merged(0, 60)), 0)
    planner.adopt(MERGED + 1, [MERGED], 600)
    assert not plan_at(a_state(merged(1, 60)), 999, planner=planner)
    assert plan_at(a_state(merged(1, 60)), 1000, planner=planner) == [("segment", 0, 0, 2)]


def test_objects_of_similar_size_are_merged() -> None:
    assert not plan_at(a_state(*(merged(n, 10) for n in range(7))), 0)
    plan = plan_at(a_state(*(merged(n, 10) for n in range(8))), 0)
    assert plan == [("merge", n, 0, 2) for n in range(8)]
    # Half the size is large enough.
    planner = RewritePlanner(RewriteSettings(merge_bytes=998, segment_bytes=10_000))
    assert not plan_at(a_state(*(merged(n, 499) for n in range(8))), 0, planner=planner)


def test_objects_with_more_rows_than_a_job_allows_are_merged_in_pairs() -> None:
    state = a_state(*(merged(n, *[1] * 40) for n in range(8)))
    assert plan_at(state, 0) == [("merge", 0, 0, 80), ("merge", 1, 0, 80)]


def test_a_segment_has_no_more_rows_than_a_job() -> None:
    state = a_state(merged(0, *[6] * 100))
    assert plan_at(state, 0)[0] == ("segment", 0, 0, 100)


def test_remaining_rows_of_sparse_objects_are_moved() -> None:
    planner = RewritePlanner(SETTINGS)
    full = a_state(merged(0, 100, 100), in_object(MERGED, 400, at=200, kind=RowKind.FINAL))
    sparse = a_state(merged(0, 100, 100), [])
    assert not plan_at(full, 0, planner=planner)
    assert plan_at(sparse, 1, planner=planner) == [("merge", 0, 0, 4)]


def test_sparse_object_is_emptied_by_a_process_that_did_not_see_it_shrink() -> None:
    high = in_object(MERGED, 40, at=1000, kind=RowKind.FINAL)
    assert not plan_at(a_state(high), 0, 9_999)
    assert plan_at(a_state(high), 0, 10_000) == [("merge", 0, 0, 2)]
    # A new one is not moved repeatedly.
    planner = RewritePlanner(SETTINGS)
    planner.plan(a_state(high), 0)
    planner.adopt(MERGED + 1, [MERGED], 10_000)
    again = in_object(MERGED + 1, 40, at=1000, kind=RowKind.FINAL)
    assert not plan_at(a_state(again), 10_001, planner=planner)


def test_damaged_rows_are_not_rewritten() -> None:
    state = a_state(in_object(FLUSHED, 10, 10, 10), merged(0, 300, 300))
    planner = RewritePlanner(SETTINGS)
    damage = {(FLUSHED, 10), (MERGED, 0)}
    planner.plan(state, 0, damage=damage)
    jobs = planner.plan(state, 100, damage=damage)
    assert offsets(jobs) == [("merge", 0, 0, 2), ("merge", 0, 4, 6)]


def test_lag_counts_only_overdue_rows() -> None:
    planner = RewritePlanner(SETTINGS)
    state = a_state(in_object(FLUSHED, 10, 10), merged(0, 30))
    planner.plan(state, 0)
    assert planner.lag() == Lag(0, 0)
    planner.plan(state, 99)
    assert planner.lag() == Lag(0, 99)
    planner.plan(state, 150)
    assert planner.lag() == Lag(20, 150)
    planner.plan(a_state(merged(0, 30)), 160)
    assert planner.lag() == Lag(0, 0)


@pytest.mark.parametrize(
    "wrong", [{"merge_bytes": 0}, {"segment_bytes": 1 << 31}, {"row_bytes": -1}]
)
def test_invalid_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RewriteSettings(**wrong)


def test_planner_materialises_only_chosen_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    row = Partition.row

    def counted(self: Partition, index: int) -> Row:
        made.append(index)
        return row(self, index)

    state = a_state(*(in_object(FLUSHED, *[1] * 100, at=100 * n) for n in range(100)))
    monkeypatch.setattr(Partition, "row", counted)
    planner = RewritePlanner(RewriteSettings(merge_age_ms=100))
    planner.plan(state, 0)
    assert not made
    [job] = planner.plan(state, 100)
    assert len(ranges_of([job])) == len(made) == 100


PIECES = st.lists(
    st.tuples(
        st.sampled_from([-3, -5, JOURNAL, JOURNAL + 1, FLUSHED, MERGED, MERGED + 1, 0, 9 << 24]),
        st.integers(1, 300),
    ),
    max_size=30,
)


def kind_of(object_id: int) -> int:
    if object_id in (MERGED, MERGED + 1):
        return RowKind.FINAL
    return RowKind.FINAL | RowKind.SEGMENT if object_id == 9 << 24 else 0


@given(st.lists(PIECES, min_size=1, max_size=6), st.integers(0, 6), st.booleans())
def test_any_plan_consists_of_whole_rows_used_by_one_job(
    drawn: list[list[tuple[int, int]]], before: int, is_old: bool
) -> None:
    ends: dict[int, int] = {}
    partitions = []
    for rows_drawn in drawn:
        pieces = []
        for where, size in rows_drawn:
            position = ends.get(where, 0)
            ends[where] = position + size
            lost = Piece(0, 0, 0)
            pieces.append(Piece(where, position, size, kind_of(where)) if where else lost)
        partitions.append(pieces)
    state = a_state(*partitions)
    planner = RewritePlanner(SETTINGS)
    planner.plan(state, 0)
    jobs = planner.plan(state, 20_000 if is_old else 1, before_entry=before)
    taken: set[tuple[int, int]] = set()
    for part in ranges_of(jobs):
        partition = state.topics.by_name["t"].partitions[part.partition]
        span = partition.span(part.base_offset, part.end_offset)
        assert span is not None
        assert partition.fingerprint(span) == part.fingerprint
        rows = {(part.partition, index) for index in span}
        assert not rows & taken
        taken |= rows
        assert not any(partition.kinds[index] & RowKind.SEGMENT for index in span)
        assert part.size == sum(partition.sizes[span.start : span.stop])
    for job in jobs:
        bound = SETTINGS.merge_bytes if isinstance(job, MergeJob) else SETTINGS.segment_bytes
        assert job.size <= bound
        if isinstance(job, MergeJob):
            assert job.size > 0
            count = sum(part.end_offset - part.base_offset for part in job.ranges) // 2
            assert count <= SETTINGS.merge_rows


@given(st.lists(PIECES, min_size=1, max_size=6))
def test_repeated_plans_move_all_payloads_out_of_entries(
    drawn: list[list[tuple[int, int]]],
) -> None:
    """Do what is planned, as often as there is something: then the entries are free."""
    partitions = [
        [
            Piece(where, 300 * n, size, kind_of(where))
            for n, (where, size) in enumerate(pieces)
            if where
        ]
        for pieces in drawn
    ]
    state = a_state(*partitions)
    planner = RewritePlanner(SETTINGS)
    number = 100
    while jobs := planner.plan(state, 0, before_entry=5):
        for job in jobs:
            number += 1
            kind = 6 if isinstance(job, SegmentJob) else 2
            for part in ranges_of([job]):
                partition = state.topics.by_name["t"].partitions[part.partition]
                span = partition.span(part.base_offset, part.end_offset)
                assert span is not None
                place = BatchPosition(MERGED + number, 0, part.size)
                partition.replace(span, [Row(part.base_offset, part.end_offset, *place, 5, kind)])
        assert number < 300
    for partition in state.topics.by_name["t"].partitions:
        assert not any(identity < 0 for identity in partition.objects)
