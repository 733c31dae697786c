"""Cache of object blocks in memory; concurrent requests for a block share one read.

Objects in the store are complete before anything references them, so all their blocks are final.
Journal files grow. Committed bytes never change, so a block never becomes stale. But the last block
of a file that is being written grows, and bytes after the committed ones may be half written. A
block that the end of the file cuts short is therefore kept only as far as its first reader asked. A
reader that needs more reads it again. A full block is final: files are written sequentially, and
their size never exceeds their bytes (no file is preallocated).

The returned views keep their block alive after it was evicted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from rookery.clock import loop_seconds
from rookery.errors import ConfigError, Corrupt
from rookery.formats.keys import is_stored, journal_name, object_key
from rookery.log.read.objects import Read
from rookery.log.read.queues import CachedBlock, Key, TwoQueues
from rookery.log.settings import CacheSettings
from rookery.wire.buffer import Buffer

# A block that was read ahead and not requested for this long is unlikely to be requested.
_ABANDONED_S: Final = 10.0


class _Span(NamedTuple):
    """The part of one block that a read wants."""

    key: Key
    start: int
    end: int


class _Load(NamedTuple):
    """A read of a block in progress, and how far its first reader needs it."""

    task: asyncio.Task[Buffer]
    needed: int


class BlockCache:
    """Reads through a cache bounded in bytes; for one event loop."""

    def __init__(
        self,
        read: Read,
        settings: CacheSettings | None = None,
        name: Callable[[int], str] | None = None,
    ) -> None:
        """Start with an empty cache.

        Args:
            read: reads blocks that are not in memory.
            settings: the bounds.
            name: returns the name of an object, for messages.
        """
        self.name = name or _name
        """Returns the name of an object, for messages."""
        self._settings = settings = settings or CacheSettings()
        _check(settings)
        self._read = read
        self._blocks = TwoQueues(
            settings.max_bytes,
            settings.max_bytes * settings.probation_percent // 100,
            max(1, settings.max_bytes // settings.block_bytes),
        )
        self._loads: dict[Key, _Load] = {}
        self._tasks: set[asyncio.Task[Buffer]] = set()
        self._aheads: set[asyncio.Task[Buffer]] = set()
        # Blocks of stored objects that were read ahead and not requested yet, with the time of the
        # read.
        self._unasked: dict[Key, float] = {}
        self._max_unasked = max(1, self._blocks.probation_bytes // 2 // settings.stored_block_bytes)
        self.hits = 0
        """Blocks that were in memory when requested."""
        self.misses = 0
        """Blocks that had to be read on request."""
        self.joined = 0
        """Blocks that were already being read when requested."""
        self.ahead = 0
        """Blocks read before they were requested."""

    @property
    def held_bytes(self) -> int:
        """Bytes of all blocks in memory."""
        return self._blocks.held_bytes

    @property
    def evicted(self) -> int:
        """Blocks evicted for lack of space."""
        return self._blocks.evicted

    @property
    def stored_block_bytes(self) -> int:
        """The number of bytes of a stored object that one request reads."""
        return self._settings.stored_block_bytes

    @property
    def ahead_bytes(self) -> int:
        """How many bytes stored objects are read ahead of one reader."""
        return self._settings.ahead_blocks * self._settings.stored_block_bytes

    @property
    def all_ahead_bytes(self) -> int:
        """The bound on bytes read ahead for all readers together and not requested yet."""
        return self._max_unasked * self._settings.stored_block_bytes

    async def read(self, object_id: int, position: int, size: int) -> memoryview:
        """Return committed bytes: a view of one block, or a copy if they span several.

        Raises:
            Corrupt: The file ends before them.
            Error: Any error of the underlying read; nothing of it is kept.
        """
        view = self.find_cached(object_id, position, size)
        if view is not None:
            return view
        views = await self.views(object_id, position, size)
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    def find_cached(self, object_id: int, position: int, size: int) -> memoryview | None:
        """Return committed bytes without waiting if one block, used before, holds them all."""
        number, start = divmod(position, self._step(object_id))
        key = (object_id, number)
        block = self._blocks.get(key)
        # The first use of a block may trigger read-ahead, which `views` does.
        if block is None or not block.served_bytes or not 0 < size <= len(block.data) - start:
            return None
        self.hits += 1
        self._blocks.use(key, size)
        return memoryview(block.data)[start : start + size]

    async def views(self, object_id: int, position: int, size: int) -> list[memoryview]:
        """Return the same bytes as `read` without a copy: one view for each block."""
        spans = self._spans(object_id, position, size)
        # Start all reads before waiting for the first, so that they run in parallel.
        blocks = [self._find(span) for span in spans]
        if spans:
            self._read_ahead(spans, blocks[-1])
        views = []
        for span, block in zip(spans, blocks, strict=True):
            data = block.data if isinstance(block, CachedBlock) else await self._wait(span, block)
            self._blocks.use(span.key, span.end - span.start)
            self._unasked.pop(span.key, None)
            views.append(memoryview(data)[span.start : span.end])
        return views

    def want(self, object_id: int, position: int, size: int) -> None:
        """Start to read blocks that will be requested soon, as far as there is room for them."""
        for span in self._spans(object_id, position, size):
            key = span.key
            if key in self._blocks or key in self._loads:
                continue
            if not self._has_room():
                return
            self.ahead += 1
            self._unasked[key] = loop_seconds()
            self._start(key, 0)

    def drop(self, object_id: int, position: int, size: int) -> None:
        """Drop bytes that turned out to be damaged: the damage may have happened in transit."""
        for span in self._spans(object_id, position, size):
            self._blocks.remove(span.key)

    def invalidate(self, object_id: int) -> None:
        """Drop an object after it was deleted; the results of reads in progress are not kept."""
        self._blocks.remove_all(object_id)
        for key in [key for key in self._loads if key[0] == object_id]:
            del self._loads[key]

    async def close(self) -> None:
        """Wait for reads in progress, which may outlive the callers that requested them."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spans(self, object_id: int, position: int, size: int) -> list[_Span]:
        if position < 0 or size < 0:
            raise ValueError(f"cannot read {size} bytes at position {position}")
        step = self._step(object_id)
        end = position + size
        return (
            [
                _Span((object_id, start // step), max(position - start, 0), min(end - start, step))
                for start in range(position - position % step, end, step)
            ]
            if size
            else []
        )

    def _find(self, span: _Span) -> CachedBlock | _Load:
        block = self._blocks.get(span.key)
        if block is not None and len(block.data) >= span.end:
            self.hits += 1
            return block
        load = self._loads.get(span.key)
        if load is not None:
            self.joined += 1
            return load
        self.misses += 1
        return self._start(span.key, span.end)

    async def _wait(self, span: _Span, load: _Load) -> Buffer:
        while True:
            # A caller that is cancelled must not cancel the read for the others.
            data = await asyncio.shield(load.task)
            if len(data) >= span.end:
                return data
            if load.needed >= span.end:
                raise self._too_short(span, len(data))
            # The load began before the bytes of this span were written.
            block = self._find(span)
            if isinstance(block, CachedBlock):
                return block.data
            load = block

    def _start(self, key: Key, needed: int) -> _Load:
        task = asyncio.get_running_loop().create_task(self._fill(key, needed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_retrieve)
        load = self._loads[key] = _Load(task, needed)
        return load

    async def _fill(self, key: Key, needed: int) -> Buffer:
        task = asyncio.current_task()
        step = self._step(key[0])
        try:
            data = await self._read(key[0], key[1] * step, step)
            if len(data) < step and not is_stored(key[0]):
                data = data[:needed]
            if data and self._is_wanted(key, task):
                self._blocks.put(key, CachedBlock(data))
            return data
        finally:
            if self._is_wanted(key, task):
                del self._loads[key]

    def _is_wanted(self, key: Key, task: asyncio.Task[Buffer] | None) -> bool:
        load = self._loads.get(key)
        return load is not None and load.task is task

    def _read_ahead(self, spans: list[_Span], last: CachedBlock | _Load) -> None:
        """Start to read the next block on the first use of a block that follows another.

        In a stored object the following bytes may belong to another partition: see `want`.
        """
        object_id, number = spans[-1].key
        if is_stored(object_id):
            return
        following = (object_id, number + 1)
        if len(self._aheads) >= self._settings.max_ahead or self._is_old(last):
            return
        if following in self._blocks or following in self._loads:
            return
        if len(spans) > 1 or self._was_served((object_id, number - 1)):
            self.ahead += 1
            task = self._start(following, 0).task
            self._aheads.add(task)
            task.add_done_callback(self._aheads.discard)

    def _is_old(self, block: CachedBlock | _Load) -> bool:
        if isinstance(block, _Load):
            return False
        return block.served_bytes > 0 or len(block.data) < self._settings.block_bytes

    def _was_served(self, key: Key) -> bool:
        block = self._blocks.get(key)
        return block is not None and block.served_bytes > 0

    def _step(self, object_id: int) -> int:
        settings = self._settings
        return settings.stored_block_bytes if is_stored(object_id) else settings.block_bytes

    def _has_room(self) -> bool:
        """Whether one more stored block may be read ahead."""
        unasked = self._unasked
        if len(unasked) >= self._max_unasked:
            old = loop_seconds() - _ABANDONED_S
            for key, since in list(unasked.items()):
                if since < old or (key not in self._blocks and key not in self._loads):
                    del unasked[key]
        return len(unasked) < self._max_unasked

    def _too_short(self, span: _Span, length: int) -> Corrupt:
        object_id, number = span.key
        start = number * self._step(object_id)
        return Corrupt(
            f"{self.name(object_id)} ends at or before position {start + length}, but bytes up to"
            f" {start + span.end} were committed to it; it was cut off"
        )


def _name(object_id: int) -> str:
    if is_stored(object_id):
        return f"object {object_key(object_id)}"
    return f"journal file {journal_name(object_id)}"


def _check(settings: CacheSettings) -> None:
    for name in ("block_bytes", "stored_block_bytes"):
        value = getattr(settings, name)
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be 1 or more")
    if settings.max_bytes < 0:
        raise ConfigError(f"max_bytes is {settings.max_bytes}; it must be 0 or more")
    if not 0 <= settings.probation_percent <= 100:
        raise ConfigError(f"probation_percent is {settings.probation_percent}; it must be 0 to 100")


def _retrieve(task: asyncio.Task[Buffer]) -> None:
    # No caller may be waiting for a block that was read ahead. Its failure is ignored then.
    if not task.cancelled():
        task.exception()
