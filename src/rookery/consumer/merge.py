"""Time order over all partitions: what may be handed out, and in which order. No I/O is done here.

Rows are ordered by (key, partition's number in the stream, offset). All rows of a partition that
have not been seen yet have keys of at least its clock minus the lateness allowance. The lowest of
these marks over all partitions is the bound: no unseen row can come before it, so every row up to
it may go. A partition of which nothing is known has the lowest mark of all, and so holds back
everything. Only those that are done, or in live mode proved to be idle, have no mark.

Whole runs of rows are cut at the bound and sorted together: no step is made row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from rookery.consumer.arrow import Flags, Numbers
from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.keys import keyed

NO_BOUND: Final = (1 << 63) - 1

B = TypeVar("B")


class Bound(NamedTuple):
    """Up to where rows may go, and the partition that holds back the rest."""

    key: int
    partition: int


@dataclass(slots=True)
class Run(Generic[B]):
    """Rows of one partition in the order of their keys, of which some have gone already."""

    index: int
    block: B
    rows: Numbers | None
    """Which rows of the block; None: all, in their order."""
    keys: Numbers
    at: int = 0

    def cut(self, bound: Bound) -> Piece[B] | None:
        """Take the rows up to the bound."""
        is_included = self.index <= bound.partition
        stop = int(self.keys.searchsorted(bound.key, "right" if is_included else "left"))
        if stop <= self.at:
            return None
        piece = Piece(self, self.at, stop)
        self.at = stop
        return piece


class Piece(NamedTuple, Generic[B]):
    """A part of a run that may go."""

    run: Run[B]
    begin: int
    end: int

    @property
    def keys(self) -> Numbers:
        """The keys of its rows."""
        return self.run.keys[self.begin : self.end]


class Round(NamedTuple, Generic[B]):
    """Rows that may go, and their order among each other."""

    pieces: list[Piece[B]]
    keys: Numbers
    """Of all pieces, one after the other."""
    order: Numbers | None
    """Numbers into them; None: as they stand."""

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.keys)


class Merge(Generic[B]):
    """The rows of all partitions that were decoded and have not gone yet."""

    def __init__(
        self, lateness_ms: int = 0, max_time_ms: int = NO_BOUND, order: str = "timestamp"
    ) -> None:
        self._lateness_ms = lateness_ms
        self._max_time_ms = max_time_ms
        self._order = order
        self._runs: list[list[Run[B]]] = []
        self.clocks: Numbers = np.empty(0, np.int64)
        """The highest time seen in each partition."""
        self._floors: Numbers = np.empty(0, np.int64)
        self._passed: dict[int, Numbers] = {}
        self._heads: Numbers = np.empty(0, np.int64)
        self.is_done: Flags = np.empty(0, np.bool_)
        """Which partitions will bring no more rows."""
        self.is_idle: Flags = np.empty(0, np.bool_)
        """Which partitions are not waited for."""
        self.frontier = NO_TIME
        """The highest key of the rows that have gone."""
        self.pending = 0
        """How many rows have not gone."""

    def join(
        self,
        clock: int = NO_TIME,
        floor: int = NO_TIME,
        passed: Sequence[tuple[int, int]] = (),
    ) -> int:
        """Add a partition; return its number.

        Args:
            clock: the highest time before its first row.
            floor: no key of its rows is below it, for rows with that key have gone.
            passed: offsets of rows that have gone, each as the first and the one behind the last.
        """
        self._runs.append([])
        self.clocks = np.append(self.clocks, np.int64(clock))
        self._floors = np.append(self._floors, np.int64(floor))
        self._heads = np.append(self._heads, np.int64(NO_BOUND))
        self.is_done = np.append(self.is_done, np.False_)
        self.is_idle = np.append(self.is_idle, np.False_)
        if passed:
            self._passed[len(self._runs) - 1] = np.array(passed, np.int64).ravel()
        return len(self._runs) - 1

    def leave(self, index: int) -> None:
        """Drop a partition's rows, and wait for it no more; its number is not used again."""
        self.pending -= sum(len(run.keys) - run.at for run in self._runs[index])
        self._runs[index] = []
        self._heads[index] = NO_BOUND
        self.is_done[index] = True

    def add(self, index: int, block: B, times: Numbers, offsets: Numbers) -> Numbers:
        """Take in rows of a partition, which follow those before; return the clock before each."""
        if not len(times):
            return times
        found = keyed(times, int(self.clocks[index]), self._lateness_ms, self._max_time_ms)
        self.clocks[index] = found.clock
        keys = np.maximum(found.keys, self._floors[index])
        rows = self._rows(index, keys, offsets)
        if rows is not None:
            keys = keys[rows]
        if len(keys):
            self._runs[index].append(Run(index, block, rows, keys))
            self._heads[index] = min(int(self._heads[index]), int(keys[0]))
            self.pending += len(keys)
        return found.before

    def _rows(self, index: int, keys: Numbers, offsets: Numbers) -> Numbers | None:
        """Return which rows are wanted, in the order of their keys; None: all as they are."""
        if not self._lateness_ms:
            return None
        passed = self._passed.get(index)
        rows: Numbers | None = None
        if passed is not None:
            # Beginnings and ends take turns: behind an odd number of them lies what has gone.
            rows = np.flatnonzero(np.searchsorted(passed, offsets, "right") % 2 == 0)
            keys = keys[rows]
        if len(keys) > 1 and bool((keys[1:] < keys[:-1]).any()):
            order = np.argsort(keys, kind="stable")
            rows = order if rows is None else rows[order]
        return rows

    def runs(self, index: int) -> list[Run[B]]:
        """Return what a partition still holds."""
        return self._runs[index]

    def bound(self) -> Bound:
        """Return up to where rows may go, and which partition holds back the rest."""
        is_free = self.is_done | self.is_idle
        if self._order == "none" or not len(is_free) or is_free.all():
            return Bound(NO_BOUND, len(is_free))
        if self._order == "partition":
            return Bound(NO_BOUND, int(np.argmin(is_free)))
        marks = np.where(is_free, NO_BOUND, self._marks())
        # The first of equal ones: rows of the others with this key come behind its own.
        index = int(np.argmin(marks))
        return Bound(int(marks[index]), index)

    def _marks(self) -> Numbers:
        """Return below which key no row will come, for each partition."""
        return np.maximum(self.clocks - self._lateness_ms, self._floors)

    def lagging(self) -> Numbers:
        """Return the numbers of the partitions that are waited for, those furthest behind first."""
        waited = np.flatnonzero(~(self.is_done | self.is_idle))
        if self._order != "timestamp":
            return waited
        return waited[np.argsort(self._marks()[waited], kind="stable")]

    def release(self) -> Round[B] | None:
        """Let all rows go that may; return None if there are none."""
        bound = self.bound()
        pieces: list[Piece[B]] = []
        for index in np.flatnonzero(self._may_go(bound)).tolist():
            pieces += self._cut(index, bound)
        if not pieces:
            return None
        round_ = _ordered(pieces, is_sorted=self._order != "timestamp")
        self.pending -= round_.size
        self._move_on(round_)
        return round_

    def _may_go(self, bound: Bound) -> Flags:
        if self._order == "partition":
            may_go = self._heads < NO_BOUND
            may_go[bound.partition + 1 :] = False
            return may_go
        return (self._heads <= bound.key) & (self._heads < NO_BOUND)

    def _cut(self, index: int, bound: Bound) -> list[Piece[B]]:
        runs = self._runs[index]
        pieces = [piece for run in runs if (piece := run.cut(bound)) is not None]
        if pieces:
            left = [run for run in runs if run.at < len(run.keys)]
            self._runs[index] = left
            self._heads[index] = min((int(run.keys[run.at]) for run in left), default=NO_BOUND)
        return pieces

    def _move_on(self, round_: Round[B]) -> None:
        self.frontier = max(self.frontier, int(round_.keys.max()))
        if self.is_idle.any() and self._order == "timestamp":
            # Rows have passed them: what they bring from now on cannot come before those.
            self._floors[self.is_idle] = self.frontier


def _ordered(pieces: list[Piece[B]], *, is_sorted: bool) -> Round[B]:
    if len(pieces) == 1:
        return Round(pieces, pieces[0].keys, None)
    keys = np.concatenate([piece.keys for piece in pieces])
    if is_sorted:
        return Round(pieces, keys, None)
    # Pieces stand in the order of partitions and offsets: of equal keys, the first stays first.
    # Runs that are in order are found and merged, which is why this costs next to nothing.
    return Round(pieces, keys, np.argsort(keys, kind="stable"))
