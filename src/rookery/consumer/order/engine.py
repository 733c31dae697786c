"""Turns fetched batches into ordered output batches, in the caller's thread.

    shelves ──► decode the partition that holds back the others ──► merge ──► ready ──► batch

Only the partition that holds back the others is decoded. All other data stays compressed, as
fetched, until it is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from rookery.clock import Clock
from rookery.consumer.checkpoint import NO_TIME, Checkpoint, PartitionMark
from rookery.consumer.faults import Misuse
from rookery.consumer.fetch.shelf import ENDLESS, Shelf, Shelves
from rookery.consumer.order.block import RowBlock
from rookery.consumer.order.demand import Demand
from rookery.consumer.order.intake import Intake
from rookery.consumer.order.marks import PartitionMarks
from rookery.consumer.order.merge import Merge, MergePiece
from rookery.consumer.order.partitionstates import PartitionStates
from rookery.consumer.order.shelfwatch import ShelfWatch
from rookery.consumer.output.batch import Batch, OffsetCommitter
from rookery.consumer.output.outlet import Outlet, RowsInHand
from rookery.consumer.output.shape import BatchShape
from rookery.consumer.ranges import PartitionRange
from rookery.consumer.settings import StreamSettings, ms
from rookery.errors import Error
from rookery.model.partition import TopicPartition

# How often to check for work that no notification announces.
_LOOK_MS: Final = 20
_LOOK_SELDOM_MS: Final = 100


class StreamEngine:
    """The reader's half of a stream."""

    def __init__(
        self,
        shelves: Shelves,
        shape: BatchShape,
        settings: StreamSettings,
        clock: Clock,
        max_time_ms: int,
        *,
        is_live: bool,
    ) -> None:
        self._shelves = shelves
        self._shape = shape
        self._settings = settings
        self._clock = clock
        self._is_live = is_live
        # Rows are taken in and returned in the reader's thread; partitions join and leave in
        # others.
        self._guard = threading.RLock()
        lateness_ms = ms(settings.lateness)
        self._merge: Merge[RowBlock] = Merge(lateness_ms, max_time_ms, settings.order)
        self._intake = Intake(shelves, self._merge, shape, settings)
        self.marks = PartitionMarks(shape.topics, lateness_ms, max_time_ms)
        self._outlet = Outlet(shape, self.marks.places, settings, clock, max_time_ms)
        self.shelf_of: list[Shelf] = []
        """Shelves by their partition number in the merge."""
        ready = self._outlet.ready
        self._watch = ShelfWatch(shelves, self.shelf_of, self._merge, settings, clock)
        self._demand = Demand(shelves, self.shelf_of, self._merge, ready, settings)
        self.states = PartitionStates(self.shelf_of, self._merge, ready, self.marks)
        """The states of the partitions."""
        self._is_amid = False
        self._checkpoint_before = self.marks.maker()
        self.made: Batch | None = None
        """The next batch. It stays here until it is taken, even if the caller was interrupted."""
        self.committer: OffsetCommitter
        """Commits for batches."""
        self.is_finished = False
        """Whether all rows were returned."""
        self.is_interrupted = False
        """Whether a waiting caller must stop waiting."""

    # Partitions join and leave.

    def resume(self, checkpoint: Checkpoint) -> None:
        """Resume at a checkpoint; call this before any partition joins."""
        self.marks.frontier, self.marks.rows = checkpoint.frontier_ms, checkpoint.rows

    def join(self, range_: PartitionRange) -> Shelf:
        """Add a partition; its rows are ordered after those already returned."""
        mark = range_.mark or PartitionMark(range_.start)
        index = self._merge.join(mark.clock, self.marks.frontier, mark.passed)
        shelf = _new_shelf(range_, index, self._clock.monotonic_ms(), is_live=self._is_live)
        self.shelf_of.append(shelf)
        self.marks.join(range_.place, mark)
        self._shape.join(range_.place)
        with self._shelves.lock:
            self._shelves.by_place[range_.place] = shelf
            self._shelves.changed.append(shelf)
            self._shelves.tell()
        return shelf

    def join_all(self, ranges: Sequence[PartitionRange]) -> None:
        """Add partitions; callable from any thread."""
        with self._guard:
            for range_ in ranges:
                if range_.place not in self._shelves.by_place:
                    self.join(range_)

    def leave_all(self, places: Iterable[TopicPartition]) -> None:
        """Drop partitions and stop returning their rows; callable from any thread."""
        with self._guard:
            for place in places:
                shelf = self._shelves.by_place.get(place)
                if shelf is not None:
                    self._leave(shelf)

    def _leave(self, shelf: Shelf) -> None:
        self._settle(self._outlet.ready.forget(shelf.index))
        self._merge.leave(shelf.index)
        self.marks.is_gone.add(shelf.index)
        with self._shelves.lock:
            shelf.is_gone = True
            shelf.chunks.clear()
            self._shelves.by_place.pop(shelf.place, None)
            self._shelves.charge(shelf, -shelf.held)

    # The loop.

    def make(self, wait_ms: int | None = None) -> None:
        """Put the next batch into `made`, unless all rows were returned or the wait time is over.

        Raises:
            Error: a partition failed, and no row can be returned without it.
            Misuse: an earlier call was interrupted where the stream cannot continue.
        """
        give_up_at = None if wait_ms is None else self._clock.monotonic_ms() + wait_ms
        while self.made is None and not self.is_finished and not self.is_interrupted:
            seen = self._shelves.arrivals()
            left = self._whole_step()
            if left:
                if give_up_at is not None:
                    left = min(left, give_up_at - self._clock.monotonic_ms())
                    if left <= 0:
                        return
                self._shelves.wait(seen, left)

    def checkpoint(self) -> Checkpoint:
        """Return the stream's position after the last batch that was taken.

        Raises:
            Misuse: as `make`.
        """
        self._check_whole()
        maker = self.marks.maker() if self.made is None else self._checkpoint_before
        return maker()

    def _whole_step(self) -> int:
        """Run one step; record if anything other than our own errors interrupted it."""
        with self._guard:
            self._check_whole()
            if self._shelves.failure is not None:
                raise self._shelves.failure
            self._is_amid = True
            try:
                left = self._step()
            except Error:
                self._is_amid = False  # asking again tries again
                raise
            self._is_amid = False
            return left

    def _check_whole(self) -> None:
        # An interrupt can occur between any two lines, while rows move from one structure to
        # another.
        if self._is_amid:
            raise Misuse(
                "the stream was interrupted while it put rows in order; close it, and begin another"
                " one at the checkpoint of the last batch"
            )

    def _step(self) -> int:
        """Decode, merge and build a batch if possible; return the maximum time to wait for news."""
        has_moved = self._advance()
        now = self._clock.monotonic_ms()
        is_over = self._is_over()
        # Without room, nothing is decoded until rows are returned.
        is_last = is_over or self._is_tight
        if self._outlet.is_due(now, is_last=is_last, has_moved=has_moved):
            self.made = self._hand_out(self._outlet.next())
            return 0
        if is_over and not (self._outlet.ready.size and not self._outlet.is_spent):
            self.is_finished = True
            return 0
        return 0 if has_moved else self._ask_for_more(now)

    def _advance(self) -> bool:
        """Decode and merge as much as possible; return whether there was any progress."""
        self._watch.look(is_live=self._is_live)
        has_decoded = self._decode()
        round_ = self._merge.release()
        if round_ is None:
            return has_decoded
        self._outlet.ready.add(round_)
        self._demand.reset()
        return True

    def _decode(self) -> bool:
        """Decode partitions that hold back the others, until there are enough rows for a batch."""
        rows, held = 0, self._shelves.held
        has_decoded = False
        while rows + self._outlet.ready.size < self._settings.batch_rows:
            # Compressed data grows when it is decoded. Without room, return rows before decoding
            # more.
            if self._is_tight and (self._outlet.ready.size or self._shelves.held > held):
                break
            shelf = self._find_blocking()
            decoded = None if shelf is None else self._intake.take(shelf)
            if decoded is None:
                break
            has_decoded = True
            rows += decoded
            if self._is_live and shelf is not None and not shelf.chunks:
                self._watch.look_at(shelf)
        return has_decoded

    @property
    def _is_tight(self) -> bool:
        return self._shelves.held >= self._shelves.memory

    def _find_blocking(self) -> Shelf | None:
        """Return the partition that holds back the others."""
        index = self._merge.bound().partition
        if index < len(self.shelf_of):
            return self.shelf_of[index]
        # No partition holds back the others: everything that has arrived can be released.
        return next((shelf for shelf in self.shelf_of if shelf.chunks), None)

    def _is_over(self) -> bool:
        if self._outlet.is_spent:
            return True
        return not self._is_live and self._merge.is_over

    def _hand_out(self, going: RowsInHand) -> Batch:
        rows = going.rows
        self._checkpoint_before = self.marks.maker()
        self._outlet.count(rows)
        if going.is_late.any():
            for index, count in enumerate(np.bincount(rows.indices[going.is_late]).tolist()):
                self.shelf_of[index].late += count
        self.marks.pass_rows(rows)
        self._settle(self._outlet.ready.drop(len(rows)))
        if self._settings.lateness:
            decoded_to = [shelf.decoded_to for shelf in self.shelf_of]
            self.marks.settle(self._merge, self._outlet.ready, decoded_to)
        checkpoint = self.marks.maker()
        return Batch(going.data, checkpoint, self.committer, going.late, going.rejected)

    def _settle(self, pieces: list[MergePiece[RowBlock]]) -> None:
        """Free the memory of blocks whose rows have all been returned."""
        for index, size in _free_blocks(pieces).items():
            if not self.shelf_of[index].is_gone:
                self._shelves.free(self.shelf_of[index], size)

    # Waiting.

    def _ask_for_more(self, now: int) -> int:
        """Request the partitions that are needed; return how long to wait before the next check."""
        self._demand.ask(now)
        return _LOOK_MS if self._outlet.ready.size or self._is_live else _LOOK_SELDOM_MS

    # State.

    @property
    def frontier(self) -> int:
        """The time below which only late rows can still arrive."""
        return self.marks.frontier

    @property
    def bytes(self) -> int:
        """The number of bytes of keys and values that were returned."""
        return self._outlet.bytes


def _new_shelf(range_: PartitionRange, index: int, now: int, *, is_live: bool) -> Shelf:
    """Return the empty shelf of a partition that joins."""
    return Shelf(
        range_.place,
        index,
        range_.start,
        range_.start,
        ENDLESS if is_live else range_.end,
        NO_TIME if range_.min_time_ms is None else range_.min_time_ms,
        range_.end_time_ms,
        replay_end=range_.end,
        decoded_to=range_.start,
        high_watermark=range_.high_watermark,
        last_stable_offset=range_.last_stable_offset,
        heard_at=now,
    )


def _free_blocks(pieces: list[MergePiece[RowBlock]]) -> dict[int, int]:
    """Take rows from their blocks; return the bytes of empty blocks by partition number."""
    freed: dict[int, int] = {}
    for piece in pieces:
        block = piece.run.block
        block.left -= piece.end - piece.begin
        if block.left <= 0:
            freed[piece.run.index] = freed.get(piece.run.index, 0) + block.size
    return freed
