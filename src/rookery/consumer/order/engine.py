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
from rookery.consumer.faults import Misuse, OutOfMemory, Unheard
from rookery.consumer.fetch import budget
from rookery.consumer.fetch.shelf import ENDLESS, Shelf, ShelfState, Shelves
from rookery.consumer.order.block import RowBlock
from rookery.consumer.order.intake import Intake
from rookery.consumer.order.marks import PartitionMarks
from rookery.consumer.order.merge import Bound, Merge, MergePiece
from rookery.consumer.output.arrow import Numbers
from rookery.consumer.output.batch import Batch, OffsetCommitter
from rookery.consumer.output.outlet import Outlet, RowsInHand
from rookery.consumer.output.shape import BatchShape
from rookery.consumer.ranges import PartitionRange
from rookery.consumer.settings import StreamSettings, ms
from rookery.errors import Error
from rookery.model.partition import TopicPartition

# How long the proof that a partition is empty remains valid without new answers.
_FRESH_MS: Final = 2_000
# How often to check for work that no notification announces.
_LOOK_MS: Final = 20
_LOOK_SELDOM_MS: Final = 100
_MOST_NEEDED: Final = 64


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
        self._looked_at = 0
        self._ready_since: int | None = None
        self._blocked_since: int | None = None
        self._is_amid = False
        self._checkpoint_before = self.marks.maker()
        self.made: Batch | None = None
        """The next batch. It stays here until it is taken, even if the caller was interrupted."""
        self.committer: OffsetCommitter
        """Commits for batches."""
        self.shelf_of: list[Shelf] = []
        """Shelves by their partition number in the merge."""
        self.is_finished = False
        """Whether all rows were returned."""
        self.is_interrupted = False
        """Whether a waiting caller must stop waiting."""

    # Partitions join and leave.

    def resume(self, checkpoint: Checkpoint) -> None:
        """Resume at a checkpoint; call this before any partition joins."""
        self.marks.frontier, self.marks.rows = checkpoint.frontier_ms, checkpoint.rows

    def join(self, one: PartitionRange) -> Shelf:
        """Add a partition; its rows are ordered after those already returned."""
        mark = one.mark or PartitionMark(one.start)
        index = self._merge.join(mark.clock, self.marks.frontier, mark.passed)
        shelf = Shelf(
            one.place,
            index,
            one.start,
            one.start,
            ENDLESS if self._is_live else one.end,
            NO_TIME if one.min_time_ms is None else one.min_time_ms,
            one.end_time_ms,
            replay_end=one.end,
            decoded_to=one.start,
            high_watermark=one.high_watermark,
            last_stable_offset=one.last_stable_offset,
            heard_at=self._clock.monotonic_ms(),
        )
        self.shelf_of.append(shelf)
        self.marks.join(one.place, mark)
        self._shape.join(one.place)
        with self._shelves.lock:
            self._shelves.by_place[one.place] = shelf
            self._shelves.changed.append(shelf)
            self._shelves.tell()
        return shelf

    def join_all(self, ranges: Sequence[PartitionRange]) -> None:
        """Add partitions; callable from any thread."""
        with self._guard:
            for one in ranges:
                if one.place not in self._shelves.by_place:
                    self.join(one)

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
        if self._may_emit(now, is_over=is_over, has_moved=has_moved):
            self.made = self._hand_out(self._outlet.next())
            return 0
        if is_over and not (self._outlet.ready.size and not self._outlet.is_spent):
            self.is_finished = True
            return 0
        return 0 if has_moved else self._ask_for_more(now)

    def _advance(self) -> bool:
        """Decode and merge as much as possible; return whether there was any progress."""
        self._look_at_shelves()
        has_decoded = self._decode()
        round_ = self._merge.release()
        if round_ is None:
            return has_decoded
        self._outlet.ready.add(round_)
        self._blocked_since = None
        return True

    def _look_at_shelves(self) -> None:
        """Update the merge: which partitions are done and, in live mode, which are idle."""
        changed = self._shelves.take_changed()
        for shelf in changed:
            self._merge.set_done(shelf.index, is_done=shelf.is_done)
        if self._is_live:
            now = self._clock.monotonic_ms()
            # Only answers prove that a partition is idle, and the proof expires.
            is_due = now - self._looked_at >= _LOOK_SELDOM_MS
            for shelf in self.shelf_of if is_due else changed:
                self._merge.set_idle(shelf.index, is_idle=self._is_idle(shelf, now))
            if is_due:
                self._looked_at = now

    def _is_idle(self, shelf: Shelf, now: int) -> bool:
        if shelf.is_gone or not shelf.is_empty or now - shelf.proved_at > _FRESH_MS:
            return False
        limit = self._settings.max_idle
        if shelf.is_blocked:
            limit = self._settings.max_transaction_wait
        return shelf.idle_ms() >= ms(limit)

    def _decode(self) -> bool:
        """Decode partitions that hold back the others, until there are enough rows for a batch."""
        rows, held = 0, self._shelves.held
        has_decoded = False
        while rows + self._outlet.ready.size < self._settings.batch_rows:
            # Compressed data grows when it is decoded. Without room, return rows before decoding
            # more.
            if self._is_tight and (self._outlet.ready.size or self._shelves.held > held):
                break
            shelf = self._blocking()
            found = None if shelf is None else self._intake.take(shelf)
            if found is None:
                break
            has_decoded = True
            rows += found
            if self._is_live and shelf is not None and not shelf.chunks:
                is_idle = self._is_idle(shelf, self._clock.monotonic_ms())
                self._merge.set_idle(shelf.index, is_idle=is_idle)
        return has_decoded

    @property
    def _is_tight(self) -> bool:
        return self._shelves.held >= self._shelves.memory

    def _blocking(self) -> Shelf | None:
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

    def _may_emit(self, now: int, *, is_over: bool, has_moved: bool) -> bool:
        if not self._outlet.may_go():
            self._ready_since = None
            return False
        if self._ready_since is None:
            self._ready_since = now
        is_late = now - self._ready_since >= ms(self._settings.batch_wait)
        is_full = self._outlet.ready.size >= self._settings.batch_rows
        return is_full or is_over or self._is_tight or (not has_moved and is_late)

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
        self._ready_since = None
        checkpoint = self.marks.maker()
        return Batch(going.data, checkpoint, self.committer, going.late, going.rejected)

    def _settle(self, pieces: list[MergePiece[RowBlock]]) -> None:
        """Free the memory of blocks whose rows have all been returned."""
        freed: dict[int, int] = {}
        for piece in pieces:
            block = piece.run.block
            block.left -= piece.end - piece.begin
            if block.left <= 0:
                freed[piece.run.index] = freed.get(piece.run.index, 0) + block.size
        for index, size in freed.items():
            if not self.shelf_of[index].is_gone:
                self._shelves.free(self.shelf_of[index], size)

    # Waiting.

    def _ask_for_more(self, now: int) -> int:
        """Request the partitions that are needed; return how long to wait before the next check."""
        if not self._outlet.ready.size:
            self._raise_fault(self._merge.bound(), now)
        needed = [
            shelf
            for index in self._merge.lagging()[:_MOST_NEEDED].tolist()
            if not (shelf := self.shelf_of[index]).chunks and not shelf.is_exhausted
        ]
        self._make_room(needed)
        self._shelves.need(needed)
        return _LOOK_MS if self._outlet.ready.size or self._is_live else _LOOK_SELDOM_MS

    def _raise_fault(self, bound: Bound, now: int) -> None:
        """Raise the fault of the partition that holds back the others."""
        is_held = bound.partition < len(self.shelf_of)
        for shelf in [self.shelf_of[bound.partition]] if is_held else self.shelf_of:
            if shelf.fault is not None and not shelf.chunks:
                fault = shelf.fault
                with self._shelves.lock:
                    shelf.fault = None  # asking again tries again
                self._shelves.need([])
                raise fault
        if is_held:
            self._check_deadline(self.shelf_of[bound.partition], now)

    def _check_deadline(self, shelf: Shelf, now: int) -> None:
        if self._blocked_since is None:
            self._blocked_since = now
        deadline = ms(self._settings.deadline)
        if now - max(shelf.heard_at, self._blocked_since) > deadline:
            self._blocked_since = None
            why = shelf.problem or "no broker has answered for it"
            raise Unheard([shelf.place], deadline, f"the last problem: {why}")

    def _make_room(self, needed: Sequence[Shelf]) -> None:
        """Make room to fetch the partitions that the merge waits for."""
        shelves = self._shelves
        if not needed or self._outlet.ready.size or shelves.held < shelves.memory:
            return
        first = needed[0]
        room = max(first.batch_bytes, 1) + shelves.held - shelves.memory
        # The partitions furthest ahead are needed last.
        ahead = [self.shelf_of[index] for index in self._merge.lagging()[::-1].tolist()]
        if shelves.evict([shelf for shelf in ahead if shelf is not first], room):
            return
        if shelves.is_over(first):
            raise self._out_of_memory()

    def _out_of_memory(self) -> OutOfMemory:
        """Report how much memory the next rows of all partitions take, as far as it is known."""
        wanting = [shelf for shelf in self.shelf_of if shelf.held or not shelf.is_exhausted]
        most = max((shelf.batch_bytes for shelf in wanting), default=0)
        needed = sum(max(shelf.held, shelf.batch_bytes or most) for shelf in wanting)
        places = [shelf.place for shelf in wanting]
        needed = budget.enough(max(needed, self._shelves.held + most))
        return OutOfMemory(needed, self._settings.memory, places)

    # State.

    @property
    def frontier(self) -> int:
        """The time below which only late rows can still arrive."""
        return self.marks.frontier

    @property
    def clocks(self) -> Numbers:
        """The highest time seen in each partition."""
        return self._merge.clocks

    @property
    def bytes(self) -> int:
        """The number of bytes of keys and values that were returned."""
        return self._outlet.bytes

    @property
    def has_caught_up(self) -> bool:
        """Whether every row that existed at the start was returned."""
        return all(
            shelf.is_gone or self.released(shelf) >= shelf.replay_end for shelf in self.shelf_of
        )

    def pending_rows(self, index: int) -> int:
        """Return the number of decoded rows of a partition that were not yet returned."""
        waiting = sum(
            int(np.count_nonzero(rows.indices == index)) for rows in self._outlet.ready.waiting()
        )
        return waiting + sum(len(run.keys) - run.at for run in self._merge.runs(index))

    def released(self, shelf: Shelf) -> int:
        """Return the offset before which everything was returned."""
        passed = int(self.marks.offsets[shelf.index])
        if shelf.chunks or self.pending_rows(shelf.index):
            return passed
        return max(shelf.position, passed)

    def state(self, shelf: Shelf) -> ShelfState:
        """Return the state of a partition."""
        is_empty = not shelf.chunks and not self.pending_rows(shelf.index)
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
