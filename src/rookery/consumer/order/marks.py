"""The position of every partition after the rows returned, from which checkpoints are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rookery.consumer.checkpoint import NO_TIME, Checkpoint, PartitionMark
from rookery.consumer.order.block import RowBlock
from rookery.consumer.order.merge import Merge
from rookery.consumer.order.ready import OrderedRows, ReadyRows
from rookery.consumer.output.arrow import Numbers, append_value
from rookery.model.partition import TopicPartition


class PartitionMarks:
    """One mark per partition, by its number in the merge."""

    def __init__(self, topics: Sequence[str], lateness_ms: int, max_time_ms: int) -> None:
        self._topics = tuple(topics)
        self._lateness_ms = lateness_ms
        self._max_time_ms = max_time_ms
        self.places: list[TopicPartition] = []
        """The partitions."""
        self.is_gone: set[int] = set()
        """The partitions that are no longer read."""
        self.offsets: Numbers = np.empty(0, np.int64)
        """The lowest offset of each partition that was not returned."""
        self._clocks: Numbers = np.empty(0, np.int64)
        self._passed: dict[int, tuple[tuple[int, int], ...]] = {}
        self.frontier = NO_TIME
        """The highest key that was returned."""
        self.rows = 0
        """The number of rows that were returned."""

    def join(self, place: TopicPartition, mark: PartitionMark) -> None:
        """Add a partition."""
        if mark.passed:
            self._passed[len(self.places)] = mark.passed
        self.places.append(place)
        self.offsets = append_value(self.offsets, mark.offset)
        self._clocks = append_value(self._clocks, mark.clock)

    def pass_rows(self, rows: OrderedRows) -> None:
        """Advance past rows that are returned."""
        if not len(rows):
            return
        self.rows += len(rows)
        self.frontier = max(self.frontier, int(rows.keys[-1]))
        if not self._lateness_ms:
            # They are the next rows of their partitions, so the last row of each is its position.
            last = np.full(len(self.places), -1, np.int64)
            last[rows.indices] = np.arange(len(rows))
            present = np.flatnonzero(last >= 0)
            self.offsets[present] = rows.offsets[last[present]] + 1
            self._clocks[present] = rows.keys[last[present]]

    def settle(self, merge: Merge[RowBlock], ready: ReadyRows, decoded_to: Sequence[int]) -> None:
        """With an allowance: find the lowest offset that was not returned, and its clock."""
        if not self._lateness_ms:
            return
        waiting = ready.list_waiting()
        for index in range(len(self.places)):
            offsets, before = _find_pending(index, merge, waiting)
            # Until rows arrive, the ranges passed before a resume remain valid.
            if len(offsets):
                first = int(np.argmin(offsets))
                self.offsets[index], self._clocks[index] = offsets[first], before[first]
                known = [
                    passed
                    for passed in self._passed.get(index, ())
                    if passed[1] > decoded_to[index]
                ]
                ranges = _between(np.sort(offsets), decoded_to[index])
                self._passed[index] = (*ranges, *known)
            elif decoded_to[index] > self.offsets[index]:
                self.offsets[index] = decoded_to[index]
                self._clocks[index] = merge.clocks[index]
                known = [
                    passed
                    for passed in self._passed.get(index, ())
                    if passed[1] > decoded_to[index]
                ]
                self._passed[index] = tuple(known)

    def maker(self) -> Callable[[], Checkpoint]:
        """Return a function that makes the checkpoint of this moment on demand."""
        offsets, clocks, passed = self.offsets.copy(), self._clocks.copy(), dict(self._passed)
        frontier, rows, gone = self.frontier, self.rows, frozenset(self.is_gone)

        def make() -> Checkpoint:
            numbers = zip(self.places, offsets.tolist(), clocks.tolist(), strict=False)
            marks = {
                place: PartitionMark(offset, clock, passed.get(index, ()))
                for index, (place, offset, clock) in enumerate(numbers)
                if index not in gone
            }
            stays = {
                self.places[index]: index for index in range(len(offsets)) if index not in gone
            }
            return Checkpoint(
                marks,
                self._topics,
                self._lateness_ms,
                self._max_time_ms,
                frontier,
                rows,
                stays=stays,
            )

        return make


def _find_pending(
    index: int, merge: Merge[RowBlock], waiting: list[OrderedRows]
) -> tuple[Numbers, Numbers]:
    """Return the offsets of a partition's rows that were not returned, with their clocks."""
    offsets, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for run in merge.runs(index):
        rows = np.arange(run.at, len(run.keys)) if run.rows is None else run.rows[run.at :]
        if run.block.before is not None:
            offsets.append(run.block.offsets[rows])
            before.append(run.block.before[rows])
    for some in waiting:
        if some.before is not None:
            is_own = some.indices == index
            offsets.append(some.offsets[is_own])
            before.append(some.before[is_own])
    return np.concatenate(offsets), np.concatenate(before)


def _between(pending: Numbers, decoded_to: int) -> list[tuple[int, int]]:
    """Return the gaps after the first of the given offsets."""
    begins = pending + 1
    ends = np.append(pending[1:], decoded_to)
    is_gap = begins < ends
    return list(zip(begins[is_gap].tolist(), ends[is_gap].tolist(), strict=True))
