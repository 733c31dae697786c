"""The order of rows by its definition, row by row: a slow oracle."""

from __future__ import annotations

from typing import NamedTuple

NO_TIME = -(1 << 62)


class Row(NamedTuple):
    """One row: where it is, and its time (None if it has none)."""

    partition: int
    offset: int
    time: int | None


class Placed(NamedTuple):
    """A row with its key; sorts as the output is sorted."""

    key: int
    partition: int
    offset: int
    lateness: int
    before: int


def placed(rows: list[Row], lateness: int, max_time: int = 1 << 60) -> list[Placed]:
    """Return the keys of one partition's rows."""
    placements, clock = [], NO_TIME
    for row in rows:
        if row.time is None or row.time > max_time:
            late = 0 if row.time is None else max_time - row.time
            placements.append(Placed(clock, row.partition, row.offset, late, clock))
            continue
        key = max(clock - lateness, row.time)
        placements.append(Placed(key, row.partition, row.offset, key - row.time, clock))
        clock = max(clock, row.time)
    return placements


def in_order(partitions: list[list[Row]], lateness: int, max_time: int = 1 << 60) -> list[Placed]:
    """Return all rows as they must come out."""
    return sorted(row for rows in partitions for row in placed(rows, lateness, max_time))
