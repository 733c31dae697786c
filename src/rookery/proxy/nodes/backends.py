"""The connections of one client to the brokers of the upstream, opened when they are needed.

Each client has its own connection to each broker that it needs, so that the brokers' quotas and
principals are the client's own, and so that its requests to one broker stay in order. Requests wait
while their connection is being opened. A connection that breaks fails its own requests; the next
request opens another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final, NamedTuple

from rookery.errors import Error, Unavailable
from rookery.net.callqueue import CallOptions
from rookery.net.upstream import Upstream
from rookery.proxy.linkstate import BackendEvent, BackendState
from rookery.proxy.nodes.topology import NO_BROKER
from rookery.wire.buffer import Buffer
from rookery.wire.frame import Frame

# The maximum number of bytes that wait for a connection.
_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024


class NotSentError(Unavailable):
    """The request has certainly not reached a broker."""


class UnsentCall(NamedTuple):
    """A request that waits for the connection."""

    parts: list[Buffer]
    read: Callable[[Frame], Any]
    options: CallOptions
    answer: asyncio.Future[Any]


class Backend:
    """One connection to one broker."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Upstream]],
        when_full: Callable[[bool], None],
        when_large: WhenLarge,
    ) -> None:
        """Prepare the connection; the first request opens it.

        Args:
            connect: opens the connection.
            when_full: called when requests must wait, and when they can continue.
            when_large: called with the length of a large response when it starts.
        """
        self.state = BackendState()
        self._connect = connect
        self._when_full = when_full
        self._when_large = when_large
        self._upstream: Upstream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: list[UnsentCall] = []
        self._unsent_bytes = 0
        self._is_paused = False
        self._is_held = False
        self._is_full = False

    @property
    def is_over(self) -> bool:
        """Whether the connection is closed, or could not be opened."""
        return self.state.is_over or (self._upstream is not None and self._upstream.is_closed)

    def submit(
        self, parts: list[Buffer], read: Callable[[Frame], Any], options: CallOptions
    ) -> asyncio.Future[Any]:
        """Send a request, given as parts without a length, after those before it.

        Returns:
            What `read` returned. It fails with `NotSentError` or `Unavailable`.
        """
        if self._upstream is not None:
            try:
                return self._upstream.submit(parts, read, options)
            except Unavailable as error:
                answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                answer.set_exception(NotSentError(str(error)))
                return answer
        call = UnsentCall(parts, read, options, asyncio.get_running_loop().create_future())
        if self.state.is_over:
            call.answer.set_exception(NotSentError("the connection to the broker is closed"))
            return call.answer
        self._unsent.append(call)
        self._unsent_bytes += sum(map(len, parts))
        if self._unsent_bytes > _MAX_WAITING_BYTES:
            self._tell_full(is_full=True)
        if self._opening is None:
            self.state.on(BackendEvent.CONNECT)
            self._opening = asyncio.create_task(self._open())
        return call.answer

    def pause(self, *, is_paused: bool) -> None:
        """Stop or resume delivering answers, because the client does not read."""
        self._is_paused = is_paused
        self._regulate()

    def hold(self, *, is_held: bool) -> None:
        """Stop or resume delivering answers, because there is no room for one."""
        self._is_held = is_held
        self._regulate()

    def _regulate(self) -> None:
        if self._upstream is not None:
            if self._is_paused or self._is_held:
                self._upstream.pause()
            else:
                self._upstream.resume()

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self.state.on(BackendEvent.CLOSE)
        if self._opening is not None:
            self._opening.cancel()
        if self._upstream is not None:
            self._upstream.close()
        self._give_up("the connection was closed")

    async def _open(self) -> None:
        try:
            upstream = await self._connect()
        except Error as error:
            self._fail(str(error))
            return
        self.state.on(BackendEvent.READY)
        self._upstream = upstream
        if self._is_paused:
            upstream.pause()
        upstream.when_large(partial(self._when_large, self))
        upstream.when_full(lambda is_full: self._tell_full(is_full=is_full))
        upstream.when_lost(lambda: self._fail("the broker closed the connection"))
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        for call in unsent:
            _follow(self.submit(call.parts, call.read, call.options), call.answer)
        self._tell_full(is_full=upstream.is_full)

    def _fail(self, reason: str) -> None:
        self.state.on(BackendEvent.FAIL)
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        unsent, self._unsent = self._unsent, []
        for call in unsent:
            if not call.answer.done():
                call.answer.set_exception(NotSentError(reason))
        self._tell_full(is_full=False)

    def _tell_full(self, *, is_full: bool) -> None:
        if is_full != self._is_full:
            self._is_full = is_full
            self._when_full(is_full)


WhenLarge = Callable[[Backend, int], None]


class BackendPool:
    """The connections of one client, by the broker's node id."""

    def __init__(
        self,
        connect: Callable[[int], Awaitable[Upstream]],
        when_full: Callable[[bool], None],
        when_large: WhenLarge,
    ) -> None:
        """Open no connection yet.

        Args:
            connect: opens a connection to a broker, or to any of them for `NO_BROKER`.
            when_full: called when the client's requests must wait for any broker, and when they
                need not any more.
            when_large: called with the connection and the length of a large response when it
                starts.
        """
        self._connect = connect
        self._when_full = when_full
        self._when_large = when_large
        self._backends: dict[int, Backend] = {}
        self._full: set[int] = set()
        self._is_paused = False
        self._is_closed = False

    def get(self, broker_id: int) -> Backend:
        """Return the connection to a broker; a new one if the last is closed."""
        backend = self._backends.get(broker_id)
        if backend is None or backend.is_over:
            backend = Backend(
                lambda: self._connect(broker_id),
                lambda is_full: self._note_full(broker_id, is_full=is_full),
                self._when_large,
            )
            if self._is_paused:
                backend.pause(is_paused=True)
            if self._is_closed:
                backend.close()
            self._backends[broker_id] = backend
        return backend

    def pause(self, *, is_paused: bool) -> None:
        """Stop or resume reading from all brokers, because the client does not read."""
        self._is_paused = is_paused
        for backend in self._backends.values():
            backend.pause(is_paused=is_paused)

    def keep(self, brokers: Collection[int]) -> None:
        """Close the connections to brokers that the upstream does not list any more.

        Such a broker may be silent and never close them itself.
        """
        for broker_id, backend in self._backends.items():
            if broker_id not in brokers and broker_id != NO_BROKER:
                backend.close()

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._is_closed = True
        for backend in self._backends.values():
            backend.close()

    def _note_full(self, broker_id: int, *, is_full: bool) -> None:
        was_full = bool(self._full)
        if is_full:
            self._full.add(broker_id)
        else:
            self._full.discard(broker_id)
        if bool(self._full) != was_full:
            self._when_full(bool(self._full))


def _follow(source: asyncio.Future[Any], target: asyncio.Future[Any]) -> None:
    """Pass the result of one future to another."""

    def copy(done: asyncio.Future[Any]) -> None:
        if target.done():
            return
        if done.cancelled():
            target.cancel()
        elif (error := done.exception()) is not None:
            target.set_exception(error)
        else:
            target.set_result(done.result())

    source.add_done_callback(copy)
