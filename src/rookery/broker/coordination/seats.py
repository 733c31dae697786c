"""The coordinator's state of one key: the machine, the claim, and the waiting requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from rookery.broker.coordination.machine import Effect, Machine, Persist, Reply
from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message

Key = TypeVar("Key", bound=Hashable)
"""The type of the keys that are claimed, such as group ids."""
M = TypeVar("M", bound=Machine)

# The maximum number of events per proposal. A machine with 500 members takes a millisecond for each
# event.
_BATCH: Final = 20


class HeldRequest:
    """A request until it is answered; the machine uses it as a token."""

    __slots__ = ("_api", "_future", "_request", "_undo", "response")

    def __init__(self, api: Api[Any, Any], request: Message) -> None:
        self._api = api
        self._request = request
        self._future: asyncio.Future[Message | None] | None = None
        self._undo: Callable[[], None] | None = None
        self.response: Message | None = None

    def wait(
        self,
        when_lost: Callable[[Callable[[], None]], Callable[[], None]],
        lost: Callable[[], None],
    ) -> asyncio.Future[Message | None]:
        """Return a future of the response; call `lost` if the client disconnects first."""
        self._future = asyncio.get_running_loop().create_future()
        self._undo = when_lost(lost)
        return self._future

    def answer(self, response: Message) -> None:
        """Send the response."""
        self.response = response
        if self._undo is not None:
            self._undo()
        if self._future is not None and not self._future.done():
            self._future.set_result(response)

    def abandon(self) -> None:
        """Complete without a response, since the client has disconnected."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error unless a response was already sent."""
        if self.response is None:
            self.answer(self._api.refuse(self._request, code))


class WaitingWork(NamedTuple, Generic[Key, M]):
    """Work that runs when the seat is free."""

    work: Callable[[Seat[Key, M]], None]
    refuse: Callable[[ErrorCode], None]
    is_event: bool = False
    """Whether it only passes an event to the machine, which can share a proposal with others."""


class EventBatch(Generic[M]):
    """Events whose persists share a proposal; they are answered when the proposal is applied."""

    __slots__ = ("_events", "machine", "persists", "replies")

    def __init__(self, machine: M) -> None:
        self._events = 0
        self.persists: list[Persist] = []
        self.machine = machine
        """The machine that requested the last persist."""
        self.replies: list[Reply] = []

    @property
    def is_full(self) -> bool:
        """Whether the batch has reached its limit, so that other tasks can run first."""
        return self._events >= _BATCH

    def add(self, machine: M, effects: list[Effect]) -> None:
        """Add the effects of an event."""
        self._events += 1
        for effect in effects:
            if isinstance(effect, Persist):
                self.persists.append(effect)
                self.machine = machine
            else:
                self.replies.append(effect)


class Seat(Generic[Key, M]):
    """One key that this broker coordinates or is about to coordinate."""

    __slots__ = (
        "_report", "batch", "creates", "epoch", "held", "is_busy", "is_dropped", "key", "machine",
        "version", "waiting",
    )  # fmt: skip

    def __init__(self, key: Key, report: Callable[[Key, str, Exception], None]) -> None:
        """Create a busy seat without a machine.

        Args:
            key: the key to coordinate.
            report: logs a failure of waiting work.
        """
        self.key = key
        self._report = report
        self.machine: M | None = None
        """None until the key is claimed and loaded."""
        self.epoch = 0
        """The epoch of the claim; 0 for a key that does not exist."""
        self.version = 0
        self.is_busy = True
        """Whether the machine is being loaded, or its new state is being written to the log."""
        self.is_dropped = False
        self.creates = False
        """Whether one of the waiting requests can create the key."""
        self.waiting: deque[WaitingWork[Key, M]] = deque()
        self.held: dict[HeldRequest, None] = {}
        """The requests that the machine has not answered yet."""
        self.batch: EventBatch[M] | None = None
        """The contents of the next proposal: the machine is ahead of the log."""

    @property
    def takes_events(self) -> bool:
        """Whether the machine can process an event now."""
        is_full = self.batch is not None and self.batch.is_full
        return not self.is_busy and not self.waiting and not is_full

    def go_on(self) -> None:
        """Run waiting work until the seat is busy again."""
        while self.waiting and not self.is_busy:
            if self.batch is not None and (self.batch.is_full or not self.waiting[0].is_event):
                return  # the rest continues when the batch is applied
            first = self.waiting.popleft()
            try:
                first.work(self)
            except Exception as error:  # noqa: BLE001 (one request's fault must not stop the others)
                self._report(self.key, "failed at a request", error)
                first.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def drop(self, code: ErrorCode) -> None:
        """Refuse all waiting requests and discard the work in flight."""
        self.is_dropped = True
        held, waiting = list(self.held), list(self.waiting)
        self.held.clear()
        self.waiting.clear()
        self.batch = None
        for request in held:
            request.refuse(code)
        for work in waiting:
            work.refuse(code)
