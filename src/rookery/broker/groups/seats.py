"""A group as its coordinator keeps it: the machine, the claim, and the requests that wait."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rookery.broker.groups.machine import Effect, Machine, Persist, Reply
from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message

log = logging.getLogger(__name__)

# Events whose persists share a proposal: a machine of 500 members takes a millisecond for each.
_BATCH: Final = 20


class Held:
    """A request until it is answered; the machine knows it as a token."""

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
        """Return the answer to come; have `lost` called if its client goes before."""
        self._future = asyncio.get_running_loop().create_future()
        self._undo = when_lost(lost)
        return self._future

    def answer(self, response: Message) -> None:
        """Hand the answer out."""
        self.response = response
        if self._undo is not None:
            self._undo()
        if self._future is not None and not self._future.done():
            self._future.set_result(response)

    def abandon(self) -> None:
        """Have no answer: nobody waits for it."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error, unless an answer is out."""
        if self.response is None:
            self.answer(self._api.refuse(self._request, code))


class Waiting(NamedTuple):
    """Something to be done when the group is free."""

    work: Callable[[Seat], None]
    refuse: Callable[[ErrorCode], None]
    is_event: bool = False
    """Whether it only gives the machine an event, which may share a proposal with others."""


class EventBatch:
    """Events whose persists share a proposal; all of them are answered when that is applied."""

    __slots__ = ("_events", "kind", "persists", "replies")

    def __init__(self) -> None:
        self._events = 0
        self.persists: list[Persist] = []
        self.kind = ""
        """The protocol of the machine that wants the last one kept."""
        self.replies: list[Reply] = []

    @property
    def is_full(self) -> bool:
        """Whether other tasks must get a turn first."""
        return self._events >= _BATCH

    def add(self, kind: str, effects: list[Effect]) -> None:
        """Take in what came of an event."""
        self._events += 1
        for effect in effects:
            if isinstance(effect, Persist):
                self.persists.append(effect)
                self.kind = kind
            else:
                self.replies.append(effect)


class Seat:
    """One group that this broker coordinates, or is about to."""

    __slots__ = (
        "batch", "creates", "epoch", "group_id", "held", "is_busy", "is_dropped", "machine",
        "version", "waiting",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.machine: Machine | None = None
        """None until the group was claimed and read."""
        self.epoch = 0
        self.version = 0
        self.is_busy = True
        """Whether it is being loaded, or its new state is on its way into the log."""
        self.is_dropped = False
        self.creates = False
        """Whether one of those who wait brings the group into being."""
        self.waiting: deque[Waiting] = deque()
        self.held: dict[Held, None] = {}
        """Requests that the machine has not answered yet."""
        self.batch: EventBatch | None = None
        """What goes into the next proposal: the machine is ahead of the log."""

    @property
    def takes_events(self) -> bool:
        """Whether the machine can be given an event that comes now."""
        is_full = self.batch is not None and self.batch.is_full
        return not self.is_busy and not self.waiting and not is_full

    def go_on(self) -> None:
        """Do what waits, as far as nothing keeps the group busy again."""
        while self.waiting and not self.is_busy:
            if self.batch is not None and (self.batch.is_full or not self.waiting[0].is_event):
                return  # the rest goes on when the batch was applied
            first = self.waiting.popleft()
            try:
                first.work(self)
            except Exception:
                log.exception("a request to a group failed", extra={"group": self.group_id})
                first.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def drop(self, code: ErrorCode) -> None:
        """Refuse all who wait; nothing that is on its way counts any more."""
        self.is_dropped = True
        held, waiting = list(self.held), list(self.waiting)
        self.held.clear()
        self.waiting.clear()
        self.batch = None
        for one in held:
            one.refuse(code)
        for other in waiting:
            other.refuse(code)
