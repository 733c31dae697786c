"""Limits for buffered bytes: responses of one connection, and unanswered requests of all.

`Outbox` hands a transport no more than it is about to send. Responses that a client has not read
stay here, where they are counted, and each part is released as soon as it was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from rookery.wire.buffer import Buffer
from rookery.wire.frame import CHUNK_BYTES

Answer = list[Buffer] | tuple[Buffer, ...] | None
"""A response's parts, length first; None if there is no response (acks=0)."""

# Responses that are ready together are gathered up to this many bytes before a write.
_GATHERED_BYTES: Final = 256 * 1024
# Longer data goes to the transport in pieces of this size.
_PIECE_BYTES: Final = 256 * 1024


class Outbox:
    """Gathers responses, and writes them as fast as the client reads."""

    __slots__ = (
        "_gathered", "_gathered_bytes", "_rest", "_rest_bytes", "is_writable", "transport",
        "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_writable = True
        """Whether the client reads: false while the transport's buffer is full."""
        self.written = 0
        """Bytes that were handed to the transport."""
        self._gathered: list[Buffer] = []
        self._gathered_bytes = 0
        # Parts that wait until the transport has sent its buffer.
        self._rest: deque[Buffer] = deque()
        self._rest_bytes = 0

    @property
    def waiting(self) -> int:
        """Bytes that were not handed to the transport yet."""
        return self._rest_bytes + self._gathered_bytes

    @property
    def buffered(self) -> int:
        """Bytes in the transport's buffer."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def gather(self, answer: Answer, count: int) -> None:
        """Add a response of `count` bytes, to be written with the next ones."""
        if answer:
            self._gathered += answer
            self._gathered_bytes += count
            if self._gathered_bytes > _GATHERED_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write the gathered responses, in one call if they are short."""
        parts, count, transport = self._gathered, self._gathered_bytes, self.transport
        if not parts:
            return
        self._gathered, self._gathered_bytes = [], 0
        if transport is None or transport.is_closing():
            return
        if self.is_writable and count <= _PIECE_BYTES and not self._rest:
            self.written += count
            transport.writelines(parts)
            return
        self._rest += parts
        self._rest_bytes += count
        self.feed()

    def feed(self) -> None:
        """Hand waiting data to the transport, until its buffer is full."""
        transport = self.transport
        if transport is None:
            return
        while self._rest and self.is_writable and not transport.is_closing():
            piece, count = self._next_piece()
            self._rest_bytes -= count
            self.written += count
            transport.writelines(piece)

    def close(self) -> None:
        """Release everything after the client has disconnected."""
        self.transport = None
        self._gathered, self._gathered_bytes = [], 0
        self._rest.clear()
        self._rest_bytes = 0

    def _next_piece(self) -> tuple[list[Buffer], int]:
        piece: list[Buffer] = []
        room = _PIECE_BYTES
        while self._rest and room:
            part = self._rest.popleft()
            if len(part) > room:
                view = memoryview(part)
                self._rest.appendleft(view[room:])
                part = view[:room]
            piece.append(part)
            room -= len(part)
        return piece, _PIECE_BYTES - room


DEFAULT_BYTES: Final = 512 * 1024 * 1024

Resume = Callable[[], bool]
"""Called when there is room again; returns whether the connection now reads."""


class Budget:
    """Counts received bytes until their requests are answered; connections wait while it is full.

    The limit is soft: a connection that may read can receive one more chunk. If unfinished frames
    alone fill the budget, nothing is released until one of them is completed. Then one connection
    at a time is favoured and continues to read until its frame is complete.
    """

    __slots__ = ("_favoured", "_waiting", "_working", "limit", "used")

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        # The part of `used` that belongs to requests in progress, and will be released with them.
        self._working = 0
        self._waiting: dict[Resume, None] = {}
        self._favoured: Resume | None = None

    def receive(self, count: int) -> None:
        """Count bytes that have arrived."""
        self.used += count

    def start(self, count: int) -> None:
        """Record that some of the received bytes now belong to a request in progress."""
        self._working += count
        self._favoured = None

    def finish(self, count: int) -> None:
        """Release the bytes of answered requests."""
        self._working -= count
        self.drop(count)

    def drop(self, count: int) -> None:
        """Release bytes of requests that were answered immediately, or never completed."""
        self.used -= count
        self._favoured = None
        if self._waiting:
            self._wake()

    def may_read(self, resume: Resume) -> bool:
        """Return whether a connection may read; if not, `resume` is called when it can retry."""
        if self.used < self.limit:
            return True
        if self._working <= 0 and (self._favoured is None or self._favoured == resume):
            self._favoured = resume
            return True
        self._waiting[resume] = None
        return False

    def forget(self, resume: Resume) -> None:
        """Remove a waiter whose connection is closed."""
        self._waiting.pop(resume, None)
        if self._favoured == resume:
            self._favoured = None

    def _wake(self) -> None:
        """Let as many connections read as there is room for, in order of arrival."""
        room = self.limit - self.used
        if room <= 0 and self._working <= 0 and self._favoured is None:
            room = 1
        for resume in list(self._waiting):
            if room <= 0:
                return
            del self._waiting[resume]
            if resume():
                room -= CHUNK_BYTES
