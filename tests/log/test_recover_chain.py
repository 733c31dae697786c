"""Choosing rows: as many offsets as possible, no overlap, segments first."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rookery.cluster.state.partition import RowKind
from rookery.log.recover.chain import Candidate, choose

SENT, FINAL, SEGMENT = 0, int(RowKind.FINAL), int(RowKind.FINAL | RowKind.SEGMENT)


def row(
    base: int, end: int, kind: int = SENT, object_id: int = 1, known: bool = False
) -> Candidate:
    return Candidate(base, end, object_id, base, end - base, 0, kind, is_known=known)


def spans(rows: list[Candidate]) -> list[tuple[int, int, int]]:
    return [(candidate.base_offset, candidate.end_offset, candidate.kind) for candidate in rows]


def test_segments_are_preferred_to_merged_and_flushed_objects() -> None:
    rows = [row(0, 10), row(0, 10, FINAL), row(0, 10, SEGMENT), row(10, 20, FINAL), row(10, 15),
            row(15, 20), row(20, 25)]  # fmt: skip
    assert spans(choose(rows, 0)) == [(0, 10, SEGMENT), (10, 20, FINAL), (20, 25, SENT)]


def test_coverage_takes_precedence_over_tiers() -> None:
    rows = [row(0, 100), row(100, 200), row(50, 180, SEGMENT)]
    assert spans(choose(rows, 0)) == [(0, 100, SENT), (100, 200, SENT)]


def test_a_known_row_is_preferred_among_equals() -> None:
    rows = [row(0, 10, FINAL, object_id=5), row(0, 10, FINAL, object_id=4, known=True)]
    assert [candidate.object_id for candidate in choose(rows, 0)] == [4]


def test_the_newest_is_preferred_among_equals() -> None:
    rows = [row(0, 10, SEGMENT, object_id=number) for number in (4, 9, 7)]
    assert [candidate.object_id for candidate in choose(rows, 0)] == [9]


def test_rows_before_the_start_do_not_count() -> None:
    rows = [row(0, 50), row(40, 60, FINAL), row(60, 70)]
    assert spans(choose(rows, 50)) == [(40, 60, FINAL), (60, 70, SENT)]


def test_no_candidates_give_no_rows() -> None:
    assert choose([], 0) == []
    assert choose([row(5, 5), row(0, 3)], 3) == []


candidates = st.lists(
    st.builds(
        lambda base, length, kind: row(base, base + length, kind),
        st.integers(0, 12),
        st.integers(1, 6),
        st.sampled_from([SENT, FINAL, SEGMENT]),
    ),
    max_size=8,
)


@given(candidates, st.integers(0, 8))
def test_chosen_rows_have_maximum_coverage(rows: list[Candidate], start: int) -> None:
    def covered(some: list[Candidate]) -> int:
        return sum(candidate.end_offset - max(candidate.base_offset, start) for candidate in some)

    def best(rest: list[Candidate], begin: int) -> int:
        return max(
            (covered([candidate]) + best(rest, candidate.end_offset) for candidate in rest
             if candidate.base_offset >= begin and candidate.end_offset > start),
            default=0,
        )  # fmt: skip

    chosen = choose(rows, start)
    assert covered(chosen) == best(rows, 0)
    for candidate, other in pairwise(chosen):
        assert candidate.end_offset <= other.base_offset
