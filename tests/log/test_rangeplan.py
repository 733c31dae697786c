"""Planned ranges are cut without losing a row, and into tasks of a useful size."""

from __future__ import annotations

import pytest

from rookery.cluster.state.partition import Row
from rookery.log.read.rangeplan import MIB, PlannedRange, TaskSize


def test_a_part_of_a_range_has_the_rows_that_it_needs() -> None:
    rows = tuple(Row(at * 10, at * 10 + 10, 5, at * 100, 100, 0, 0) for at in range(1, 500))
    planned = PlannedRange("t", b"", 0, 12, 4_998, rows, (), (), 0, ())
    for part in planned.split(7):
        needed = [row for row in rows if row.base_offset < part.end and row.end_offset > part.begin]
        assert part.rows == tuple(needed)


@pytest.mark.parametrize(
    ("size", "count"),
    [(0, 1), (MIB, 1), (40 * MIB, 3), (400 * MIB, 4), (2_000 * MIB, 16), (2_100 * MIB, 20)],
)
def test_tasks_are_neither_small_nor_many(size: int, count: int) -> None:
    assert TaskSize(cores=4).tasks(size) == count
