"""Requests the partitions that the merge waits for, and raises what prevents their arrival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rookery.consumer.faults import OutOfMemory, UnheardPartitions
from rookery.consumer.fetch import budget
from rookery.consumer.fetch.shelf import Shelf, Shelves
from rookery.consumer.order.block import RowBlock
from rookery.consumer.order.merge import Bound, Merge
from rookery.consumer.order.ready import ReadyRows
from rookery.consumer.settings import StreamSettings, ms

_MOST_NEEDED: Final = 64


class Demand:
    """What the merge needs from the feed before it can continue."""

    def __init__(
        self,
        shelves: Shelves,
        shelf_of: Sequence[Shelf],
        merge: Merge[RowBlock],
        ready: ReadyRows,
        settings: StreamSettings,
    ) -> None:
        """Create a demand.

        Args:
            shelves: where the feed finds what is needed.
            shelf_of: the shelves by partition number; partitions that join are appended to it.
            merge: knows which partitions hold back the others.
            ready: the rows that can be returned; while there are any, faults and room can wait.
            settings: the deadline and the memory.
        """
        self._shelves = shelves
        self._shelf_of = shelf_of
        self._merge = merge
        self._ready = ready
        self._settings = settings
        self._blocked_since: int | None = None

    def reset(self) -> None:
        """Record that the merge has released rows; the deadline starts again."""
        self._blocked_since = None

    def ask(self, now: int) -> None:
        """Request the partitions that are needed.

        Raises:
            Error: a partition failed, and no row can be returned without it.
            UnheardPartitions: no broker has answered for a partition within the deadline.
            OutOfMemory: there is no room for one more batch.
        """
        if not self._ready.size:
            self._raise_fault(self._merge.bound(), now)
        needed = [
            shelf
            for index in self._merge.find_lagging()[:_MOST_NEEDED].tolist()
            if not (shelf := self._shelf_of[index]).chunks and not shelf.is_exhausted
        ]
        self._make_room(needed)
        self._shelves.need(needed)

    def _raise_fault(self, bound: Bound, now: int) -> None:
        """Raise the fault of the partition that holds back the others."""
        is_held = bound.partition < len(self._shelf_of)
        for shelf in [self._shelf_of[bound.partition]] if is_held else self._shelf_of:
            if shelf.fault is not None and not shelf.chunks:
                fault = shelf.fault
                with self._shelves.lock:
                    shelf.fault = None  # asking again tries again
                self._shelves.need([])
                raise fault
        if is_held:
            self._check_deadline(self._shelf_of[bound.partition], now)

    def _check_deadline(self, shelf: Shelf, now: int) -> None:
        if self._blocked_since is None:
            self._blocked_since = now
        deadline = ms(self._settings.deadline)
        if now - max(shelf.heard_at, self._blocked_since) > deadline:
            self._blocked_since = None
            why = shelf.problem or "no broker has answered for it"
            raise UnheardPartitions([shelf.place], deadline, f"the last problem: {why}")

    def _make_room(self, needed: Sequence[Shelf]) -> None:
        """Make room to fetch the partitions that the merge waits for."""
        shelves = self._shelves
        if not needed or self._ready.size or shelves.held < shelves.memory:
            return
        first = needed[0]
        room = max(first.batch_bytes, 1) + shelves.held - shelves.memory
        # The partitions furthest ahead are needed last.
        ahead = [self._shelf_of[index] for index in self._merge.find_lagging()[::-1].tolist()]
        if shelves.evict([shelf for shelf in ahead if shelf is not first], room):
            return
        if shelves.is_over(first):
            raise self._out_of_memory()

    def _out_of_memory(self) -> OutOfMemory:
        """Report how much memory the next rows of all partitions take, as far as it is known."""
        wanting = [shelf for shelf in self._shelf_of if shelf.held or not shelf.is_exhausted]
        most = max((shelf.batch_bytes for shelf in wanting), default=0)
        needed = sum(max(shelf.held, shelf.batch_bytes or most) for shelf in wanting)
        places = [shelf.place for shelf in wanting]
        needed = budget.enough(max(needed, self._shelves.held + most))
        return OutOfMemory(needed, self._settings.memory, places)
