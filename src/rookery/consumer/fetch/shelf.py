"""Fetched batches that are not yet decoded, shared by the fetching thread and the reader's.

    feed (event loop) ──► shelves ──► merge (the caller's thread)

One lock guards everything and is held only briefly. Bytes are counted from their arrival until the
rows made of them are returned, so the sum is the memory that the stream holds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from queue import Empty, SimpleQueue

from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.fetch.spill import SpillFiles
from rookery.consumer.order.block import Chunk
from rookery.errors import Error
from rookery.model.partition import TopicPartition

ENDLESS = (1 << 63) - 1
"""The end of a range without an end."""


class ShelfState(Enum):
    """The state of a partition."""

    UNKNOWN = "unknown"
    """No answer has arrived yet: it holds back all other partitions."""
    FETCHING = "fetching"
    """It is being read."""
    HELD = "held"
    """It is ahead of the others, and fetching is paused."""
    IDLE = "idle"
    """Live: it is empty, and the merge does not wait for it."""
    DONE = "done"
    """All of its rows were returned."""
    TRUNCATED = "truncated"
    """Retention deleted rows before they were read."""
    BLOCKED = "blocked_by_transaction"
    """An open transaction hides the following rows."""


@dataclass(slots=True, eq=False)
class Shelf:
    """One partition: its position, and the chunks that were fetched."""

    place: TopicPartition
    index: int
    """Its number in the merge."""
    start: int
    position: int
    """The next offset to fetch."""
    end: int = ENDLESS
    """The end offset (exclusive) to read."""
    min_time_ms: int = NO_TIME
    """Rows older than this are left out."""
    end_time_ms: int = ENDLESS
    """Rows at or after this time are left out."""
    replay_end: int = 0
    """Its end offset when the stream was opened."""
    decoded_to: int = 0
    """The offset after the last decoded row."""
    late: int = 0
    """The number of its late rows."""
    chunks: deque[Chunk] = field(default_factory=deque)
    held: int = 0
    """Bytes of its chunks and blocks."""
    is_answered: bool = False
    """Whether any answer has arrived."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    leader_epoch: int = -1
    """The leader epoch of the last batch fetched."""
    fault: Error | None = None
    """Why it cannot be read; raised when the merge cannot continue without it."""
    is_fetching: bool = False
    is_passed_over: bool = False
    """Whether the feed left it out of its last selection."""
    is_gone: bool = False
    """Whether it was revoked or dropped."""
    lost: int = 0
    """The number of offsets that were deleted or skipped before they were read."""
    empties: int = 0
    """How often it was fetched alone and returned no records although it must have some."""
    is_suspect: bool = False
    """Fetch it alone: it returned no records although it must have some."""
    empty_since: int | None = None
    """When it was first found empty, in monotonic milliseconds."""
    proved_at: int = 0
    """When it was last found empty."""
    heard_at: int = 0
    """When its last answer arrived."""
    retry_at: int = 0
    tries: int = 0
    problem: str = ""
    """The last error that is being retried."""
    batch_bytes: int = 0
    """The largest chunk so far: an estimate for the next one."""

    opened: int = 0
    """Bytes of its blocks."""
    block_bytes: int = 0
    """The largest block since it last had none; compressed data may be many times its chunk."""

    @property
    def largest(self) -> int:
        """The approximate size of the largest batch that it holds."""
        chunks = self.held - self.opened
        return max(min(chunks, self.batch_bytes), min(self.opened, self.block_bytes))

    @property
    def is_exhausted(self) -> bool:
        """Whether all of it was fetched."""
        return self.position >= self.end or self.is_gone

    @property
    def is_done(self) -> bool:
        """Whether it has no more rows for the merge."""
        return self.is_exhausted and not self.chunks

    @property
    def is_empty(self) -> bool:
        """Live: whether everything available was fetched."""
        return (
            self.is_answered
            and not self.chunks
            and 0 <= self.last_readable <= self.position
            and not self.is_exhausted
        )

    @property
    def last_readable(self) -> int:
        """The end of readable records, as far as it is known."""
        ends = [end for end in (self.high_watermark, self.last_stable_offset) if end >= 0]
        return min(ends, default=-1)

    @property
    def is_blocked(self) -> bool:
        """Whether an open transaction hides the following rows."""
        return (
            0 <= self.last_stable_offset < self.high_watermark
            and self.position >= self.last_stable_offset
        )

    def idle_ms(self) -> int:
        """Return how long it has been empty, as proved by answers."""
        return 0 if self.empty_since is None else self.proved_at - self.empty_since


class Shelves:
    """All partitions of a stream, and the bytes that they hold."""

    def __init__(self, memory: int, spill: SpillFiles | None = None) -> None:
        self.memory = memory
        """The maximum number of bytes that they may hold."""
        self.spill = spill
        """Where to store chunks that do not fit into memory."""
        # Not a Condition: its `__enter__` is Python code, and an interrupt in it leaves the lock
        # held.
        self.lock = threading.RLock()
        self.by_place: dict[TopicPartition, Shelf] = {}
        self.held = 0
        """Bytes of chunks and blocks."""
        self.peak = 0
        """The maximum that was held at any time."""
        self.changed: list[Shelf] = []
        """The partitions with answers since the reader last looked; guarded by the lock."""
        self.needed: list[Shelf] = []
        """The partitions that the merge waits for, the most urgent first."""
        self.failure: BaseException | None = None
        """Why the feed has ended."""
        self._wake_feed: Callable[[], None] = _nothing
        self._is_hungry = False
        self._arrivals = 0
        self._is_awaited = False
        self._bell: SimpleQueue[None] = SimpleQueue()

    def on_room(self, wake: Callable[[], None]) -> None:
        """Set the callback that wakes the feed when there is room again."""
        self._wake_feed = wake

    def put(self, shelf: Shelf, chunks: list[Chunk]) -> None:
        """Add fetched chunks; the lock must be held."""
        for chunk in chunks:
            shelf.chunks.append(chunk)
            shelf.batch_bytes = max(shelf.batch_bytes, chunk.size)
            self.charge(shelf, chunk.size)

    def charge(self, shelf: Shelf, size: int) -> None:
        """Add to (or subtract from) the bytes held; the lock must be held."""
        shelf.held += size
        self.held += size
        self.peak = max(self.peak, self.held)

    def pop(self, shelf: Shelf) -> Chunk | None:
        """Take the next chunk; its bytes count until `open` or `charge` changes that."""
        with self.lock:
            if not shelf.chunks:
                return None
            chunk = shelf.chunks.popleft()
            if self.spill is None or chunk.stored is None:
                return chunk
            whole = self.spill.take(chunk)
            self.charge(shelf, whole.size - chunk.size)
            return whole

    def open(self, shelf: Shelf, chunk: Chunk, sizes: Sequence[int]) -> None:
        """Count blocks, by their sizes, instead of the chunk that they were decoded from."""
        with self.lock:
            before = shelf.block_bytes if shelf.opened else 0
            shelf.block_bytes = max([before, *sizes])
            shelf.opened += sum(sizes)
            self.charge(shelf, sum(sizes) - chunk.size)
        self._tell_of_room()

    def free(self, shelf: Shelf, size: int) -> None:
        """Stop counting blocks whose rows have all been returned."""
        with self.lock:
            shelf.opened -= size
            self.charge(shelf, -size)
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        """Wake the feed if it waits for room and there is some."""
        with self.lock:
            is_due = self._is_hungry and self.held < self.memory
            if is_due:
                self._is_hungry = False
        if is_due:
            self._wake_feed()

    def be_hungry(self) -> None:
        """Record that the feed waits for room; the lock must be held."""
        self._is_hungry = True

    def tell(self) -> None:
        """Wake the reader; the lock must be held."""
        self._arrivals += 1
        if self._is_awaited:
            self._is_awaited = False
            self._bell.put(None)

    def fail(self, error: BaseException) -> None:
        """Report to the reader that the feed has ended, and why."""
        with self.lock:
            self.failure = error
            self.tell()

    def take_changed(self) -> list[Shelf]:
        """Return the partitions with answers since the last call."""
        with self.lock:
            changed, self.changed = self.changed, []
        return changed

    def arrivals(self) -> int:
        """Return a counter that grows with every notification."""
        with self.lock:
            return self._arrivals

    def wait(self, seen: int, timeout_ms: float) -> None:
        """Wait for a notification newer than `seen`; it may also return without one."""
        with self.lock:
            if self._arrivals != seen:
                return
            self._is_awaited = True
        with suppress(Empty):
            self._bell.get(timeout=max(timeout_ms, 0) / 1000)

    def need(self, needed: list[Shelf]) -> None:
        """Set the partitions that the merge waits for, and have them fetched."""
        with self.lock:
            is_news = needed != self.needed
            self.needed = needed
        if is_news:
            self._wake_feed()

    def is_over(self, shelf: Shelf) -> bool:
        """Return whether one more batch of a partition exceeds the memory.

        One batch may be held in excess of the memory; the largest one held counts as that batch.
        """
        largest = max((each.largest for each in self.by_place.values()), default=0)
        return self.held - largest + shelf.batch_bytes > self.memory

    def evict(self, shelves: Iterable[Shelf], room: int) -> int:
        """Spill chunks to files, or drop them to be fetched again; return the bytes freed.

        Each partition gives up all chunks that are not decoded before the next one does.
        """
        freed = 0
        with self.lock:
            for shelf in shelves:
                freed += self._store(shelf, room - freed)
                while freed < room and shelf.chunks:
                    chunk = shelf.chunks.pop()
                    shelf.position = chunk.begin
                    shelf.leader_epoch = -1  # the epoch of the previous chunk is no longer known
                    self.charge(shelf, -chunk.size)
                    freed += chunk.size
                    if self.spill is not None:
                        self.spill.drop(chunk)
        return freed

    def _store(self, shelf: Shelf, room: int) -> int:
        """Spill chunks to files, the last first, as far as they fit; return the bytes freed."""
        freed = 0
        if self.spill is None:
            return freed
        for number in range(len(shelf.chunks) - 1, -1, -1):
            chunk = shelf.chunks[number]
            if freed >= room or chunk.stored is not None:
                continue
            stored = self.spill.put(chunk)
            if stored is None:
                break
            shelf.chunks[number] = stored
            self.charge(shelf, stored.size - chunk.size)
            freed += chunk.size - stored.size
        return freed


def _nothing() -> None:
    """Do nothing: there is no feed yet."""
