"""Limits: unsent responses of one connection, unanswered requests of all, and started ones.

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

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses that the client can read now."""
        return self.waiting + self.buffered

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


# This many units of work start in one turn. A request is one unit, and one more for each 64 KiB.
_TURN_UNITS: Final = 64
_UNIT_BYTES: Final = 64 * 1024
# The units of one connection, while others wait.
_SHARE: Final = 8

Continue = Callable[[], None]
"""Called when a connection may start more requests."""


def units_of(size: int) -> int:
    """Return the units of a request of some bytes."""
    return 1 + size // _UNIT_BYTES


class TurnBudget:
    """Counts started requests, and lets connections wait in line for the next turn.

    A request that waits, such as a produce, needs several turns of the event loop. Without a limit
    a turn takes longer with every busy client, and such a request waits for all of them in each of
    its turns. Connections that want more than is left wait in line; each gets an equal share.
    """

    __slots__ = ("_is_due", "_left", "_waiting")

    def __init__(self) -> None:
        self._left = _TURN_UNITS
        self._waiting: dict[Continue, None] = {}
        self._is_due = False

    def grant(self) -> int:
        """Return how many units of work a connection may start now; 0 if it must wait."""
        return min(self._left, _SHARE) if self._waiting else self._left

    def spend(self, units: int) -> None:
        """Count work that was started; the last request may exceed the limit."""
        self._left = max(0, self._left - units)
        if not self._left:
            self._schedule()

    def wait(self, resume: Continue) -> None:
        """Call a connection when it may start more requests, in order of the calls."""
        self._waiting[resume] = None
        self._schedule()

    def forget(self, resume: Continue) -> None:
        """Remove a waiter whose connection is closed."""
        self._waiting.pop(resume, None)

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn: connections that wait come first."""
        self._is_due = False
        self._left = _TURN_UNITS
        while self._waiting and self._left:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()


DEFAULT_BYTES: Final = 512 * 1024 * 1024

Resume = Callable[[], bool]
"""Called when there is room again; returns whether the connection now reads."""


class Budget:
    """Counts received bytes until their requests are answered; connections wait while it is full.

    The limit is soft: a connection that may read can receive one more chunk. If unfinished frames
    alone fill the budget, nothing is released until one of them is completed. Then one connection
    at a time is favoured and continues to read until its frame is complete.
    """

    __slots__ = ("_favoured", "_waiting", "_working", "limit", "turn", "used")

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.turn = TurnBudget()
        """Limits the requests that the same connections start in one turn of the event loop."""
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
