"""One request under way: what a handler returns for it, and its place in the order of answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from rookery.wire.buffer import Buffer
from rookery.wire.frame import Frame

C = TypeVar("C")

Answer = list[Buffer] | tuple[Buffer, ...] | None
"""An answer's parts, length first; None if none is wanted (acks=0)."""
Handler = Callable[[C, Frame], "Answer | Awaitable[Answer]"]
"""Starts one request. It must not block; whatever it raises closes the connection."""

# The event loop itself refers to tasks weakly.
_tasks: set[asyncio.Task[Any]] = set()


def size_of(answer: Answer) -> int:
    """Return the bytes of an answer."""
    return sum(map(len, answer)) if answer else 0


class Request:
    """The place of one request among those in flight."""

    __slots__ = (
        "_on_settled", "answer", "answer_bytes", "error", "is_abandoned", "is_last", "is_settled",
        "size",
    )  # fmt: skip

    def __init__(
        self,
        on_settled: Callable[[Request], None],
        size: int,
        answer: Answer = None,
        *,
        is_last: bool = False,
    ) -> None:
        """Make a place that is settled, unless `wait` follows.

        Args:
            on_settled: called when an awaited answer is there.
            size: the bytes that the request holds until it is answered.
            answer: what to write.
            is_last: nothing is written in this place, and the connection ends here.
        """
        self._on_settled = on_settled
        self.size = size
        self.answer = answer
        self.answer_bytes = size_of(answer)
        self.error: BaseException | None = None
        self.is_settled = True
        self.is_last = is_last
        self.is_abandoned = False

    def wait(self, work: Awaitable[Answer]) -> None:
        """Settle when the work is done."""
        self.is_settled = False
        future = _begin(work)
        if future.done():
            self._settle(future)
        else:
            future.add_done_callback(self._settle)

    def _settle(self, future: asyncio.Future[Answer]) -> None:
        self.is_settled = True
        if future.cancelled():
            self.error = asyncio.CancelledError()
        else:
            self.error = future.exception()
        if self.error is None:
            self.answer = future.result()
            self.answer_bytes = size_of(self.answer)
        self._on_settled(self)


def _begin(work: Awaitable[Answer]) -> asyncio.Future[Answer]:
    """Return the future of some work; only a coroutine needs a task."""
    if isinstance(work, asyncio.Future):
        return work
    task: asyncio.Task[Answer]
    if sys.version_info >= (3, 12) and isinstance(work, Coroutine):
        # Most coroutines have their answer without ever waiting.
        task = asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    else:
        task = asyncio.ensure_future(work)
    if not task.done():
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
    return task
