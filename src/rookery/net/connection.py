"""One client connection: requests in, responses out in order, back-pressure both ways.

Requests start as they arrive, whether or not earlier ones are answered. The handler returns the
parts of the response if it has them (no task, no future), or an awaitable. Responses that are
ready are written in one call, in order.

`ConnectionState` decides whether a connection reads, starts requests or closes. In addition,
reading stops while any limit is reached: requests in flight, unanswered bytes (of this connection
and in the shared `Budget`), or responses that the client does not read (`Outbox`). Work once
started is finished even if the client disconnects; a handler that waits long registers with
`when_lost`.

One timer (`Watch`) limits the time that a client may take for the handshake, for a request,
between requests and for reading its last responses.
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
from rookery.net.connectionstate import ConnectionEvent, ConnectionStage, ConnectionState, Wait
from rookery.net.outbox import Budget
from rookery.net.requestqueue import Handler, QueueHooks, RequestQueue, log_failure
from rookery.net.session import ClientSession
from rookery.net.settings import ConnectionSettings
from rookery.net.watch import Watch
from rookery.wire.frame import Chunks, FrameSplitter

log = logging.getLogger(__name__)

# A connection starts this many requests in one turn of the loop; then others have theirs.
_STARTED_AT_ONCE: Final = 64
# A client that holds less than this never waits for the shared budget: a few clients that send
# large requests slowly would otherwise lock out all others.
_FAIR_BYTES: Final = 64 * 1024


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
            settings: the bounds.
            budget: the bytes shared with other connections.
            chunks: the receive buffers shared with other connections of the same loop.
            answers: the bytes of answers shared with other connections.
        """
        self.peer = "nobody yet"
        """The client's address."""
        self.session = ClientSession()
        """What the server remembers about the client."""
        self.bytes_in = 0
        self.answers = answers or AnswerBudget()
        """Says how large an answer may be."""
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._budget = budget
        self._state = ConnectionState()
        self._transport: asyncio.Transport | None = None
        self._when_lost: list[Callable[[], None]] = []
        self._when_stuck: list[Callable[[bool], None]] = []
        self._splitter = FrameSplitter(
            settings.max_unauthenticated_frame_bytes
            if settings.requires_authentication
            else settings.max_frame_bytes,
            chunks=chunks,
        )
        self._queue = RequestQueue(
            QueueHooks(partial(handler, self), self._refuse, self._schedule),
            self._state,
            settings,
            self._splitter,
            (budget, self.answers),
        )
        # Whether the transport reads at present.
        self._is_reading = True
        # Whether `_advance` runs, or will in this turn of the loop.
        self._is_advance_due = False
        # What those who registered with `when_stuck` know.
        self._is_known_stuck = False
        self._unmute_timer: asyncio.TimerHandle | None = None
        step_ms = min(settings.receive_timeout_ms, settings.idle_timeout_ms)
        self._watch = Watch(self._present_wait, self._expire, step_ms)

    def __repr__(self) -> str:
        return f"<Connection of {self.peer}, {self.in_flight} requests in flight>"

    @property
    def requests(self) -> int:
        """How many requests were started."""
        return self._queue.started

    @property
    def in_flight(self) -> int:
        """How many requests were started whose answers have not been written."""
        return len(self._queue.requests)

    @property
    def is_stuck(self) -> bool:
        """Whether the client leaves so many answers unread that nothing is started for it."""
        return self._state.is_stuck

    @property
    def bytes_out(self) -> int:
        """Bytes of responses that were written."""
        return self._queue.outbox.written

    @property
    def sent_bytes(self) -> int:
        """The total of response bytes that were sent."""
        return self._queue.outbox.written - self._queue.outbox.buffered

    @property
    def held_bytes(self) -> int:
        """Bytes of responses that were created or promised, and not sent."""
        return self._queue.held_bytes

    @property
    def is_made(self) -> bool:
        """Whether there is a transport, so that its loss will be reported."""
        return self._state.is_connected

    @property
    def is_closing(self) -> bool:
        """Whether no more requests are accepted."""
        transport = self._transport
        return self._state.is_closing or transport is None or transport.is_closing()

    def transport_info(self, name: str) -> object:
        """Return transport information, such as `ssl_object` or `peercert`."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    def authenticated(self, principal: str) -> None:
        """Set the principal; this completes the handshake and allows larger requests."""
        self.session.principal = principal
        self._state.on(ConnectionEvent.ADMIT)
        self._touch()
        self._splitter.limit = self._settings.max_frame_bytes

    def limit_frames(self, maximum: int, minimum: int | None = None) -> None:
        """Change the maximum and minimum size of the next requests."""
        self._splitter.limit = maximum
        if minimum is not None:
            self._splitter.minimum = minimum

    def promise(self, count: int) -> None:
        """Announce the size of a response before memory is allocated for it."""
        self._queue.promise(count)

    def when_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for the loss of the client; return a function that removes it."""
        # A handler may have waited before this call, and the client may already be disconnected.
        if self._state.stage is ConnectionStage.CLOSED:
            return self._loop.call_soon(callback).cancel
        return register(self._when_lost, callback)

    def when_stuck(self, callback: Callable[[bool], None]) -> Callable[[], None]:
        """Register a callback for changes of `is_stuck`; return a function that removes it.

        It is called from within a write and must not write or close. A proxy uses it to stop or
        start reading from its upstream.
        """
        return register(self._when_stuck, callback)

    def pause(self) -> None:
        """Stop reading and starting requests until `resume`; responses are still sent."""
        self._hold(ConnectionEvent.PAUSE)

    def resume(self) -> None:
        """Undo `pause`; without it, do nothing."""
        self._let_go(ConnectionEvent.RESUME)

    def mute(self, duration_ms: int) -> None:
        """Start no requests for a time, to throttle the client; responses are still sent.

        Of several calls, the one that ends last applies.
        """
        if duration_ms <= 0 or self.is_closing:
            return
        timer = self._loop.call_later(duration_ms / 1000, self._unmute)
        if self._unmute_timer is not None:
            if self._unmute_timer.when() >= timer.when():
                timer.cancel()
                return
            self._unmute_timer.cancel()
        self._unmute_timer = timer
        self._hold(ConnectionEvent.MUTE)

    def close(self) -> None:
        """Accept no more requests; close when those in flight are answered."""
        if not self.is_closing:
            self._drain()
            self._advance()

    def abort(self) -> None:
        """Close immediately; unsent responses are lost."""
        if self._transport is not None:
            self._state.on(ConnectionEvent.CLOSE)
            self._transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to watch the client."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        self._transport = transport
        self._state.on(ConnectionEvent.CONNECT)
        self.peer = address_name(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=self._settings.max_unsent_bytes)
        self._queue.outbox.transport = transport
        self.answers.join(self)
        self._watch.begin()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the splitter knows better)
        """Return the buffer for the next bytes."""
        return self._splitter.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Start the requests that have arrived completely."""
        self.bytes_in += nbytes
        if not self._splitter.pending:
            self._touch()
        self._budget.receive(nbytes)
        self._splitter.received(nbytes)
        self._advance()

    def eof_received(self) -> bool:
        """Answer pending requests before closing, if the client closed only its sending side.

        A client that has disconnected completely looks the same at first, so the wait is limited
        to `linger_ms`.
        """
        self._state.on(ConnectionEvent.END)
        self._watch.look_after(self._settings.linger_ms)
        if self._splitter.pending:
            log.debug("input ends within a request", extra={"client": self.peer})
        self._advance()
        # TLS has no half-closed state: its transport closes whatever is returned.
        return not self.is_closing and self.transport_info("sslcontext") is None

    def pause_writing(self) -> None:
        """Start no more work for a client that does not read its responses."""
        self._queue.outbox.is_writable = False
        self._state.on(ConnectionEvent.PEER_STOPS)
        self._touch()
        self._tell_stuck()

    def resume_writing(self) -> None:
        """Continue where `pause_writing` stopped."""
        self._queue.outbox.is_writable = True
        self._state.on(ConnectionEvent.PEER_READS)
        self._touch()
        self._queue.outbox.feed()
        self._advance()
        self._tell_stuck()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release all budgets; requests in progress release theirs when they end."""
        if exc is not None:
            log.debug("connection lost: %s", exc, extra={"client": self.peer})
        self._transport = None
        self._state.on(ConnectionEvent.LOST)
        self._watch.close()
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._budget.forget(self._regulate)
        self.answers.leave(self)
        self._queue.close(partial(log_failure, self.peer))
        # A callback may remove others, or itself, during the iteration.
        callbacks = list(self._when_lost)
        self._when_lost.clear()
        self._when_stuck.clear()
        for callback in callbacks:
            callback()

    # Requests and answers.

    def _advance(self) -> None:
        """Collect ready responses, start arrived requests, write, then update reading."""
        # No extra call is needed for requests that settle during this one.
        self._is_advance_due = True
        queue, had_requests = self._queue, bool(self._queue.requests)
        if had_requests:
            queue.collect()
        started = queue.start(_STARTED_AT_ONCE)
        self._is_advance_due = False
        is_admitted = started and not self._settings.requires_authentication
        if is_admitted and self._state.stage is ConnectionStage.HANDSHAKE:
            self._state.on(ConnectionEvent.ADMIT)
        if started == _STARTED_AT_ONCE:
            self._state.on(ConnectionEvent.YIELD)
            self._loop.call_soon(self._let_go, ConnectionEvent.TURN)
        if started or (had_requests and not queue.requests):
            self._touch()
        queue.flush()
        self._regulate()
        if self._state.is_over and queue.is_empty:
            self._close_transport()

    def _schedule(self) -> None:
        """Advance in the next iteration of the loop, which batches the writes of this one."""
        if not self._is_advance_due:
            self._is_advance_due = True
            self._loop.call_soon(self._advance)

    # Bounds and times.

    def _regulate(self) -> bool:
        """Start or stop reading according to the limits; return whether it reads."""
        queue = self._queue
        wanted = (
            self._state.can_read
            and queue.can_start
            and (
                queue.unanswered_bytes + self._splitter.pending < _FAIR_BYTES
                or self._budget.may_read(self._regulate)
            )
        )
        transport = self._transport
        if wanted != self._is_reading and transport is not None and not transport.is_closing():
            self._is_reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()
        return wanted

    def _hold(self, event: ConnectionEvent) -> None:
        self._state.on(event)
        self._regulate()

    def _let_go(self, event: ConnectionEvent) -> None:
        """Remove a hold and continue, unless another hold remains."""
        self._state.on(event)
        if self._transport is not None and not self._is_advance_due:
            self._touch()
            self._advance()

    def _unmute(self) -> None:
        self._unmute_timer = None
        self._let_go(ConnectionEvent.UNMUTE)

    def _tell_stuck(self) -> None:
        if self.is_stuck != self._is_known_stuck:
            self._is_known_stuck = self.is_stuck
            for callback in list(self._when_stuck):
                callback(self.is_stuck)

    def _touch(self) -> None:
        # The handshake as a whole has one time limit, and so does the closing phase.
        if self._state.stage is ConnectionStage.OPEN:
            self._watch.touch()

    def _present_wait(self) -> Wait | None:
        return self._state.wait(
            self._settings,
            has_requests=bool(self._queue.requests),
            is_reading=self._is_reading,
            has_part=self._splitter.pending > 0,
        )

    def _expire(self, wait: Wait) -> None:
        """Close the connection of a client that exceeded a time limit."""
        text = "closing a connection: %s within %d ms"
        log.info(text, wait.reason, wait.patience_ms, extra={"client": self.peer})
        self.abort()

    # The end.

    def _refuse(self, error: BaseException) -> None:
        """Log why this connection ends, and accept nothing more from it."""
        log_failure(self.peer, error)
        self._drain()

    def _drain(self) -> None:
        if self._state.on(ConnectionEvent.DRAIN):
            self._watch.look_after(self._settings.linger_ms)

    def _close_transport(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._drain()
            self._state.on(ConnectionEvent.CLOSE)
            self._transport.close()
