"""What has been fetched and not been decoded yet, between the thread that fetches and the reader's.

    feed (event loop) ──► shelves ──► merge (the caller's thread)

One lock guards it all; it is held for moments only. Bytes are counted from the moment they arrive
until the rows made of them are handed out, so that the sum is what the stream holds.
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
"""The end of what has none."""


class ShelfState(Enum):
    """How a partition stands."""

    UNKNOWN = "unknown"
    """Nothing was heard of it yet: it holds back everything."""
    FETCHING = "fetching"
    """It is read."""
    HELD = "held"
    """It is ahead of the others, and not read for the moment."""
    IDLE = "idle"
    """Live: it is empty, and not waited for."""
    DONE = "done"
    """All of it was handed out."""
    TRUNCATED = "truncated"
    """Retention passed the reader."""
    BLOCKED = "blocked_by_transaction"
    """An open transaction hides what follows."""


@dataclass(slots=True, eq=False)
class Shelf:
    """One partition: where it stands, and what was fetched of it."""

    place: TopicPartition
    index: int
    """Its number in the merge."""
    start: int
    position: int
    """The next offset to fetch."""
    end: int = ENDLESS
    """Before which rows are wanted."""
    min_time_ms: int = NO_TIME
    """Rows older than this are left out."""
    end_time_ms: int = ENDLESS
    """Rows from here on are left out."""
    replay_end: int = 0
    """Where it ended when the stream was opened."""
    decoded_to: int = 0
    """The offset behind what was decoded."""
    late: int = 0
    """How many of its rows came after their time."""
    chunks: deque[Chunk] = field(default_factory=deque)
    held: int = 0
    """Bytes of its chunks and blocks."""
    is_answered: bool = False
    """Whether anything was heard of it."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    leader_epoch: int = -1
    """Of the last batch fetched."""
    fault: Error | None = None
    """Why it cannot be read; it is raised when the merge can go no further."""
    is_fetching: bool = False
    is_passed_over: bool = False
    """Whether the feed left it out when it chose last what to ask for."""
    is_gone: bool = False
    """Whether it was taken from us, or left out."""
    lost: int = 0
    """How many offsets retention took before they were read."""
    empties: int = 0
    """How often it was asked for alone, and had nothing though it must have."""
    is_suspect: bool = False
    """Ask for it alone: it had nothing though it must have."""
    empty_since: int | None = None
    """When it was first found empty, in monotonic milliseconds."""
    proved_at: int = 0
    """When it was last found empty."""
    heard_at: int = 0
    """When it was last answered for."""
    retry_at: int = 0
    tries: int = 0
    problem: str = ""
    """What the last error was, that is being retried."""
    batch_bytes: int = 0
    """The largest chunk so far: about what one more will take."""

    opened: int = 0
    """Bytes of its blocks."""
    block_bytes: int = 0
    """The largest block since it had none: what is compressed may be many times its chunk."""

    @property
    def largest(self) -> int:
        """About the largest batch that it holds."""
        chunks = self.held - self.opened
        return max(min(chunks, self.batch_bytes), min(self.opened, self.block_bytes))

    @property
    def is_exhausted(self) -> bool:
        """Whether all of it was fetched."""
        return self.position >= self.end or self.is_gone

    @property
    def is_done(self) -> bool:
        """Whether it will bring no more rows."""
        return self.is_exhausted and not self.chunks

    @property
    def is_empty(self) -> bool:
        """Live: whether all there is was fetched."""
        return (
            self.is_answered
            and not self.chunks
            and 0 <= self.last_readable <= self.position
            and not self.is_exhausted
        )

    @property
    def last_readable(self) -> int:
        """Where readable records end, as far as it is known."""
        ends = [one for one in (self.high_watermark, self.last_stable_offset) if one >= 0]
        return min(ends, default=-1)

    @property
    def is_blocked(self) -> bool:
        """Whether an open transaction hides what follows."""
        return (
            0 <= self.last_stable_offset < self.high_watermark
            and self.position >= self.last_stable_offset
        )

    def idle_ms(self) -> int:
        """Return for how long it was seen to be empty, by answers alone."""
        return 0 if self.empty_since is None else self.proved_at - self.empty_since


class Shelves:
    """All partitions of a stream, and the bytes that they hold."""

    def __init__(self, memory: int, spill: SpillFiles | None = None) -> None:
        self.memory = memory
        """How many bytes they may hold."""
        self.spill = spill
        """Where chunks go that do not fit."""
        # No Condition: its `__enter__` is Python, and an interrupt in it leaves the lock taken.
        self.lock = threading.RLock()
        self.by_place: dict[TopicPartition, Shelf] = {}
        self.held = 0
        """Bytes of chunks and blocks."""
        self.peak = 0
        """The most that was held at any time."""
        self.changed: list[Shelf] = []
        """Those that something was heard of since the reader looked last; the lock guards it."""
        self.needed: list[Shelf] = []
        """Those that the merge waits for, the most urgent first."""
        self.failure: BaseException | None = None
        """Why the feed has ended."""
        self._wake_feed: Callable[[], None] = _nothing
        self._is_hungry = False
        self._arrivals = 0
        self._is_awaited = False
        self._bell: SimpleQueue[None] = SimpleQueue()

    def on_room(self, wake: Callable[[], None]) -> None:
        """Have the feed told when there is room again."""
        self._wake_feed = wake

    def put(self, shelf: Shelf, chunks: list[Chunk]) -> None:
        """Add what was fetched; the lock must be held."""
        for chunk in chunks:
            shelf.chunks.append(chunk)
            shelf.batch_bytes = max(shelf.batch_bytes, chunk.size)
            self.charge(shelf, chunk.size)

    def charge(self, shelf: Shelf, size: int) -> None:
        """Count bytes that are held from now on (or no more); the lock must be held."""
        shelf.held += size
        self.held += size
        self.peak = max(self.peak, self.held)

    def pop(self, shelf: Shelf) -> Chunk | None:
        """Take the next chunk; its bytes count until `open` or `charge` says otherwise."""
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
        """Count blocks, by their sizes, instead of the chunk that they were made of."""
        with self.lock:
            before = shelf.block_bytes if shelf.opened else 0
            shelf.block_bytes = max([before, *sizes])
            shelf.opened += sum(sizes)
            self.charge(shelf, sum(sizes) - chunk.size)
        self._tell_of_room()

    def free(self, shelf: Shelf, size: int) -> None:
        """Count blocks no more that nothing is left of."""
        with self.lock:
            shelf.opened -= size
            self.charge(shelf, -size)
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        """Let the feed know if it waits for room and there is some."""
        with self.lock:
            is_due = self._is_hungry and self.held < self.memory
            if is_due:
                self._is_hungry = False
        if is_due:
            self._wake_feed()

    def be_hungry(self) -> None:
        """Remember that the feed waits for room; the lock must be held."""
        self._is_hungry = True

    def tell(self) -> None:
        """Wake the reader; the lock must be held."""
        self._arrivals += 1
        if self._is_awaited:
            self._is_awaited = False
            self._bell.put(None)

    def fail(self, error: BaseException) -> None:
        """Tell the reader that nothing more will come, and why."""
        with self.lock:
            self.failure = error
            self.tell()

    def take_changed(self) -> list[Shelf]:
        """Return those that something was heard of since the last call."""
        with self.lock:
            changed, self.changed = self.changed, []
        return changed

    def arrivals(self) -> int:
        """Return a number that grows with every news."""
        with self.lock:
            return self._arrivals

    def wait(self, seen: int, timeout_ms: float) -> None:
        """Wait for news that are newer than `seen`; now and then it ends without any."""
        with self.lock:
            if self._arrivals != seen:
                return
            self._is_awaited = True
        with suppress(Empty):
            self._bell.get(timeout=max(timeout_ms, 0) / 1000)

    def need(self, needed: list[Shelf]) -> None:
        """Say what the merge waits for, and have it fetched."""
        with self.lock:
            is_news = needed != self.needed
            self.needed = needed
        if is_news:
            self._wake_feed()

    def is_over(self, shelf: Shelf) -> bool:
        """Tell whether one more batch of a partition is too much.

        The largest that is held is the one batch that may be held beyond the memory.
        """
        largest = max((one.largest for one in self.by_place.values()), default=0)
        return self.held - largest + shelf.batch_bytes > self.memory

    def evict(self, shelves: Iterable[Shelf], room: int) -> int:
        """Write chunks to files, or give them back to be fetched again; return the bytes.

        The first of the partitions give all that they have not decoded before the next ones do.
        """
        freed = 0
        with self.lock:
            for shelf in shelves:
                freed += self._store(shelf, room - freed)
                while freed < room and shelf.chunks:
                    chunk = shelf.chunks.pop()
                    shelf.position = chunk.begin
                    shelf.leader_epoch = -1  # that of the chunk before is not known any more
                    self.charge(shelf, -chunk.size)
                    freed += chunk.size
                    if self.spill is not None:
                        self.spill.drop(chunk)
        return freed

    def _store(self, shelf: Shelf, room: int) -> int:
        """Write chunks to files, the last first, as far as there is room; return the bytes."""
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
    """Wake nobody: there is no feed yet."""
