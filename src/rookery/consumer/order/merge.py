"""Time order over all partitions: which rows can be released, and in which order. No I/O.

Rows are ordered by (key, partition number in the stream, offset). Every row of a partition that has
not been seen yet has a key of at least the partition's clock minus the lateness allowance. The
lowest of these marks over all partitions is the bound. No unseen row can order before the bound, so
every row up to it can be released. A partition without any rows yet has the lowest possible mark,
and so holds back everything. Only partitions that are done, or in live mode proved to be idle, have
no mark.

Whole runs of rows are cut at the bound and sorted together. No step works row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.order.keys import RowKeys, compute_keys
from rookery.consumer.output.arrow import Flags, Numbers, append_value

NO_BOUND: Final = (1 << 63) - 1

B = TypeVar("B")


class Bound(NamedTuple):
    """The limit up to which rows can be released, and the partition that holds back the rest."""

    key: int
    partition: int


@dataclass(slots=True)
class RowRun(Generic[B]):
    """Rows of one partition in key order, of which some have already been released."""

    index: int
    block: B
    rows: Numbers | None
    """The rows of the block; None: all, in their order."""
    keys: Numbers
    at: int = 0

    def cut(self, bound: Bound) -> MergePiece[B] | None:
        """Take the rows up to the bound."""
        is_included = self.index <= bound.partition
        stop = int(self.keys.searchsorted(bound.key, "right" if is_included else "left"))
        if stop <= self.at:
            return None
        piece = MergePiece(self, self.at, stop)
        self.at = stop
        return piece


class MergePiece(NamedTuple, Generic[B]):
    """A part of a run that can be released."""

    run: RowRun[B]
    begin: int
    end: int

    @property
    def keys(self) -> Numbers:
        """The keys of its rows."""
        return self.run.keys[self.begin : self.end]


class MergeRound(NamedTuple, Generic[B]):
    """Rows that are released together, and their order."""

    pieces: list[MergePiece[B]]
    keys: Numbers
    """The keys of all pieces, concatenated."""
    order: Numbers | None
    """Indices into the keys; None: they are already in order."""

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.keys)


class Merge(Generic[B]):
    """The decoded rows of all partitions that have not been released."""

    def __init__(
        self, lateness_ms: int = 0, max_time_ms: int = NO_BOUND, order: str = "timestamp"
    ) -> None:
        self._lateness_ms = lateness_ms
        self._max_time_ms = max_time_ms
        self._order = order
        self._runs: list[list[RowRun[B]]] = []
        self.clocks: Numbers = np.empty(0, np.int64)
        """The highest time seen in each partition."""
        self._floors: Numbers = np.empty(0, np.int64)
        self._passed: dict[int, Numbers] = {}
        self._heads: Numbers = np.empty(0, np.int64)
        self._is_done: Flags = np.empty(0, np.bool_)
        self._is_idle: Flags = np.empty(0, np.bool_)
        # The lowest key that a future row of each partition can have; NO_BOUND if the merge does
        # not wait for it.
        self._marks: Numbers = np.empty(0, np.int64)
        self.frontier = NO_TIME
        """The highest key of the released rows."""
        self.pending = 0
        """The number of rows that have not been released."""

    def join(
        self,
        clock: int = NO_TIME,
        floor: int = NO_TIME,
        passed: Sequence[tuple[int, int]] = (),
    ) -> int:
        """Add a partition; return its number.

        Args:
            clock: the highest time before its first row.
            floor: the lowest key of its rows, since rows with that key were already released.
            passed: ranges of offsets that were already released, as first offset and exclusive end.
        """
        self._runs.append([])
        self.clocks = append_value(self.clocks, clock)
        self._floors = append_value(self._floors, floor)
        self._heads = append_value(self._heads, NO_BOUND)
        self._is_done = append_value(self._is_done, 0)
        self._is_idle = append_value(self._is_idle, 0)
        self._marks = append_value(self._marks, 0)
        index = len(self._runs) - 1
        self._mark(index)
        if passed:
            self._passed[index] = np.array(passed, np.int64).ravel()
        return index

    def leave(self, index: int) -> None:
        """Drop a partition's rows and stop waiting for it; its number is not reused."""
        self.pending -= sum(len(run.keys) - run.at for run in self._runs[index])
        self._runs[index] = []
        self._heads[index] = NO_BOUND
        self.set_done(index, is_done=True)

    def set_done(self, index: int, *, is_done: bool) -> None:
        """Set whether a partition has no more rows."""
        self._is_done[index] = is_done
        self._mark(index)

    def set_idle(self, index: int, *, is_idle: bool) -> None:
        """Set whether the merge stops waiting for a partition that may have more rows."""
        self._is_idle[index] = is_idle
        self._mark(index)

    def is_idle(self, index: int) -> bool:
        """Return whether the merge does not wait for a partition."""
        return bool(self._is_idle[index])

    @property
    def is_over(self) -> bool:
        """Whether all rows have been released and no more will come."""
        return not self.pending and bool(self._is_done.all())

    def _mark(self, index: int) -> None:
        mark = NO_BOUND
        if not (self._is_done[index] or self._is_idle[index]):
            mark = max(int(self.clocks[index]) - self._lateness_ms, int(self._floors[index]))
        self._marks[index] = mark

    def add(self, index: int, block: B, times: Numbers, offsets: Numbers) -> RowKeys:
        """Add a partition's next rows; return their keys."""
        row_keys = compute_keys(
            times, int(self.clocks[index]), self._lateness_ms, self._max_time_ms
        )
        if not len(times):
            return row_keys
        self.clocks[index] = row_keys.clock
        self._mark(index)
        keys, floor = row_keys.keys, self._floors[index]
        if self._lateness_ms or keys[0] < floor:
            keys = np.maximum(keys, floor)
            row_keys = row_keys._replace(keys=keys)
        rows = self._rows(index, keys, offsets)
        if rows is not None:
            keys = keys[rows]
        if len(keys):
            self._runs[index].append(RowRun(index, block, rows, keys))
            self._heads[index] = min(int(self._heads[index]), int(keys[0]))
            self.pending += len(keys)
        return row_keys

    def _rows(self, index: int, keys: Numbers, offsets: Numbers) -> Numbers | None:
        """Return the requested rows in key order; None: all rows, as they are."""
        if not self._lateness_ms:
            return None
        passed = self._passed.get(index)
        rows: Numbers | None = None
        if passed is not None:
            # Starts and ends alternate: after an odd number of them, an offset is inside a released
            # range.
            rows = np.flatnonzero(np.searchsorted(passed, offsets, "right") % 2 == 0)
            keys = keys[rows]
        if len(keys) > 1 and bool((keys[1:] < keys[:-1]).any()):
            order = np.argsort(keys, kind="stable")
            rows = order if rows is None else rows[order]
        return rows

    def runs(self, index: int) -> list[RowRun[B]]:
        """Return the runs of a partition that have not been released."""
        return self._runs[index]

    def bound(self) -> Bound:
        """Return the limit up to which rows can be released, and the partition that sets it."""
        marks = self._marks
        if self._order == "none" or not len(marks):
            return Bound(NO_BOUND, len(marks))
        if self._order == "partition":
            index = int((marks < NO_BOUND).argmax())
            return Bound(NO_BOUND, index if marks[index] < NO_BOUND else len(marks))
        # The first of equal marks: rows of the others with this key are ordered after its own.
        index = int(marks.argmin())
        key = int(marks[index])
        return Bound(key, index if key < NO_BOUND else len(marks))

    def find_lagging(self) -> Numbers:
        """Return the partitions that the merge waits for, those furthest behind first."""
        waited = np.flatnonzero(self._marks < NO_BOUND)
        if self._order != "timestamp":
            return waited
        return waited[np.argsort(self._marks[waited], kind="stable")]

    def release(self) -> MergeRound[B] | None:
        """Release all rows that can be released; return None if there are none."""
        bound = self.bound()
        pieces: list[MergePiece[B]] = []
        for index in np.flatnonzero(self._may_go(bound)).tolist():
            pieces += self._cut(index, bound)
        if not pieces:
            return None
        round_ = _order(pieces, is_sorted=self._order != "timestamp")
        self.pending -= round_.size
        self._move_on(round_)
        return round_

    def _may_go(self, bound: Bound) -> Flags:
        """Return which partitions have rows up to the bound."""
        heads, behind = self._heads, bound.partition + 1
        may_go = (heads <= bound.key) & (heads < NO_BOUND)
        if self._order == "partition":
            may_go[behind:] = False
        elif self._order == "timestamp":
            may_go[behind:] &= heads[behind:] < bound.key
        return may_go

    def _cut(self, index: int, bound: Bound) -> list[MergePiece[B]]:
        runs = self._runs[index]
        pieces = [piece for run in runs if (piece := run.cut(bound)) is not None]
        if pieces:
            left = [run for run in runs if run.at < len(run.keys)]
            self._runs[index] = left
            self._heads[index] = min((int(run.keys[run.at]) for run in left), default=NO_BOUND)
        return pieces

    def _move_on(self, round_: MergeRound[B]) -> None:
        self.frontier = max(self.frontier, int(round_.keys.max()))
        if self._order == "timestamp":
            # Rows were released past idle partitions, so their future rows cannot order before
            # those.
            self._floors[self._is_idle] = self.frontier


def _order(pieces: list[MergePiece[B]], *, is_sorted: bool) -> MergeRound[B]:
    if len(pieces) == 1:
        return MergeRound(pieces, pieces[0].keys, None)
    keys = np.concatenate([piece.keys for piece in pieces])
    if is_sorted:
        return MergeRound(pieces, keys, None)
    # Pieces are in the order of partitions and offsets, and the sort is stable: the first of equal
    # keys stays first. The sort detects and merges ordered runs, so it costs next to nothing.
    return MergeRound(pieces, keys, np.argsort(keys, kind="stable"))
