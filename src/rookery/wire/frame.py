"""Bytes to frames, without any I/O.

On the wire a request or response is a length of four bytes (big-endian, signed) and then that many
bytes: the frame. A `FrameSplitter` provides the buffer that the next bytes are received into,
takes their number, and returns frames one at a time. A connection that may start no more work
leaves the rest in the buffer.

Memory ownership:

- A frame owns its bytes and nothing else. One that has arrived whole in the chunk is copied out
  of it: that costs a fraction of a microsecond, and a parked request of a hundred bytes does
  not keep 64 KiB alive. The chunk is therefore never viewed by a frame, and can be used again.
- A larger frame is received straight into memory of its own. That grows as the bytes arrive, so
  what a peer merely announces costs nothing. For a very large one it is the system that lets it
  grow: it only gives memory to what was touched.
- Fresh memory of that size costs more than the receiving (the system maps each page when it is
  first touched), so memory of former large frames is used again once nothing refers to it.
- A splitter without an unfinished frame holds no chunk: an idle connection costs no memory here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from sys import getrefcount, implementation
from sysconfig import get_config_var
from typing import Final, NewType, TypeAlias, cast

from rookery.errors import ProtocolError
from rookery.wire.buffer import Buffer

Frame = NewType("Frame", memoryview)
"""The contents of one request or response: header and body, without the length."""

CHUNK_BYTES: Final = 64 * 1024
PREFIX_BYTES: Final = 4
REQUEST_MINIMUM: Final = 8
"""API key, version and correlation id: no request is shorter."""
RESPONSE_MINIMUM: Final = 4
"""The correlation id: no response is shorter."""

# A frame up to this size is waited for in the chunk.
_SMALL_BYTES: Final = 16 * 1024
# Memory for a larger one: _FIRST_BYTES at first, then at most _GROWTH times what has arrived.
_FIRST_BYTES: Final = 64 * 1024
_GROWTH: Final = 4
# From here on, the system does it.
_VERY_LARGE_BYTES: Final = 4 * 1024 * 1024

Memory: TypeAlias = bytearray | mmap
"""The buffer of a large frame."""

_PREFIX: Final = struct.Struct(">i")
_HTTP: Final = frozenset(
    {b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ", b"HTTP"}
)
_TLS_RECORDS: Final = {0x15: "an alert", 0x16: "a hello"}


def _references(memories: list[Memory], number: int) -> int:
    """Count the references to some memory; every view of it is one."""
    return getrefcount(memories[number])


# The count for memory that nothing but the list refers to.
_UNSEEN: Final = _references([bytearray()], 0)
# Without the GIL, counts are split among threads and late; other interpreters have none.
_CAN_COUNT: Final = implementation.name == "cpython" and not get_config_var("Py_GIL_DISABLED")


class Chunks:
    """Receive buffers that the splitters of one event loop share."""

    __slots__ = ("_free", "_kept", "_large", "_large_bytes", "_large_limit")

    def __init__(self, kept: int = 64, large_bytes: int = 16 * 1024 * 1024) -> None:
        """Keep up to `kept` free chunks, and `large_bytes` of memory from former large frames."""
        self._free: list[memoryview] = []
        self._kept = kept
        self._large: list[Memory] = []
        self._large_bytes = 0
        self._large_limit = large_bytes if _CAN_COUNT else 0

    def take(self) -> memoryview:
        """Return a chunk for the exclusive use of one splitter."""
        return self._free.pop() if self._free else memoryview(bytearray(CHUNK_BYTES))

    def give(self, chunk: memoryview) -> None:
        """Take back a chunk that is not used any more; another size is that of a large frame."""
        if len(chunk) != CHUNK_BYTES:
            self.give_large(cast("Memory", chunk.obj))
        elif len(self._free) < self._kept:
            self._free.append(chunk)

    def take_large(self, size: int) -> Memory | None:
        """Return memory of a former frame that is large enough and unreferenced, if any."""
        for number in range(len(self._large)):
            fits = size <= len(self._large[number]) <= _GROWTH * size
            if fits and _references(self._large, number) == _UNSEEN:
                memory = self._large.pop(number)
                self._large_bytes -= len(memory)
                return memory
        return None

    def make_large(self, size: int, room: int) -> Memory:
        """Return memory of a former frame for all of a frame, else new memory for a part of it.

        Args:
            size: of the frame.
            room: the size of the part.
        """
        memory = self.take_large(size)
        if memory is not None:
            return memory
        return _pages(size) if size >= _VERY_LARGE_BYTES else bytearray(min(size, room))

    def give_large(self, memory: Memory) -> None:
        """Keep memory for another frame; its current frame may still be referenced."""
        if len(memory) > self._large_limit:
            return
        self._large.append(memory)
        self._large_bytes += len(memory)
        while self._large_bytes > self._large_limit:
            self._large_bytes -= len(self._large.pop(0))


class FrameSplitter:
    """Cuts the bytes of one connection into frames."""

    __slots__ = (
        "_chunk", "_end", "_large", "_length", "_memory", "_start", "chunks", "limit", "minimum",
        "when_large",
    )  # fmt: skip

    def __init__(
        self, limit: int, *, minimum: int = REQUEST_MINIMUM, chunks: Chunks | None = None
    ) -> None:
        """Begin at a frame's start.

        Args:
            limit: the largest frame allowed; may be changed between frames.
            minimum: the smallest frame allowed; likewise.
            chunks: where receive buffers come from, if they are shared.
        """
        self.limit = limit
        self.minimum = minimum
        self.when_large: Callable[[int], None] | None = None
        """Called by `take` when the start of a large frame has arrived, with its length."""
        self.chunks = chunks or Chunks(kept=1)
        self._chunk: memoryview | None = None
        # The memory of a large frame under way, a view of it, and its length; else None and 0.
        self._memory: Memory | None = None
        self._large: memoryview | None = None
        self._length = 0
        # Bytes received and not yet taken: [start, end) of the chunk, or [0, end) of the large.
        self._start = 0
        self._end = 0

    @property
    def pending(self) -> int:
        """How many bytes have arrived that were not given out as frames."""
        prefix = PREFIX_BYTES if self._large is not None else 0
        return self._end - self._start + prefix

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes to receive.

        It is never empty once `take` has returned None. A caller that stops taking frames must also
        stop receiving.
        """
        if self._large is not None:
            return self._room_in_large(self._large)
        chunk = self._chunk
        if chunk is None:
            chunk = self._chunk = self.chunks.take()
        elif self._end == len(chunk) or len(chunk) - self._start < _SMALL_BYTES + PREFIX_BYTES:
            self._compact(chunk)
        return chunk[self._end :]

    def note_received(self, count: int) -> None:
        """Record how many bytes were written into the last buffer that `buffer` returned."""
        self._end += count

    def adopt(self, chunk: memoryview, start: int, end: int) -> None:
        """Take over bytes in a chunk, of `chunks` or larger, while `pending` is 0."""
        if self._chunk is not None:
            self.chunks.give(self._chunk)
        self._chunk, self._start, self._end = chunk, start, end

    def take(self) -> Frame | None:
        """Return the next whole frame, or None if more bytes are needed.

        Raises:
            ProtocolError: the next frame's length is not allowed; no memory was spent on it.
        """
        if self._large is not None:
            return self._take_large(self._large)
        chunk, start = self._chunk, self._start
        if chunk is None:
            return None
        arrived = self._end - start - PREFIX_BYTES
        if arrived < 0:
            if arrived == -PREFIX_BYTES:
                self._release(chunk)
            return None
        length: int = _PREFIX.unpack_from(chunk, start)[0]
        if not self.minimum <= length <= self.limit:
            raise ProtocolError(self._complaint(length))
        start += PREFIX_BYTES
        if arrived < length:
            if length > _SMALL_BYTES:
                self._begin_large(chunk[start : self._end], length)
                if self.when_large is not None:
                    self.when_large(length)
            return None
        self._start = end = start + length
        return Frame(memoryview(bytearray(chunk[start:end])))

    def close(self) -> None:
        """Drop the received bytes after the connection is closed."""
        self.when_large = None
        if self._chunk is not None:
            self._release(self._chunk)
        self._memory = self._large = None
        self._length = self._start = self._end = 0

    def feed(self, data: Buffer) -> list[Frame]:
        """Receive bytes that are in memory already; return all frames that are whole now."""
        frames: list[Frame] = []
        rest = memoryview(data)
        while rest:
            room = self.buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.note_received(count)
            rest = rest[count:]
            while (frame := self.take()) is not None:
                frames.append(frame)
        return frames

    def _release(self, chunk: memoryview) -> None:
        self._chunk = None
        self._start = self._end = 0
        self.chunks.give(chunk)

    def _compact(self, chunk: memoryview) -> None:
        """Move an unfinished frame to the chunk's start, where there is room for its rest."""
        count = self._end - self._start
        chunk[:count] = chunk[self._start : self._end]
        self._start, self._end = 0, count

    def _begin_large(self, arrived: memoryview, length: int) -> None:
        self._move_large(arrived, length, max(_FIRST_BYTES, _GROWTH * len(arrived)))
        self._length, self._end = length, len(arrived)
        self._start = 0
        if self._chunk is not None:
            self.chunks.give(self._chunk)
            self._chunk = None

    def _room_in_large(self, large: memoryview) -> memoryview:
        if self._end == len(large):
            large = self._move_large(large, self._length, _GROWTH * self._end)
        return large[self._end :]

    def _move_large(self, arrived: memoryview, length: int, size: int) -> memoryview:
        """Move what has arrived to larger memory."""
        memory = self.chunks.make_large(length, size)
        large = memoryview(memory)[:length]
        large[: len(arrived)] = arrived
        self._memory, self._large = memory, large
        return large

    def _take_large(self, large: memoryview) -> Frame | None:
        if self._end < self._length:
            return None
        if self._memory is not None:
            self.chunks.give_large(self._memory)
        self._memory = self._large = None
        self._length = self._end = 0
        return Frame(large)

    def _complaint(self, length: int) -> str:
        """Return what is wrong with a length, and which protocol the peer probably uses."""
        first = _PREFIX.pack(length)
        if first in _HTTP:
            return f"the peer speaks HTTP ({first.decode()!r}) and not Kafka's protocol"
        if first[0] in _TLS_RECORDS and first[1] == 3:
            record = _TLS_RECORDS[first[0]]
            return f"the peer speaks TLS ({record}), and this connection is without TLS"
        if length > self.limit:
            return f"a frame of {length} bytes; at most {self.limit} are allowed"
        return f"a frame of {length} bytes; the shortest allowed has {self.minimum}"


def _pages(length: int) -> mmap:
    """Return memory that costs nothing until it is touched."""
    return mmap(-1, length, flags=MAP_PRIVATE | MAP_ANONYMOUS)


def renumber(response: Frame, correlation_id: int) -> list[Buffer]:
    """Return a response, length first, under another correlation id; its body is not copied."""
    return [struct.pack(">ii", len(response), correlation_id), response[RESPONSE_MINIMUM:]]
