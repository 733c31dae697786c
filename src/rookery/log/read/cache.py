"""Blocks of objects kept in memory, with one read for all who want the same block.

Objects in the store are whole before anything names them, so all their blocks are final. Journal
files grow. Their bytes never change once they are committed, so a block never grows stale; but the
last block of a file that is being written grows, and what lies behind the committed bytes may be
half written. So a block that the file's end cuts short is kept only as far as its first reader
asked, and is read anew for whoever needs more. A whole block is final: files are written from front
to back, and their size never runs ahead of their bytes (none is preallocated).

The views that are handed out keep their block alive after it was pushed out.
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

# Who has not asked for a block that was read ahead for so long will hardly do so.
_ABANDONED_S: Final = 10.0


class _Span(NamedTuple):
    """The part of one block that a read wants."""

    key: Key
    start: int
    end: int


class _Load(NamedTuple):
    """A read of a block under way, and how far its first reader wants it."""

    task: asyncio.Task[Buffer]
    needed: int


class BlockCache:
    """Reads through memory bounded in bytes; for one event loop."""

    def __init__(
        self,
        read: Read,
        settings: CacheSettings | None = None,
        name: Callable[[int], str] | None = None,
    ) -> None:
        """Keep nothing yet.

        Args:
            read: reads what is not in memory.
            settings: the bounds.
            name: says what an object is called, for messages.
        """
        self.name = name or _name
        """Returns what an object is called, for messages."""
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
        # Blocks of stored objects that were read ahead and not asked for yet, and since when.
        self._unasked: dict[Key, float] = {}
        self._max_unasked = max(1, self._blocks.probation_bytes // 2 // settings.stored_block_bytes)
        self.hits = 0
        """Blocks that were in memory when asked for."""
        self.misses = 0
        """Blocks that had to be read for who asked."""
        self.joined = 0
        """Blocks that were just being read when asked for."""
        self.ahead = 0
        """Blocks read before anybody asked."""

    @property
    def held_bytes(self) -> int:
        """Bytes of all blocks in memory."""
        return self._blocks.held_bytes

    @property
    def evicted(self) -> int:
        """Blocks pushed out for want of room."""
        return self._blocks.evicted

    @property
    def stored_block_bytes(self) -> int:
        """How much of an object in the store is read at once."""
        return self._settings.stored_block_bytes

    @property
    def ahead_bytes(self) -> int:
        """How far ahead of one reader objects in the store are read."""
        return self._settings.ahead_blocks * self._settings.stored_block_bytes

    @property
    def all_ahead_bytes(self) -> int:
        """How much may have been read ahead of all readers together and not be asked for yet."""
        return self._max_unasked * self._settings.stored_block_bytes

    async def read(self, object_id: int, position: int, size: int) -> memoryview:
        """Return bytes that are committed: a view of one block, a copy if they span several.

        Raises:
            Corrupt: The file ends before them.
            Error: Whatever the read below raised; nothing of it is kept.
        """
        view = self.cached(object_id, position, size)
        if view is not None:
            return view
        views = await self.views(object_id, position, size)
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    def cached(self, object_id: int, position: int, size: int) -> memoryview | None:
        """Return committed bytes at once if one block that was read from before has them all."""
        number, start = divmod(position, self._step(object_id))
        key = (object_id, number)
        block = self._blocks.get(key)
        # The first look at a block may have to read ahead, which `views` does.
        if block is None or not block.served_bytes or not 0 < size <= len(block.data) - start:
            return None
        self.hits += 1
        self._blocks.use(key, size)
        return memoryview(block.data)[start : start + size]

    async def views(self, object_id: int, position: int, size: int) -> list[memoryview]:
        """Return the same as `read` without a copy: one view for each block."""
        spans = self._spans(object_id, position, size)
        # All are begun before the first is waited for, so that they are read side by side.
        found = [self._find(span) for span in spans]
        if spans:
            self._read_ahead(spans, found[-1])
        views = []
        for span, block in zip(spans, found, strict=True):
            data = block.data if isinstance(block, CachedBlock) else await self._wait(span, block)
            self._blocks.use(span.key, span.end - span.start)
            self._unasked.pop(span.key, None)
            views.append(memoryview(data)[span.start : span.end])
        return views

    def want(self, object_id: int, position: int, size: int) -> None:
        """Begin to read blocks that will be asked for soon, as far as there is room for them."""
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
        """Forget bytes that turned out to be damaged: they may have been damaged on the way."""
        for span in self._spans(object_id, position, size):
            self._blocks.remove(span.key)

    def invalidate(self, object_id: int) -> None:
        """Forget an object after it was deleted; reads under way end without being kept."""
        self._blocks.remove_all(object_id)
        for key in [key for key in self._loads if key[0] == object_id]:
            del self._loads[key]

    async def close(self) -> None:
        """Wait for the reads under way, which may outlive those who asked for them."""
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
            # Who gives up waiting does not take the block away from the others.
            data = await asyncio.shield(load.task)
            if len(data) >= span.end:
                return data
            if load.needed >= span.end:
                raise self._too_short(span, len(data))
            # The load began before the bytes of this span were there.
            found = self._find(span)
            if isinstance(found, CachedBlock):
                return found.data
            load = found

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
        """Begin to read the next block if this is the first look at one that follows another.

        What lies behind in an object of the store may be another partition's: see `want`.
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

    def _is_old(self, found: CachedBlock | _Load) -> bool:
        if isinstance(found, _Load):
            return False
        return found.served_bytes > 0 or len(found.data) < self._settings.block_bytes

    def _was_served(self, key: Key) -> bool:
        block = self._blocks.get(key)
        return block is not None and block.served_bytes > 0

    def _step(self, object_id: int) -> int:
        settings = self._settings
        return settings.stored_block_bytes if is_stored(object_id) else settings.block_bytes

    def _has_room(self) -> bool:
        """Whether one more block of the store may be read ahead."""
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
    # A block read ahead may have nobody who waits for it; its failure is nobody's then.
    if not task.cancelled():
        task.exception()
