"""Bounds on buffered bytes: answers of one connection, and unanswered requests of all.

`Outbox` hands a transport no more than it is about to send. Answers that a client has not read stay
here, where they are counted, and each part is released as soon as it was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from rookery.wire.buffer import Buffer
from rookery.wire.frame import CHUNK_BYTES

Answer = list[Buffer] | tuple[Buffer, ...] | None
"""An answer's parts, length first; None if none is wanted (acks=0)."""

# Answers that are ready at once are gathered up to so many bytes before they are written.
_GATHERED_BYTES: Final = 256 * 1024
# What is longer goes to the transport in pieces of this size.
_PIECE_BYTES: Final = 256 * 1024


class Outbox:
    """Gathers answers, and writes them as fast as the client reads."""

    __slots__ = (
        "_gathered", "_gathered_bytes", "_rest", "_rest_bytes", "is_writable", "transport",
        "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_writable = True
        """Whether the client reads: false while the transport has enough to send."""
        self.written = 0
        """Bytes that were handed to the transport."""
        self._gathered: list[Buffer] = []
        self._gathered_bytes = 0
        # Parts that wait until the transport has sent what it has.
        self._rest: deque[Buffer] = deque()
        self._rest_bytes = 0

    @property
    def waiting(self) -> int:
        """Bytes that the transport has not been handed."""
        return self._rest_bytes + self._gathered_bytes

    @property
    def buffered(self) -> int:
        """Bytes that the transport has, and the system has not."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def gather(self, answer: Answer, count: int) -> None:
        """Take an answer of so many bytes, to be written with the next ones."""
        if answer:
            self._gathered += answer
            self._gathered_bytes += count
            if self._gathered_bytes > _GATHERED_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write what was gathered, in one call if it is short."""
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
        """Hand on what waits, until the transport has enough."""
        transport = self.transport
        if transport is None:
            return
        while self._rest and self.is_writable and not transport.is_closing():
            piece, count = self._next_piece()
            self._rest_bytes -= count
            self.written += count
            transport.writelines(piece)

    def close(self) -> None:
        """Let everything go: the client is gone."""
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
"""Called when there is room again; returns whether the connection does read now."""


class Budget:
    """Counts received bytes until their requests are answered; connections wait while it is full.

    It is a mark and not a wall: a connection that may read can bring one chunk more. When
    unfinished frames alone fill it, nothing would ever be given back unless one of them gets its
    rest; then one connection at a time is favoured and reads on until its frame is whole.
    """

    __slots__ = ("_favoured", "_waiting", "_working", "limit", "used")

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        # The part of `used` that belongs to requests under way, and so will come back by itself.
        self._working = 0
        self._waiting: dict[Resume, None] = {}
        self._favoured: Resume | None = None

    def receive(self, count: int) -> None:
        """Count bytes that have arrived."""
        self.used += count

    def start(self, count: int) -> None:
        """Note that some of the bytes received now belong to a request under way."""
        self._working += count
        self._favoured = None

    def finish(self, count: int) -> None:
        """Give back the bytes of requests that are answered."""
        self._working -= count
        self.drop(count)

    def drop(self, count: int) -> None:
        """Give back bytes of requests that were answered at once, or never became whole."""
        self.used -= count
        self._favoured = None
        if self._waiting:
            self._wake()

    def may_read(self, resume: Resume) -> bool:
        """Tell whether a connection may read; if not, `resume` is called when it may ask again."""
        if self.used < self.limit:
            return True
        if self._working <= 0 and (self._favoured is None or self._favoured == resume):
            self._favoured = resume
            return True
        self._waiting[resume] = None
        return False

    def forget(self, resume: Resume) -> None:
        """Stop waiting: the connection is gone."""
        self._waiting.pop(resume, None)
        if self._favoured == resume:
            self._favoured = None

    def _wake(self) -> None:
        """Let as many read as there is room for, in the order in which they came."""
        room = self.limit - self.used
        if room <= 0 and self._working <= 0 and self._favoured is None:
            room = 1
        for resume in list(self._waiting):
            if room <= 0:
                return
            del self._waiting[resume]
            if resume():
                room -= CHUNK_BYTES
