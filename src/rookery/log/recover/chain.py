"""Chooses rows that cover as many of a partition's offsets as possible, without overlap.

The same offsets may be stored several times: as sent, merged, and in a segment, because old objects
are kept for a while. Whole rows are chosen so that as many offsets as possible are covered. Among
equals, rows in segments are preferred, then merged rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from rookery.cluster.state.partition import RowKind


class Candidate(NamedTuple):
    """A row that could hold some offsets."""

    base_offset: int
    end_offset: int
    object_id: int
    position: int
    size: int
    max_timestamp: int
    kind: int
    is_known: bool
    """Whether the snapshot contains it."""


def choose(candidates: Iterable[Candidate], log_start: int) -> list[Candidate]:
    """Return rows that do not overlap, in the order of their offsets."""
    rows = sorted(
        {
            candidate
            for candidate in candidates
            if candidate.end_offset > max(candidate.base_offset, log_start)
        },
        # Among equals the first wins: the newest, which may be compacted further.
        key=lambda candidate: (candidate.end_offset, -candidate.object_id, candidate.position),
    )
    ends = [row.end_offset for row in rows]
    # For the first n rows: the best coverage, and whether it includes the last of them.
    best: list[tuple[int, int]] = [(0, 0)]
    is_taken: list[bool] = []
    before = [bisect_right(ends, row.base_offset, hi=at) for at, row in enumerate(rows)]
    for row, earlier in zip(rows, before, strict=True):
        length = row.end_offset - max(row.base_offset, log_start)
        covered, preferred = best[earlier]
        with_it = (covered + length, preferred + length * _rank(row))
        is_taken.append(with_it > best[-1])
        best.append(max(with_it, best[-1]))
    return _walk_back(rows, before, is_taken)


def _walk_back(rows: list[Candidate], before: list[int], is_taken: list[bool]) -> list[Candidate]:
    chosen = []
    at = len(rows)
    while at:
        if is_taken[at - 1]:
            chosen.append(rows[at - 1])
            at = before[at - 1]
        else:
            at -= 1
    return chosen[::-1]


def _rank(row: Candidate) -> int:
    tier = 2 if row.kind & RowKind.SEGMENT else 1 if row.kind & RowKind.FINAL else 0
    return 2 * tier + row.is_known
