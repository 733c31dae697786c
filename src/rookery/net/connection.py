"""One client connection: requests in, responses out in order, back-pressure both ways.

Requests start as they arrive, whether or not earlier ones are answered. The handler returns the
parts of the response if it has them (no task, no future), or an awaitable. Responses that are
ready are written in one call, in order.

`RequestFlow` moves the requests and responses, and stops reading while a limit is reached. Work
once started is finished even if the client disconnects; a handler that waits long registers with
`when_lost`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from rookery.model.address import address_name
from rookery.model.callbacks import register
from rookery.net.answers import AnswerBudget
from rookery.net.connectionstate import ConnectionEvent, ConnectionStage, Wait
from rookery.net.outbox import Budget
from rookery.net.requestflow import FlowHooks, RequestFlow
from rookery.net.requestqueue import Handler, log_failure
from rookery.net.session import ClientSession
from rookery.net.settings import ConnectionSettings
from rookery.wire.frame import REQUEST_MINIMUM, Chunks, FrameSplitter

log = logging.getLogger(__name__)

_TINY_ROOM: Final = 512
_TINY_FACTOR: Final = 4
_TINY_SLACK: Final = 33 * 1024


class TinyRecords:
    """Recognizes a client that sends TLS records of a few bytes, and limits its room.

    Decrypting a record that holds one byte takes a microsecond, and thousands of them fit into one
    buffer. A client that sends such records gets little room in each turn of the loop. They are
    recognized by encrypted bytes that exceed a multiple of the plain ones by more than an
    incomplete record.
    """

    __slots__ = ("_has_any", "_offered", "_waiting")

    def __init__(self) -> None:
        self._waiting = self._offered = 0
        self._has_any = False

    def offer(self, waiting: int, room: memoryview) -> memoryview:
        """Return the room for the next bytes, of which `waiting` have arrived encrypted."""
        self._waiting, self._offered = waiting, len(room)
        return room[:_TINY_ROOM] if self._has_any else room

    def note(self, count: int) -> None:
        """Note how many bytes were decrypted into the room."""
        is_tiny = self._waiting - _TINY_FACTOR * count > _TINY_SLACK
        if count < self._offered and is_tiny:
            self._has_any = True


class StuckReport:
    """Reports changes of `Connection.is_stuck`."""

    __slots__ = ("_is_known", "callbacks")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[bool], None]] = []
        self._is_known = False

    def update(self, *, is_stuck: bool) -> None:
        """Call the callbacks if the value has changed."""
        if is_stuck != self._is_known:
            self._is_known = is_stuck
            for callback in list(self.callbacks):
                callback(is_stuck)


class Connection(asyncio.BufferedProtocol):
    """The server's end of one client's connection."""

    def __init__(
        self,
        handler: Handler[Connection],
        settings: ConnectionSettings,
        budget: Budget,
        chunks: Chunks | None = None,
        answers: AnswerBudget | None = None,
    ) -> None:
        """Make the protocol for one transport.

        Args:
            handler: starts a request.
            settings: the limits.
            budget: the bytes of requests shared with other connections.
            chunks: the receive buffers shared with other connections of the same loop.
            answers: the bytes of responses shared with other connections.
        """
        self.peer = "(not connected)"
        """The client's address."""
        self.when_made: Callable[[Connection], None] | None = None
        """Called once there is a client, before its first request."""
        self.session = ClientSession()
        """The data that the server keeps about the client."""
        self.bytes_in = 0
        self.answers = answers or AnswerBudget()
        """Limits the size of the next response."""
        self._settings = settings
        self._budget = budget
        self._when_lost: list[Callable[[], None]] = []
        self._stuck = StuckReport()
        # None without TLS.
        self._tiny: TinyRecords | None = None
        self._splitter = FrameSplitter(
            settings.max_unauthenticated_frame_bytes
            if settings.requires_authentication
            else settings.max_frame_bytes,
            chunks=chunks,
        )
        self.flow = RequestFlow(
            FlowHooks(partial(handler, self), self._refuse, self._expire),
            settings,
            self._splitter,
            budget,
            self.answers,
        )

    def __repr__(self) -> str:
        return f"<Connection of {self.peer}, {self.in_flight} requests in flight>"

    @property
    def requests(self) -> int:
        """How many requests were started."""
        return self.flow.queue.started

    @property
    def in_flight(self) -> int:
        """How many requests were started whose responses have not been written."""
        return self.flow.queue.in_flight

    @property
    def is_stuck(self) -> bool:
        """Whether the client leaves too many responses unread; no request is started for it."""
        return self.flow.state.is_stuck

    @property
    def sent_bytes(self) -> int:
        """The total of response bytes that were sent."""
        return self.flow.queue.outbox.written - self.flow.queue.outbox.buffered

    @property
    def held_bytes(self) -> int:
        """Bytes of responses that were created or promised, and not sent."""
        return self.flow.queue.held_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses that the client can read now."""
        return self.flow.queue.outbox.unread_bytes

    @property
    def is_made(self) -> bool:
        """Whether there is a transport, so that its loss will be reported."""
        return self.flow.state.is_connected

    @property
    def is_closing(self) -> bool:
        """Whether no more requests are accepted."""
        return self.flow.is_closing

    def transport_info(self, name: str) -> object:
        """Return transport information, such as `ssl_object` or `peercert`."""
        transport = self.flow.transport
        return None if transport is None else transport.get_extra_info(name)

    def set_principal(self, principal: str) -> None:
        """Set the principal; this completes the handshake and allows larger requests."""
        self.session.principal = principal
        self.flow.state.on(ConnectionEvent.ADMIT)
        self.flow.touch()
        self.limit_frames(self._settings.max_frame_bytes, REQUEST_MINIMUM)

    def limit_frames(self, maximum: int, minimum: int | None = None) -> None:
        """Change the maximum and minimum size of the next requests."""
        self._splitter.limit = maximum
        if minimum is not None:
            self._splitter.minimum = minimum

    def promise(self, count: int) -> None:
        """Announce the size of a response before memory is allocated for it."""
        self.flow.queue.promise(count)

    def when_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for the loss of the client; return a function that removes it."""
        # A handler may have waited before this call, and the client may already be disconnected.
        if self.flow.state.stage is ConnectionStage.CLOSED:
            return asyncio.get_running_loop().call_soon(callback).cancel
        return register(self._when_lost, callback)

    def when_stuck(self, callback: Callable[[bool], None]) -> Callable[[], None]:
        """Register a callback for changes of `is_stuck`; return a function that removes it.

        It is called from within a write and must not write or close. A proxy uses it to stop or
        start reading from its upstream.
        """
        return register(self._stuck.callbacks, callback)

    def pause(self) -> None:
        """Stop reading and starting requests until `resume`; responses are still sent.

        Of several callers, each must call `resume`.
        """
        self.flow.pause()

    def resume(self) -> None:
        """Undo one `pause`; without any, do nothing."""
        self.flow.resume()

    def mute(self, duration_ms: int) -> None:
        """Start no requests for a time, to throttle the client; responses are still sent.

        Of several calls, the one that ends last applies.
        """
        if duration_ms > 0 and not self.is_closing:
            self.flow.mute(duration_ms)

    def begin_batch(self) -> None:
        """Announce that a proxy will make several responses available in this call."""
        self.flow.begin_batch()

    def end_batch(self) -> None:
        """Write what became available since `begin_batch`, at once."""
        self.flow.end_batch()

    def close(self) -> None:
        """Accept no more requests; close when those in flight are answered."""
        if not self.is_closing:
            self.flow.drain()
            self.flow.advance()

    def abort(self) -> None:
        """Close immediately; unsent responses are lost."""
        transport = self.flow.transport
        if transport is not None:
            self.flow.state.on(ConnectionEvent.CLOSE)
            transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to watch the client."""
        transport = cast("asyncio.Transport", transport)  # uvloop's differs only in class
        self.peer = address_name(transport.get_extra_info("peername"))
        if transport.get_extra_info("sslcontext") is not None:
            self._tiny = TinyRecords()
        self.answers.join(self)
        self.flow.open(transport)
        if self.when_made is not None:
            self.when_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes; TLS passes how many encrypted bytes wait."""
        room = self._splitter.buffer()
        return room if self._tiny is None else self._tiny.offer(sizehint, room)

    def buffer_updated(self, nbytes: int) -> None:
        """Start the requests that have arrived completely."""
        if self._tiny is not None:
            self._tiny.note(nbytes)
        self.bytes_in += nbytes
        if not self._splitter.pending:
            self.flow.touch()
        self._budget.receive(nbytes)
        self._splitter.note_received(nbytes)
        self.flow.advance()

    def eof_received(self) -> bool:
        """Answer pending requests before closing, if the client closed only its sending side.

        A client that has disconnected completely looks the same at first, so the wait is limited
        to `linger_ms`.
        """
        self.flow.end_input()
        if self._splitter.pending:
            log.debug("input ends within a request", extra={"client": self.peer})
        self.flow.advance()
        # TLS has no half-closed state: its transport closes whatever is returned.
        return not self.is_closing and self._tiny is None

    def pause_writing(self) -> None:
        """Start no more work for a client that does not read its responses."""
        self.flow.queue.outbox.is_writable = False
        self.flow.state.on(ConnectionEvent.PEER_STOPS)
        self.flow.touch()
        self._stuck.update(is_stuck=self.is_stuck)

    def resume_writing(self) -> None:
        """Continue where `pause_writing` stopped."""
        self.flow.queue.outbox.is_writable = True
        self.flow.state.on(ConnectionEvent.PEER_READS)
        self.flow.touch()
        self.flow.queue.outbox.feed()
        self.flow.advance()
        self._stuck.update(is_stuck=self.is_stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release all budgets; requests in progress release theirs when they end."""
        if exc is not None:
            log.debug("connection lost: %s", exc, extra={"client": self.peer})
        self.answers.leave(self)
        self.flow.close(partial(log_failure, self.peer))
        # A callback may remove others, or itself, during the iteration.
        callbacks = list(self._when_lost)
        self._when_lost.clear()
        self._stuck.callbacks.clear()
        for callback in callbacks:
            callback()

    def _expire(self, wait: Wait) -> None:
        """Close the connection of a client that exceeded a time limit."""
        text = "closing a connection: %s within %d ms"
        log.info(text, wait.reason, wait.patience_ms, extra={"client": self.peer})
        self.abort()

    def _refuse(self, error: BaseException) -> None:
        """Log why this connection ends, and accept nothing more from it."""
        log_failure(self.peer, error)
        self.flow.drain()
