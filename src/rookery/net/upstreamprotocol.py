"""The transport side of an upstream: sending, reading, deadlines and closing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from rookery.clock import loop_seconds
from rookery.errors import ProtocolError, Unavailable
from rookery.model.callbacks import register
from rookery.net.callqueue import CallQueue, PendingCall
from rookery.net.settings import UpstreamSettings
from rookery.wire.frame import RESPONSE_MINIMUM, Chunks, Frame, FrameSplitter

log = logging.getLogger(__name__)


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
        self._splitter = FrameSplitter(
            settings.max_frame_bytes, minimum=RESPONSE_MINIMUM, chunks=chunks
        )
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[None] = self.loop.create_future()
        # Why the connection is closed.
        self._reason = ""
        self.calls = CallQueue()
        self._when_full: list[Callable[[bool], None]] = []
        self._is_writable = True
        self._is_paused = False
        # Whether responses may be delivered, and whether the transport reads.
        self._can_take = self._is_reading = True
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Upstream {self.name}, {self.in_flight} requests in flight>"

    @property
    def name(self) -> str:
        """Host and port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def in_flight(self) -> int:
        """The number of requests without a response, sent or queued."""
        return len(self.calls.sent) + len(self.calls.unsent)

    @property
    def queued_bytes(self) -> int:
        """Bytes of queued requests."""
        return self.calls.unsent_bytes

    @property
    def is_closed(self) -> bool:
        """Whether no more requests can be sent."""
        return self._transport is None or self._transport.is_closing()

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

    def pause(self) -> None:
        """Deliver no more responses until `resume`, because their receivers are slow."""
        self._is_paused = True
        self._can_take = False
        self._regulate()

    def resume(self) -> None:
        """Undo `pause`; without it, do nothing."""
        if self._is_paused:
            self._is_paused = False
            self._can_take = self._may_take()
            self.loop.call_soon(self._deliver)

    def release(self, count: int) -> None:
        """Release bytes of kept responses."""
        self.unread_bytes -= count
        if not self._can_take and self.unread_bytes * 2 <= self.settings.max_unread_bytes:
            self._can_take = self._may_take()
            self.loop.call_soon(self._deliver)

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
        self._transport = transport
        transport.set_write_buffer_limits(high=self.settings.max_unsent_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the splitter chooses the size)
        """Return the buffer for the next bytes."""
        return self._splitter.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the responses that have arrived."""
        self._splitter.received(nbytes)
        self._deliver()

    def pause_writing(self) -> None:
        """Queue further requests."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Send the queued requests."""
        self._is_writable = True
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests."""
        self._transport = None
        self._splitter.close()
        self._fail_all(
            f"the connection broke: {exc}" if exc else "the broker closed the connection"
        )
        self._when_full.clear()
        if not self._lost.done():
            self._lost.set_result(None)

    # Requests and responses.

    def send(self, call: PendingCall, timeout_ms: int | None) -> asyncio.Future[Any]:
        """Send a request when its turn comes; return the future of its result."""
        if self.is_closed:
            raise Unavailable(f"{self.name}: {self._reason or 'there is no connection'}")
        if timeout_ms is not None:
            call.timeout_ms = timeout_ms
            call.deadline = loop_seconds() + timeout_ms / 1000
        self.calls.add(call)
        self._pump()
        if call.deadline is not None and not call.answer.done():
            self._arm(call.deadline)
        return call.answer

    def _pump(self) -> None:
        """Send queued requests, in order, as far as there is room."""
        calls, most = self.calls, self.settings.max_in_flight
        while (
            calls.unsent
            and self._is_writable
            and len(calls.sent) < most
            and self._transport is not None
        ):
            call = calls.next_to_send()
            if call is None:
                break
            self.requests += 1
            self._transport.writelines(call.parts)
            call.parts = []
            if not call.is_answered:
                call.answer.set_result(None)
        if self.is_full or calls.unsent:
            self._tell_full()

    def _deliver(self) -> None:
        """Deliver the responses that have arrived, then update reading."""
        try:
            while (
                self._can_take
                and not self.is_closed
                and (frame := self._splitter.take()) is not None
            ):
                self._answered(frame)
        except ProtocolError as error:
            log.warning("closing the connection to %s: %s", self.name, error)
            self.break_off(str(error))
        self._regulate()
        self._pump()

    def _answered(self, frame: Frame) -> None:
        call = self.calls.answered(frame)
        if call.answer.done():
            self.late_answers += 1
            return
        if call.is_kept:
            self.unread_bytes += len(frame)
            self._can_take = self._may_take()
        call.take(frame)

    # Limits, deadlines and closing.

    def _may_take(self) -> bool:
        return not self._is_paused and self.unread_bytes < self.settings.max_unread_bytes

    def _regulate(self) -> None:
        """Start or stop reading according to the limits."""
        wanted = self._can_take
        if wanted != self._is_reading and self._transport is not None and not self.is_closed:
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _tell_full(self) -> None:
        queued, limit = self.calls.unsent_bytes, self.settings.max_queued_bytes
        is_full = queued >= limit if not self.is_full else queued * 2 > limit
        if is_full != self.is_full:
            self.is_full = is_full
            for callback in list(self._when_full):
                callback(is_full)

    def _arm(self, deadline: float) -> None:
        """Make sure that the timer fires no later than a deadline."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose deadline has passed; rearm for the earliest of the others."""
        self._timer = None
        earliest = self.calls.expire(loop_seconds(), self.name)
        if earliest is not None:
            self._arm(earliest)
        self._tell_full()

    def break_off(self, reason: str) -> None:
        """Close the connection, and fail all pending requests with a given reason."""
        self._fail_all(reason)
        if self._transport is not None:
            self._transport.abort()

    def _fail_all(self, reason: str) -> None:
        self._reason = self._reason or reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.calls.fail(f"{self.name}: {self._reason}")
        self._tell_full()
