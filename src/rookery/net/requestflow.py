"""Moves the requests and responses of one connection, and decides when the connection reads.

`ConnectionState` decides whether a connection reads, starts requests or closes. In addition,
reading stops while any limit is reached: requests in flight, unanswered bytes (of this connection
and in the shared `Budget`), or responses that the client does not read (`Outbox`).

One timer (`Watch`) limits the time that a client may take for the handshake, for a request,
between requests and for reading its last responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from rookery.net.answers import AnswerBudget
from rookery.net.connectionstate import ConnectionEvent, ConnectionStage, ConnectionState, Wait
from rookery.net.outbox import Answer, Budget
from rookery.net.requestqueue import FAIR_BYTES, QueueHooks, RequestQueue
from rookery.net.settings import ConnectionSettings
from rookery.net.watch import Watch
from rookery.wire.frame import Frame, FrameSplitter


class FlowHooks(NamedTuple):
    """The callbacks of a flow to its connection; a closed flow keeps none of them."""

    start: Callable[[Frame], Answer | Awaitable[Answer]]
    """Start one request."""
    refuse: Callable[[BaseException], None]
    """End the connection: a request failed."""
    expire: Callable[[Wait], None]
    """End the connection: the client exceeded a time limit."""


class RequestFlow:
    """The state of one connection, its requests, its transport's reading side and its timers."""

    __slots__ = (
        "_budget", "_is_advance_due", "_is_batch_open", "_is_batch_ready", "_is_reading", "_loop",
        "_pauses", "_unmute_timer", "queue", "settings", "splitter", "state", "transport", "watch",
    )  # fmt: skip

    def __init__(
        self,
        hooks: FlowHooks,
        settings: ConnectionSettings,
        splitter: FrameSplitter,
        budget: Budget,
        answers: AnswerBudget,
    ) -> None:
        """Start without a transport.

        Args:
            hooks: called as requests start, fail and time out.
            settings: the limits.
            splitter: extracts requests from the received bytes.
            budget: the bytes of requests shared with other connections.
            answers: the bytes of responses shared with other connections.
        """
        self.transport: asyncio.Transport | None = None
        """None before the connection is made and after it is lost."""
        self.state = ConnectionState()
        self.splitter = splitter
        self.queue = RequestQueue(
            QueueHooks(hooks.start, hooks.refuse, self._schedule),
            self.state,
            settings,
            splitter,
            (budget, answers),
        )
        step_ms = min(settings.receive_timeout_ms, settings.idle_timeout_ms)
        self.watch = Watch(self._present_wait, hooks.expire, step_ms)
        self._loop = asyncio.get_running_loop()
        self.settings = settings
        self._budget = budget
        # Whether the transport reads at present.
        self._is_reading = True
        # Whether `advance` runs, or will in this turn of the loop.
        self._is_advance_due = False
        # Whether more responses follow in this call, and whether the first one is available.
        self._is_batch_open = self._is_batch_ready = False
        self._unmute_timer: asyncio.TimerHandle | None = None
        # Callers of `pause` that have not called `resume`.
        self._pauses = 0

    @property
    def is_closing(self) -> bool:
        """Whether no more requests are accepted."""
        transport = self.transport
        return self.state.is_closing or transport is None or transport.is_closing()

    def open(self, transport: asyncio.Transport) -> None:
        """Use a transport, and start to watch the client."""
        self.transport = transport
        self.state.on(ConnectionEvent.CONNECT)
        transport.set_write_buffer_limits(high=self.settings.max_unsent_bytes)
        self.queue.outbox.transport = transport
        self.watch.begin()

    def close(self, report: Callable[[BaseException], None]) -> None:
        """Release everything after the client has disconnected.

        Args:
            report: called for requests that fail later.
        """
        self.transport = None
        self.state.on(ConnectionEvent.LOST)
        self.watch.close()
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._budget.forget(self._regulate)
        self._budget.turn.forget(self._take_turn)
        self.queue.close(report)

    # Requests and responses.

    def advance(self) -> None:
        """Collect ready responses, start arrived requests, write, then update reading."""
        # No extra call is needed for requests that settle during this one.
        self._is_advance_due = True
        queue = self.queue
        queue.spill()
        had_requests = bool(queue.requests)
        if had_requests:
            queue.collect()
        started = self._start()
        self._is_advance_due = False
        is_admitted = started and not self.settings.requires_authentication
        if is_admitted and self.state.stage is ConnectionStage.HANDSHAKE:
            self.state.on(ConnectionEvent.ADMIT)
        if started or (had_requests and not queue.requests):
            self.touch()
        queue.flush()
        self._regulate()
        if self.state.is_over and queue.is_empty:
            self._close_transport()

    def receive(self, chunk: memoryview, start: int, end: int) -> None:
        """Continue with requests in a chunk that was filled elsewhere."""
        self._budget.receive(end - start)
        self.splitter.adopt(chunk, start, end)
        self.advance()

    def _start(self) -> bool:
        """Start requests that have arrived, within the turn; return whether there were any."""
        turn = self._budget.turn
        granted = turn.grant()
        spent = self.queue.start(granted)
        if spent:
            turn.spend(spent)
        if spent >= granted and self.splitter.pending and self.queue.can_start:
            self.state.on(ConnectionEvent.YIELD)
            turn.wait(self._take_turn)
        return spent > 0

    def _take_turn(self) -> None:
        self.release(ConnectionEvent.TURN)

    def _schedule(self) -> None:
        """Advance at the end of the batch, or in the next iteration of the loop.

        Both join the writes of responses that become available together.
        """
        if self._is_batch_open:
            self._is_batch_ready = True
        elif not self._is_advance_due:
            self._is_advance_due = True
            self._loop.call_soon(self.advance)

    def begin_batch(self) -> None:
        """Collect the responses that become available until `end_batch`."""
        self._is_batch_open = True

    def end_batch(self) -> None:
        """Write the responses of the batch, without a wait for the next iteration of the loop."""
        self._is_batch_open = False
        if self._is_batch_ready:
            self._is_batch_ready = False
            if self._is_advance_due:
                # It runs already, and has perhaps passed the point where it collects responses.
                self._loop.call_soon(self.advance)
            else:
                self.advance()

    def _regulate(self) -> bool:
        """Start or stop reading according to the limits; return whether it reads."""
        queue = self.queue
        wanted = (
            self.state.can_read
            and queue.can_start
            and (
                queue.unanswered_bytes + self.splitter.pending < FAIR_BYTES
                or self._budget.may_read(self._regulate)
            )
        )
        transport = self.transport
        if wanted != self._is_reading and transport is not None and not transport.is_closing():
            self._is_reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()
        return wanted

    # Holds and time limits.

    def hold(self, event: ConnectionEvent) -> None:
        """Add a hold: read nothing and start no requests; responses are still sent."""
        self.state.on(event)
        self._regulate()

    def release(self, event: ConnectionEvent) -> None:
        """Remove a hold and continue, unless another hold remains."""
        self.state.on(event)
        if self.transport is not None and not self._is_advance_due:
            self.touch()
            self.advance()

    def pause(self) -> None:
        """Add one more pause; the first one is a hold."""
        self._pauses += 1
        self.hold(ConnectionEvent.PAUSE)

    def resume(self) -> None:
        """Undo one pause; without any, do nothing."""
        if self._pauses:
            self._pauses -= 1
            if not self._pauses:
                self.release(ConnectionEvent.RESUME)

    def mute(self, duration_ms: int) -> None:
        """Add a hold for a time; of several calls, the one that ends last applies."""
        timer = self._loop.call_later(duration_ms / 1000, self._unmute)
        if self._unmute_timer is not None:
            if self._unmute_timer.when() >= timer.when():
                timer.cancel()
                return
            self._unmute_timer.cancel()
        self._unmute_timer = timer
        self.hold(ConnectionEvent.MUTE)

    def _unmute(self) -> None:
        self._unmute_timer = None
        self.release(ConnectionEvent.UNMUTE)

    def touch(self) -> None:
        """Restart the time limit of an open connection."""
        # The handshake as a whole has one time limit, and so does the closing phase.
        if self.state.stage is ConnectionStage.OPEN:
            self.watch.touch()

    def _present_wait(self) -> Wait | None:
        has_part, direct = self.splitter.pending > 0, self.queue.direct
        if direct is not None:
            self.watch.note(direct.last_seen)
            has_part = has_part or direct.has_part
        return self.state.wait(
            self.settings,
            has_requests=self.queue.in_flight > 0,
            is_reading=self._is_reading,
            has_part=has_part,
        )

    # The end.

    def end_input(self) -> None:
        """Limit the remaining time after the client has closed its sending side."""
        self.state.on(ConnectionEvent.END)
        self.watch.look_after(self.settings.linger_ms)

    def drain(self) -> None:
        """Start no more requests, and limit the time that is left for the last responses."""
        if self.state.on(ConnectionEvent.DRAIN):
            self.watch.look_after(self.settings.linger_ms)

    def _close_transport(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.drain()
            self.state.on(ConnectionEvent.CLOSE)
            self.transport.close()
