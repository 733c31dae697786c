"""The requests of one connection, from their frames to their responses, in order.

The memory of requests and responses is accounted here: request bytes in the `Budget` until the
response is written, response bytes in the `AnswerBudget` once they are created or promised.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, NamedTuple, TypeVar

from rookery.errors import ProtocolError, Unavailable
from rookery.net.answers import AnswerBudget
from rookery.net.connectionstate import ConnectionState
from rookery.net.directpath import DirectPath
from rookery.net.outbox import Answer, Budget, Outbox, units_of
from rookery.net.settings import ConnectionSettings
from rookery.wire.frame import PREFIX_BYTES, Frame, FrameSplitter

log = logging.getLogger(__name__)

C = TypeVar("C")

Handler = Callable[[C, Frame], "Answer | Awaitable[Answer]"]
"""Starts one request. It must not block; any exception closes the connection.

It returns the answer, or something to await. A `QueuedRequest` takes its place without a future.
"""

# A client that holds less than this never waits for the shared budget: a few clients that send
# large requests slowly would otherwise lock out all others.
FAIR_BYTES: Final = 64 * 1024

# The event loop itself holds only weak references to tasks.
_tasks: set[asyncio.Task[Any]] = set()


def size_of(answer: Answer) -> int:
    """Return the size of a response."""
    return sum(map(len, answer)) if answer else 0


class QueuedRequest:
    """The place of one request among those in flight."""

    __slots__ = (
        "answer", "answer_bytes", "error", "is_abandoned", "is_last", "is_settled", "size",
        "when_settled",
    )  # fmt: skip

    def __init__(self, size: int, answer: Answer = None, *, is_last: bool = False) -> None:
        """Create a settled place, unless `wait` follows.

        Args:
            size: the bytes that the request holds until it is answered.
            answer: the response to write.
            is_last: nothing is written in this place, and the connection ends here.
        """
        self.when_settled: Callable[[QueuedRequest], None] = ignore_settled
        """Called once, when an awaited response is available."""
        self.size = size
        self.answer = answer
        self.answer_bytes = size_of(answer) if answer else 0
        self.error: BaseException | None = None
        self.is_settled = True
        self.is_last = is_last
        self.is_abandoned = False

    def wait(self, work: Awaitable[Answer]) -> None:
        """Settle when the work is done."""
        self.is_settled = False
        future = _begin(work)
        if future.done():
            self._copy(future)
        else:
            future.add_done_callback(self._copy)

    def settle(self, answer: Answer) -> None:
        """Take the response; `answer_bytes` is its size already."""
        self.answer = answer
        self.is_settled = True
        self.when_settled(self)

    def fail(self, error: BaseException) -> None:
        """Take the error, for which the connection ends."""
        self.error = error
        self.is_settled = True
        self.when_settled(self)

    def __await__(self) -> Generator[Any, None, Answer]:
        """Wait for the response, instead of a place in a queue.

        Raises:
            Exception: the request failed.
        """
        if not self.is_settled:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_settled = lambda _: None if future.done() else future.set_result(None)
            yield from future
        if self.error is not None:
            raise self.error
        return self.answer

    def _copy(self, future: asyncio.Future[Answer]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self.fail(error)
            return
        answer = future.result()
        self.answer_bytes = size_of(answer)
        self.settle(answer)


def ignore_settled(_: QueuedRequest) -> None:
    """Do nothing: the request is not queued yet."""


def _begin(work: Awaitable[Answer]) -> asyncio.Future[Answer]:
    """Return the future of some work; only a coroutine needs a task."""
    if isinstance(work, asyncio.Future):
        return work
    task: asyncio.Task[Answer]
    if sys.version_info >= (3, 12) and isinstance(work, Coroutine):
        # Most coroutines return their response without ever waiting.
        task = asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    else:
        task = asyncio.ensure_future(work)
    if not task.done():
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
    return task


class QueueHooks(NamedTuple):
    """The callbacks of a queue to its connection."""

    start: Callable[[Frame], Answer | Awaitable[Answer]]
    """Start one request."""
    refuse: Callable[[BaseException], None]
    """End the connection: this request failed."""
    ready: Callable[[], None]
    """Call `advance` soon: the response at the head is available."""


class RequestQueue:
    """Requests without a written response, oldest first; responses leave in this order."""

    __slots__ = (
        "_answered_bytes", "_answers", "_budget", "_hooks", "_promised_bytes", "_settings",
        "_splitter", "_state", "direct", "outbox", "requests", "started", "unanswered_bytes",
    )  # fmt: skip

    def __init__(
        self,
        hooks: QueueHooks,
        state: ConnectionState,
        settings: ConnectionSettings,
        splitter: FrameSplitter,
        budgets: tuple[Budget, AnswerBudget],
    ) -> None:
        """Start without requests.

        Args:
            hooks: called as requests start and finish.
            state: decides whether requests may be started.
            settings: the limits.
            splitter: extracts requests from the received bytes.
            budgets: the request and response budgets shared with other connections.
        """
        self.started = 0
        """The total number of requests started."""
        self.requests: deque[QueuedRequest] = deque()
        """Empty while every request is answered immediately."""
        self.unanswered_bytes = 0
        """The bytes of these requests."""
        self.outbox = Outbox()
        self.direct: DirectPath | None = None
        """Has requests in flight that are not in this queue, if it is set."""
        self._splitter = splitter
        self._hooks = hooks
        self._state = state
        self._settings = settings
        self._budget, self._answers = budgets
        # Bytes of requests that were answered immediately, until they are returned to the budget.
        self._answered_bytes = 0
        # Bytes of responses that are being read from disk.
        self._promised_bytes = 0

    @property
    def in_flight(self) -> int:
        """How many requests were started whose responses have not been written."""
        return len(self.requests) + (0 if self.direct is None else self.direct.in_flight)

    @property
    def can_start(self) -> bool:
        """Whether one more request is within the limits."""
        return (
            self._state.can_start
            and len(self.requests) < self._settings.max_in_flight
            and self.unanswered_bytes < self._settings.max_unanswered_bytes
        )

    @property
    def is_empty(self) -> bool:
        """Whether all requests are answered, and the transport has all responses."""
        return not self.requests and not self.outbox.waiting

    @property
    def held_bytes(self) -> int:
        """Bytes of responses that were created or promised, and not sent."""
        settled = sum(request.answer_bytes for request in self.requests)
        return settled + self._promised_bytes + self.outbox.unread_bytes

    def promise(self, count: int) -> None:
        """Count a response before memory is allocated for it."""
        self._promised_bytes += count
        self._answers.add(count)

    def count_part(self, more: int, arrived: int) -> bool:
        """Count more of a request that is received elsewhere; return whether its rest may be."""
        self._budget.receive(more)
        return arrived < FAIR_BYTES or self._budget.used < self._budget.limit

    def release_part(self, count: int) -> None:
        """Release bytes of a request that was received elsewhere."""
        self._budget.drop(count)

    def reserve(self, count: int) -> bool:
        """Count a large response that is received elsewhere, if there is room for it."""
        if self._answers.is_full:
            return False
        self.promise(count)
        return True

    def release(self, count: int) -> None:
        """Undo `reserve`, when the response has arrived."""
        self._promised_bytes = max(0, self._promised_bytes - count)

    def start(self, most: int) -> int:
        """Start requests that have arrived, up to given units of work; return the units."""
        spent = 0
        try:
            while spent < most and self.can_start and (frame := self._splitter.take()) is not None:
                spent += units_of(len(frame))
                self.started += 1
                self._start(frame)
        except ProtocolError as error:
            self._end_with(error, 0)
        return spent

    def collect(self) -> None:
        """Gather the available responses at the head, up to that of the last request."""
        queue = self.requests
        while queue and queue[0].is_settled:
            request = queue.popleft()
            self._release(request)
            if request.is_last:
                self.abandon()
                return
            self.outbox.gather(request.answer, request.answer_bytes)
        if not queue:
            self._promised_bytes = 0

    def flush(self) -> None:
        """Write the gathered responses."""
        if self._answered_bytes:
            self._budget.drop(self._answered_bytes)
            self._answered_bytes = 0
        self.outbox.flush()

    def adopt(self, request: QueuedRequest) -> None:
        """Add a request that was started elsewhere and holds no bytes."""
        request.when_settled = self._on_settled
        self._add(request)

    def write(self, rest: bytes) -> None:
        """Write the rest of responses that were sent in part."""
        self._answers.add(len(rest))
        self.outbox.gather([rest], len(rest))
        self.outbox.flush()

    def spill(self) -> None:
        """Take over the requests that are in flight elsewhere."""
        if self.direct is not None:
            self.direct.spill()

    def abandon(self) -> None:
        """Send no more responses. Requests in progress release their bytes when they end."""
        for request in self.requests:
            request.is_abandoned = True
            if request.is_settled:
                self._release(request)
        self.requests.clear()

    def close(self, report: Callable[[BaseException], None]) -> None:
        """Release everything after the client has disconnected.

        Args:
            report: called for requests that fail later. It replaces the reference to the
                connection, which would form a cycle.
        """
        self.spill()
        self.direct = None
        self._budget.drop(self._splitter.pending)
        self._splitter.close()
        self.outbox.close()
        self.abandon()
        self._hooks = QueueHooks(_start_nothing, report, _ignore)

    def _start(self, frame: Frame) -> None:
        size = len(frame) + PREFIX_BYTES
        try:
            answer = self._hooks.start(frame)
        except Exception as error:  # noqa: BLE001 (a request may end its connection, no more)
            self._end_with(error, size)
            return
        if isinstance(answer, QueuedRequest):
            answer.size = size
            self._add(answer)
            if answer.is_settled:
                self._on_settled(answer)
                self.collect()
            else:
                answer.when_settled = self._on_settled
        elif answer is not None and not isinstance(answer, (list, tuple)):
            request = QueuedRequest(size)
            request.when_settled = self._on_settled
            self._add(request)
            request.wait(answer)
            if request.is_settled:
                self.collect()
        elif self.requests:
            request = QueuedRequest(size, answer)
            self._add(request)
            self._account(request.answer_bytes)
        else:
            self._answered_bytes += size
            count = size_of(answer)
            self._answers.add(count)
            self.outbox.gather(answer, count)

    def _end_with(self, error: Exception, size: int) -> None:
        """Answer the requests before a bad request of a given size, and nothing after it."""
        self._hooks.refuse(error)
        self._add(QueuedRequest(size, is_last=True))
        self.collect()

    def _add(self, request: QueuedRequest) -> None:
        self.requests.append(request)
        self.unanswered_bytes += request.size
        self._budget.start(request.size)

    def _on_settled(self, request: QueuedRequest) -> None:
        """Handle the arrival of an awaited response."""
        if request.error is not None:
            self._hooks.refuse(request.error)
            request.is_last = True
        self._account(request.answer_bytes)
        if request.is_abandoned:
            self._release(request)
        elif self.requests[0] is request:
            self._hooks.ready()

    def _account(self, count: int) -> None:
        """Count a created response; a part of it may have been promised."""
        if self._promised_bytes:
            kept = min(count, self._promised_bytes)
            self._promised_bytes -= kept
            count -= kept
        self._answers.add(count)

    def _release(self, request: QueuedRequest) -> None:
        self.unanswered_bytes -= request.size
        self._budget.finish(request.size)


def _start_nothing(_frame: Frame) -> Answer:
    raise RuntimeError("a closed connection starts no request")


def _ignore() -> None:
    """Do nothing: a closed connection writes no responses."""


def log_failure(peer: str, error: BaseException) -> None:
    """Log that a failed request ends the connection of a client."""
    if isinstance(error, ProtocolError):
        log.warning("closing a connection: %s", error, extra={"client": peer})
    elif isinstance(error, Unavailable):
        # The proxy's broker is away: the client connects again.
        log.info("closing a connection: %s", error, extra={"client": peer})
    elif isinstance(error, asyncio.CancelledError):
        log.info("closing a connection: a request was cancelled", extra={"client": peer})
    else:
        text = "closing a connection: a request failed: %r"
        log.error(text, error, exc_info=error, extra={"client": peer})
