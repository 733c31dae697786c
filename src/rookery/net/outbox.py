"""Answers of one connection on their way to its client.

A transport is handed no more than it is about to send: what a client does not read stays here,
where each part is let go as soon as it went out, and can be counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from rookery.wire.buffer import Buffer

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
