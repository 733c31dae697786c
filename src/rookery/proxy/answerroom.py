"""Limits the memory for responses that clients have not read.

With mirror nodes, a broker's connection is read while its client reads and the next large response
fits into the memory that all clients share. A large response is counted when its length is known,
before it is received.

With broker nodes, a client's response can have parts of several brokers. Parts wait for room while
their client has nothing in memory, and are admitted together: a part that has arrived never
occupies the room that another part of the same response waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from rookery.net.connection import Connection
from rookery.net.upstream import Upstream


class AnswerRoom:
    """Pauses the broker's connection of one client until there is room for its next response."""

    __slots__ = ("_connection", "_is_stuck", "_upstream", "_waiting")

    def __init__(self, connection: Connection, upstream: Upstream) -> None:
        """Couple both.

        Args:
            connection: the connection of the client.
            upstream: the connection to the broker, for this client alone.
        """
        self._connection = connection
        self._upstream = upstream
        self._is_stuck = False
        self._waiting: asyncio.Task[None] | None = None
        connection.when_stuck(lambda is_stuck: self._follow(is_stuck=is_stuck))
        upstream.when_large(self._receive)
        upstream.when_lost(self._give_up)

    def _follow(self, *, is_stuck: bool) -> None:
        self._is_stuck = is_stuck
        self._regulate()

    def _receive(self, size: int) -> None:
        """Count a large response, at once or when there is room for it."""
        if not self._connection.answers.is_full:
            self._connection.promise(size)
            return
        self._waiting = asyncio.get_running_loop().create_task(self._wait(size))
        self._regulate()

    async def _wait(self, size: int) -> None:
        await self._connection.answers.wait()
        # At once: the next one that waits must see it counted.
        self._waiting = None
        if self._connection.is_made:
            self._connection.promise(size)
            self._regulate()

    def _regulate(self) -> None:
        if self._is_stuck or self._waiting is not None:
            self._upstream.pause()
        else:
            self._upstream.resume()

    def _give_up(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()


class ResponseSource(Protocol):
    """A connection to a broker whose reading can be stopped and resumed."""

    @property
    def is_over(self) -> bool:
        """Whether it is closed."""

    def hold(self, *, is_held: bool) -> None:
        """Stop or resume reading, because there is no room for a response."""


class PartRoom:
    """Delays the large responses of several brokers to one client until there is room."""

    __slots__ = ("_connection", "_turn", "_waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: list[tuple[ResponseSource, int]] = []
        self._turn: asyncio.Task[None] | None = None
        connection.when_lost(self._give_up)

    def receive(self, source: ResponseSource, size: int) -> None:
        """Count a large response, at once or when there is room for it."""
        connection = self._connection
        if self._turn is None and (not connection.answers.is_full or connection.held_bytes):
            connection.promise(size)
            return
        self._waiting.append((source, size))
        source.hold(is_held=True)
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        await self._connection.answers.wait()
        # At once: the next client that waits must see them counted.
        waiting, self._waiting, self._turn = self._waiting, [], None
        for source, size in waiting:
            if self._connection.is_made and not source.is_over:
                self._connection.promise(size)
            source.hold(is_held=False)

    def _give_up(self) -> None:
        if self._turn is not None:
            self._turn.cancel()


class HeldResults:
    """Counts results that brokers have sent ahead of the client's next request.

    They are dropped after a time, and at once while the memory for responses is full. The client's
    next request then reads them again.
    """

    __slots__ = (
        "_connection", "_drop", "_is_closed", "_limit_seconds", "_timer", "held_bytes", "peer",
    )  # fmt: skip

    def __init__(self, connection: Connection, drop: Callable[[], None], limit_ms: int) -> None:
        """Count nothing yet.

        Args:
            connection: the connection of the client.
            drop: drops all results.
            limit_ms: the time after which results that do not change are dropped.
        """
        self.held_bytes = 0
        """The bytes that are counted."""
        self.peer = f"{connection.peer} (records of its next fetch)"
        self._connection = connection
        self._drop = drop
        self._limit_seconds = limit_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        connection.when_lost(self._close)

    @property
    def unread_bytes(self) -> int:
        """The same: the client's next request would bring them."""
        return self.held_bytes

    @property
    def sent_bytes(self) -> int:
        """The total of bytes that the client's side has accepted."""
        return self._connection.sent_bytes

    def update(self, held_bytes: int) -> None:
        """Replace the number of bytes that are counted."""
        answers = self._connection.answers
        if self._is_closed or (not held_bytes and not self.held_bytes):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        answers.add(max(0, held_bytes - self.held_bytes))
        self.held_bytes = held_bytes
        if not held_bytes:
            answers.leave(self)
            return
        answers.join(self)
        if answers.is_full:
            self.abort()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limit_seconds, self.abort)

    def abort(self) -> None:
        """Drop all results; the client stays connected."""
        self._drop()
        self.update(0)

    def _close(self) -> None:
        self.update(0)
        self._is_closed = True
