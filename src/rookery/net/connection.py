"""One client: bytes in, answers out in the order of the requests, back-pressure both ways.

Requests are started as they arrive, whether or not those before them are answered. The handler
returns the answer's parts if it has them (no task, no future), or something to await. What is
ready is written in one call, in order.

Reading stops while any bound is reached: requests in flight, bytes not yet answered (here and in
the `Budget` of all), or answers that the client does not read (`Outbox`). Work once started is
finished even if the client has gone; a handler that waits long asks `when_lost` to be told.

One timer (`Watch`) bounds the time that a client may take:

    new ──first frame, or authenticated()──► open ──close(), error, end──► draining ──► closed
     └─ handshake timeout                     └─ idle, receive timeout      └─ linger
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from rookery.errors import ProtocolError
from rookery.net.answers import AnswerBudget
from rookery.net.budget import Budget
from rookery.net.outbox import Outbox
from rookery.net.request import Handler, Request, size_of
from rookery.net.session import ClientSession
from rookery.net.settings import ConnectionSettings
from rookery.net.watch import Wait, Watch
from rookery.wire.frame import PREFIX_BYTES, Chunks, Frame, Splitter

log = logging.getLogger(__name__)

# So many requests are started in one turn of the loop; then it is the other clients' turn.
_STARTED_AT_ONCE: Final = 64
# A client that holds less than this is never kept waiting for the shared budget: a few that send
# large requests slowly would otherwise lock out everybody.
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
        self.requests = 0
        self.bytes_in = 0
        self.answers = answers or AnswerBudget()
        """Says how large an answer may be."""
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._settings = settings
        self._budget = budget
        self._splitter = Splitter(
            settings.max_unauthenticated_frame_bytes
            if settings.requires_authentication
            else settings.max_frame_bytes,
            chunks=chunks,
        )
        self._transport: asyncio.Transport | None = None
        self._when_lost: list[Callable[[], None]] = []
        # Requests whose answers were not written, oldest first; empty while answers come at once.
        self._queue: deque[Request] = deque()
        self._unanswered_bytes = 0
        # Bytes of requests that were answered at once, until the budget is told.
        self._answered_bytes = 0
        self._outbox = Outbox()
        # Bytes of answers that are being read from disk.
        self._promised_bytes = 0
        self._is_open = False
        self._is_reading = True
        self._is_at_end = False
        self._is_draining = False
        self._is_advance_due = self._is_yielding = False
        step_ms = min(settings.receive_timeout_ms, settings.idle_timeout_ms)
        self._watch = Watch(self._present_wait, self._expire, step_ms)

    def __repr__(self) -> str:
        return f"<Connection of {self.peer}, {len(self._queue)} requests in flight>"

    @property
    def in_flight(self) -> int:
        """How many requests were started whose answers have not been written."""
        return len(self._queue)

    @property
    def is_stuck(self) -> bool:
        """Whether the client leaves so many answers unread that nothing is started for it."""
        return not self._outbox.is_writable

    @property
    def bytes_out(self) -> int:
        """Bytes of answers that were written."""
        return self._outbox.written

    @property
    def sent_bytes(self) -> int:
        """Bytes of answers that went out, ever."""
        return self._outbox.written - self._outbox.buffered

    @property
    def held_bytes(self) -> int:
        """Bytes of answers that were made or promised, and did not go out."""
        settled = sum(request.answer_bytes for request in self._queue)
        return settled + self._promised_bytes + self._outbox.waiting + self._outbox.buffered

    @property
    def is_made(self) -> bool:
        """Whether there is a transport, so that the loss of it will be told."""
        return self._transport is not None

    @property
    def is_closing(self) -> bool:
        """Whether no more requests are taken."""
        return self._is_draining or self._transport is None or self._transport.is_closing()

    def transport_info(self, name: str) -> object:
        """Return what the transport knows, such as `ssl_object` or `peercert`."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    def authenticated(self, principal: str) -> None:
        """Say who the client is: the handshake is done, and larger requests are allowed."""
        self.session.principal = principal
        self._is_open = True
        self._touch()
        self._splitter.limit = self._settings.max_frame_bytes

    def limit_frames(self, maximum: int, minimum: int | None = None) -> None:
        """Change how large, and how small, the next requests may be."""
        self._splitter.limit = maximum
        if minimum is not None:
            self._splitter.minimum = minimum

    def promise(self, count: int) -> None:
        """Say how large an answer will be, before there is memory taken for it."""
        self._promised_bytes += count
        self.answers.add(count)

    def when_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have a callback called when the client is gone; return a function that undoes this."""
        self._when_lost.append(callback)

        def undo() -> None:
            if callback in self._when_lost:
                self._when_lost.remove(callback)

        return undo

    def close(self) -> None:
        """Take no more requests; close when those in flight are answered."""
        if not self.is_closing:
            self._drain()
            self._advance()

    def abort(self) -> None:
        """Close at once; answers that were not sent are lost."""
        if self._transport is not None:
            self._transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to watch the client."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        self._transport = transport
        self.peer = address_name(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=self._settings.max_unsent_bytes)
        self._outbox.transport = transport
        self.answers.join(self)
        self._watch.begin()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the splitter knows better)
        """Hand out the memory for the next bytes."""
        return self._splitter.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Start what has arrived whole."""
        self.bytes_in += nbytes
        if not self._splitter.pending:
            self._touch()
        self._budget.receive(nbytes)
        self._splitter.received(nbytes)
        self._advance()

    def eof_received(self) -> bool:
        """Answer what was asked before closing, if the client has closed its sending side only.

        A client that is gone altogether looks the same at first, so it has `linger_ms` and no more.
        """
        self._is_at_end = True
        self._watch.look_after(self._settings.linger_ms)
        if self._splitter.pending:
            log.debug("input ends within a request", extra={"client": self.peer})
        self._advance()
        # TLS has no half-closed state: its transport closes whatever is returned.
        return not self.is_closing and self.transport_info("sslcontext") is None

    def pause_writing(self) -> None:
        """Start no more work for a client that does not read its answers."""
        self._outbox.is_writable = False
        self._touch()

    def resume_writing(self) -> None:
        """Go on where `pause_writing` stopped."""
        self._outbox.is_writable = True
        self._touch()
        self._outbox.feed()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give everything back; requests under way give theirs when they end."""
        if exc is not None:
            log.debug("connection lost: %s", exc, extra={"client": self.peer})
        self._transport = None
        self._watch.close()
        self._budget.forget(self._regulate)
        self._budget.drop(self._splitter.pending)
        self._splitter.close()
        self.answers.leave(self)
        self._outbox.close()
        self._abandon()
        callbacks, self._when_lost = self._when_lost, []
        for callback in callbacks:
            callback()

    # Requests and answers.

    def _advance(self) -> None:
        """Collect answers that are ready, start what has arrived, write, then read or not."""
        # No need to be called again for what settles meanwhile.
        self._is_advance_due = True
        if self._queue:
            self._collect()
        before = self.requests
        started = 0
        try:
            while self._may_start() and (frame := self._splitter.take()) is not None:
                self._start(frame)
                started += 1
                if started == _STARTED_AT_ONCE:
                    self._is_yielding = True
                    self._loop.call_soon(self._go_on)
        except ProtocolError as error:
            self._refuse(error)
            self._enqueue(Request(self._settled, 0, is_last=True))
            self._collect()
        self._is_advance_due = False
        if self.requests != before:
            self._touch()
        self._flush()
        self._regulate()
        is_over = self._is_at_end and self._outbox.is_writable and not self._is_yielding
        if not self._queue and (self._is_draining or is_over) and not self._outbox.waiting:
            self._close_transport()

    def _go_on(self) -> None:
        """Take up what was left for the next turn of the loop."""
        self._is_yielding = False
        if self._transport is not None:
            self._advance()

    def _may_start(self) -> bool:
        return (
            self._outbox.is_writable
            and not self._is_yielding
            and not self._is_draining
            and len(self._queue) < self._settings.max_in_flight
            and self._unanswered_bytes < self._settings.max_unanswered_bytes
            and self._transport is not None
        )

    def _start(self, frame: Frame) -> None:
        size = len(frame) + PREFIX_BYTES
        self.requests += 1
        if not self._is_open:
            self._is_open = not self._settings.requires_authentication
        try:
            answer = self._handler(self, frame)
        except Exception as error:  # noqa: BLE001 (a request may end its connection, no more)
            self._refuse(error)
            self._enqueue(Request(self._settled, size, is_last=True))
            self._collect()
            return
        if answer is not None and not isinstance(answer, (list, tuple)):
            request = Request(self._settled, size)
            self._enqueue(request)
            request.wait(answer)
            if request.is_settled:
                self._collect()
        elif self._queue:
            request = Request(self._settled, size, answer)
            self._enqueue(request)
            self._account(request.answer_bytes)
        else:
            self._answered_bytes += size
            count = size_of(answer)
            self.answers.add(count)
            self._outbox.gather(answer, count)

    def _enqueue(self, request: Request) -> None:
        self._queue.append(request)
        self._unanswered_bytes += request.size
        self._budget.start(request.size)

    def _settled(self, request: Request) -> None:
        """Be told that an awaited answer is there."""
        if request.error is not None:
            self._refuse(request.error)
            request.is_last = True
        self._account(request.answer_bytes)
        if request.is_abandoned:
            self._release(request.size)
        elif self._queue[0] is request and not self._is_advance_due:
            # Others may settle in the same turn of the loop: write them together.
            self._is_advance_due = True
            self._loop.call_soon(self._advance)

    def _collect(self) -> None:
        """Gather the answers at the queue's head that are there."""
        queue = self._queue
        while queue and queue[0].is_settled:
            request = queue.popleft()
            if request.is_last:
                self._release(request.size)
                self._abandon()
                return
            self._release(request.size)
            self._outbox.gather(request.answer, request.answer_bytes)
            if not queue:
                self._promised_bytes = 0
                self._touch()

    def _account(self, count: int) -> None:
        """Count an answer that was made; some of it may have been promised."""
        kept = min(count, self._promised_bytes)
        self._promised_bytes -= kept
        self.answers.add(count - kept)

    def _flush(self) -> None:
        """Write what was gathered."""
        if self._answered_bytes:
            self._budget.drop(self._answered_bytes)
            self._answered_bytes = 0
        self._outbox.flush()

    def _release(self, size: int) -> None:
        self._unanswered_bytes -= size
        self._budget.finish(size)

    def _abandon(self) -> None:
        """Answer no more: what is under way gives its bytes back when it ends."""
        for request in self._queue:
            request.is_abandoned = True
            if request.is_settled:
                self._release(request.size)
        self._queue.clear()

    # Bounds and times.

    def _regulate(self) -> bool:
        """Read or do not read, as the bounds say; return which."""
        held = self._unanswered_bytes + self._splitter.pending
        wanted = (
            self._may_start()
            and not self._is_at_end
            and (held < _FAIR_BYTES or self._budget.may_read(self._regulate))
        )
        if wanted != self._is_reading and self._transport is not None:
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        return wanted

    def _touch(self) -> None:
        # The handshake as a whole has one time limit, and so has the end.
        if self._is_open and not self._is_draining and not self._is_at_end:
            self._watch.touch()

    def _present_wait(self) -> Wait | None:
        """Return what is waited for, and how long; None if it is we who keep the client."""
        settings = self._settings
        if self._is_draining or self._is_at_end:
            return Wait(settings.linger_ms, "its last answers could not be sent")
        if not self._is_open:
            return Wait(settings.handshake_timeout_ms, "the handshake was not finished")
        if self.is_stuck:
            return Wait(settings.idle_timeout_ms, "it does not read its answers")
        if self._queue or not self._is_reading:
            return None
        if self._splitter.pending:
            return Wait(settings.receive_timeout_ms, "a request did not arrive whole")
        return Wait(settings.idle_timeout_ms, "it was idle")

    def _expire(self, wait: Wait) -> None:
        """Cut a client that has kept us waiting for too long."""
        log.info(
            "closing a connection: %s within %d ms",
            wait.reason,
            wait.patience_ms,
            extra={"client": self.peer},
        )
        self.abort()

    def _refuse(self, error: BaseException) -> None:
        """Log why this connection ends, and take no more of it."""
        if isinstance(error, ProtocolError):
            log.warning("closing a connection: %s", error, extra={"client": self.peer})
        elif isinstance(error, asyncio.CancelledError):
            log.info("closing a connection: a request was cancelled", extra={"client": self.peer})
        else:
            log.error(
                "closing a connection: a request failed: %r",
                error,
                exc_info=error,
                extra={"client": self.peer},
            )
        self._drain()

    def _drain(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._watch.look_after(self._settings.linger_ms)

    def _close_transport(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._drain()
            self._transport.close()


def address_name(address: object) -> str:
    """Return a socket's address as people write it."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "unknown")
