"""The state of each partition of a stream, as `partitions` and `progress` report it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rookery.consumer.fetch.shelf import Shelf, ShelfState
from rookery.consumer.order.block import RowBlock
from rookery.consumer.order.marks import PartitionMarks
from rookery.consumer.order.merge import Merge
from rookery.consumer.order.ready import ReadyRows
from rookery.consumer.output.arrow import Numbers


class PartitionStates:
    """Derives the state of partitions from what was fetched, decoded and returned."""

    def __init__(
        self,
        shelf_of: Sequence[Shelf],
        merge: Merge[RowBlock],
        ready: ReadyRows,
        marks: PartitionMarks,
    ) -> None:
        """Create a view of a stream.

        Args:
            shelf_of: the shelves by partition number; partitions that join are appended to it.
            merge: the rows that wait for other partitions.
            ready: the rows that can be returned.
            marks: the positions after the rows that were returned.
        """
        self._shelf_of = shelf_of
        self._merge = merge
        self._ready = ready
        self._marks = marks

    @property
    def clocks(self) -> Numbers:
        """The highest time seen in each partition."""
        return self._merge.clocks

    @property
    def has_caught_up(self) -> bool:
        """Whether every row that existed at the start was returned."""
        return all(
            shelf.is_gone or self.find_released(shelf) >= shelf.replay_end
            for shelf in self._shelf_of
        )

    def count_pending(self, index: int) -> int:
        """Return the number of decoded rows of a partition that were not yet returned."""
        waiting = sum(
            int(np.count_nonzero(rows.indices == index)) for rows in self._ready.list_waiting()
        )
        return waiting + sum(len(run.keys) - run.at for run in self._merge.runs(index))

    def find_released(self, shelf: Shelf) -> int:
        """Return the offset before which everything was returned."""
        passed = int(self._marks.offsets[shelf.index])
        if shelf.chunks or self.count_pending(shelf.index):
            return passed
        return max(shelf.position, passed)

    def state(self, shelf: Shelf) -> ShelfState:
        """Return the state of a partition."""
        is_empty = not shelf.chunks and not self.count_pending(shelf.index)
        if is_empty and shelf.is_blocked:
            return ShelfState.BLOCKED
        if is_empty and shelf.is_exhausted:
            return ShelfState.DONE
        if shelf.lost:
            return ShelfState.TRUNCATED
        if not shelf.is_answered:
            return ShelfState.UNKNOWN
        if self._merge.is_idle(shelf.index):
            return ShelfState.IDLE
        is_read = not shelf.is_exhausted and not shelf.is_passed_over
        return ShelfState.FETCHING if is_read or not shelf.held else ShelfState.HELD
