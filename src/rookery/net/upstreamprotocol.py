"""The transport side of an upstream: sending, reading, deadlines and closing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Any, Protocol, cast

from rookery.clock import loop_timer
from rookery.errors import ProtocolError, Unavailable
from rookery.model.callbacks import register
from rookery.net.callqueue import CallQueue, PendingCall, QueuedCall
from rookery.net.settings import UpstreamSettings
from rookery.wire.frame import RESPONSE_MINIMUM, Chunks, Frame, FrameSplitter

log = logging.getLogger(__name__)


class AnswerBatch(Protocol):
    """The receiver of several responses that arrive together; a `Connection` is one."""

    def begin_batch(self) -> None:
        """Announce the responses."""

    def end_batch(self) -> None:
        """Write them."""


class UpstreamProtocol(asyncio.BufferedProtocol):
    """Sends requests in order and delivers their responses, within limits and deadlines."""

    def __init__(
        self, host: str, port: int, settings: UpstreamSettings, chunks: Chunks | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.requests = 0
        self.late_answers = 0
        self.is_full = False
        """Whether so much data is queued that `submit` rejects more."""
        self.unread_bytes = 0
        """Bytes of responses that callers keep."""
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.batch: AnswerBatch | None = None
        """Called before and after responses that have arrived together are delivered."""
        self._now = loop_timer()
        self.splitter = FrameSplitter(
            settings.max_frame_bytes, minimum=RESPONSE_MINIMUM, chunks=chunks
        )
        self.transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[None] = self.loop.create_future()
        # Why the connection is closed.
        self._reason = ""
        self.calls = CallQueue()
        self._when_full: list[Callable[[bool], None]] = []
        self.is_writable = True
        self._is_paused = False
        # Whether responses may be delivered, and whether the transport reads.
        self.can_take = self._is_reading = True
        self._timer: asyncio.TimerHandle | None = None
        self.timer_at = inf

    def __repr__(self) -> str:
        return f"<Upstream {self.name}, {self.in_flight} requests in flight>"

    @property
    def name(self) -> str:
        """Host and port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def in_flight(self) -> int:
        """The number of requests without a response, sent or queued."""
        return self.calls.in_flight

    @property
    def queued_bytes(self) -> int:
        """Bytes of queued requests."""
        return self.calls.unsent_bytes

    @property
    def is_closed(self) -> bool:
        """Whether no more requests can be sent."""
        return self.transport is None or self.transport.is_closing()

    def when_full(self, callback: Callable[[bool], None]) -> Callable[[], None]:
        """Register a callback that is called with `is_full` whenever that changes.

        A proxy then pauses or resumes its client. The callback is called from within `submit`.

        Returns:
            A function that removes the callback.
        """
        return register(self._when_full, callback)

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Register a callback for the loss of the connection; called soon if it is already lost."""
        self._lost.add_done_callback(lambda _: callback())

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self.break_off("the connection was closed")

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, for any reason."""
        await asyncio.shield(self._lost)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept requests from now on."""
        transport = cast("asyncio.Transport", transport)  # uvloop's differs only in class
        self.transport = transport
        transport.set_write_buffer_limits(high=self.settings.max_unsent_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the splitter chooses the size)
        """Return the buffer for the next bytes."""
        return self.splitter.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the responses that have arrived."""
        self.splitter.note_received(nbytes)
        self._deliver()

    def pause_writing(self) -> None:
        """Queue further requests."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Send the queued requests."""
        self.is_writable = True
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests."""
        self.transport = None
        self.splitter.close()
        self._fail_all(
            f"the connection broke: {exc}" if exc else "the broker closed the connection"
        )
        self._when_full.clear()
        self.calls.direct = None
        self.batch = None
        if not self._lost.done():
            self._lost.set_result(None)

    # Requests and responses.

    def send(self, call: PendingCall, timeout_ms: int | None) -> asyncio.Future[Any]:
        """Send a request when its turn comes; return the future of its result."""
        if self.is_closed:
            raise Unavailable(f"{self.name}: {self._reason or 'there is no connection'}")
        self.enqueue(call, timeout_ms)
        return call.answer

    def enqueue(self, call: QueuedCall, timeout_ms: int | None) -> None:
        """Send a request when its turn comes, over a connection that is open."""
        if timeout_ms is not None:
            call.timeout_ms = timeout_ms
            call.deadline = self._now() + timeout_ms / 1000
        self.calls.add(call)
        self._pump()
        if call.deadline is not None and not call.is_done:
            self.arm(call.deadline)

    def _pump(self) -> None:
        """Send queued requests, in order, as far as there is room."""
        calls, most = self.calls, self.settings.max_in_flight
        while (
            calls.unsent
            and self.is_writable
            and len(calls.sent) < most
            and self.transport is not None
        ):
            call = calls.next_to_send()
            if call is None:
                break
            self.requests += 1
            self.transport.writelines(call.parts)
            call.parts = []
            if not call.is_answered:
                call.finish()
        if self.is_full or calls.unsent:
            self._tell_full()

    def _deliver(self) -> None:
        """Deliver the responses that have arrived, then update reading."""
        batch = self.batch
        if batch is None:
            self._deliver_each()
        else:
            batch.begin_batch()
            try:
                self._deliver_each()
            finally:
                batch.end_batch()
        self._regulate()
        if self.calls.unsent or self.is_full:
            self._pump()

    def _deliver_each(self) -> None:
        try:
            while (
                self.can_take and not self.is_closed and (frame := self.splitter.take()) is not None
            ):
                self._on_answer(frame)
        except ProtocolError as error:
            log.warning("closing the connection to %s: %s", self.name, error)
            self.break_off(str(error))

    def _on_answer(self, frame: Frame) -> None:
        call = self.calls.match_response(frame)
        if call.is_done:
            self.late_answers += 1
            return
        if call.is_kept:
            self.unread_bytes += len(frame)
            self.can_take = self._may_take()
        call.take(frame)

    # Limits, deadlines and closing.

    def _may_take(self) -> bool:
        return not self._is_paused and self.unread_bytes < self.settings.max_unread_bytes

    def _regulate(self) -> None:
        """Start or stop reading according to the limits."""
        wanted = self.can_take
        if wanted != self._is_reading and self.transport is not None and not self.is_closed:
            self._is_reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _tell_full(self) -> None:
        queued, limit = self.calls.unsent_bytes, self.settings.max_queued_bytes
        is_full = queued >= limit if not self.is_full else queued * 2 > limit
        if is_full != self.is_full:
            self.is_full = is_full
            for callback in list(self._when_full):
                callback(is_full)

    def arm(self, deadline: float) -> None:
        """Make sure that the timer fires no later than a deadline."""
        if deadline < self.timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(deadline, self._expire)
            self.timer_at = deadline

    def _expire(self) -> None:
        """Fail the requests whose deadline has passed; rearm for the earliest of the others."""
        self._timer = None
        self.timer_at = inf
        earliest = self.calls.expire(self._now(), self.name)
        if earliest is not None:
            self.arm(earliest)
        self._tell_full()

    def break_off(self, reason: str) -> None:
        """Close the connection, and fail all pending requests with a given reason."""
        self._fail_all(reason)
        if self.transport is not None:
            self.transport.abort()

    def _fail_all(self, reason: str) -> None:
        self._reason = self._reason or reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.timer_at = inf
        self.calls.fail(f"{self.name}: {self._reason}")
        self._tell_full()
