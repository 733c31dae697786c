"""Tracks unanswered calls to a store, a cluster log or a disk, and their age."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import NamedTuple

from rookery.clock import Clock, SystemClock
from rookery.errors import Unavailable


class Stall(NamedTuple):
    """How long a dependency has not answered a call."""

    what: str
    """The call that has waited longest, or failed first."""
    ms: int
    error: str
    """Why the last attempt failed; empty if none has finished."""

    def __str__(self) -> str:
        """Return it as a problem description."""
        reason = f": {self.error}" if self.error else ""
        return f"no answer to {self.what} for {self.ms / 1000:.1f} s{reason}"


class PendingCalls:
    """The calls in progress to one dependency, in the order of their start.

    A call that fails with `Unavailable` does not end a stall, since the next one may hang again. A
    response ends it, unless an older call still waits.
    """

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        """Start without calls; `name` is the name of the dependency."""
        self.name = name
        self._clock = clock or SystemClock()
        self._numbers = count()
        self._begun: dict[int, tuple[int, str]] = {}
        self._failing: tuple[int, str] | None = None
        self._error = ""

    @contextmanager
    def call(self, what: str) -> Iterator[None]:
        """Count a call as pending until the block ends."""
        number = next(self._numbers)
        outer = _CURRENT.get()
        _CURRENT.set(self)
        begun = self._begun[number] = (self._clock.monotonic_ms(), what)
        try:
            yield
        except Unavailable as error:
            self._failing = min(self._failing or begun, begun)
            self._error = str(error)
            raise
        except Exception:
            self._on_answer()  # a rejection is a response
            raise
        else:
            self._on_answer()
        finally:
            # Not `reset`: a coroutine that is dropped unfinished ends in another context.
            _CURRENT.set(outer)
            del self._begun[number]

    def note(self, reason: str) -> None:
        """Record why an attempt failed that will be retried."""
        self._error = reason

    def _on_answer(self) -> None:
        self._failing = None
        self._error = ""

    @property
    def is_idle(self) -> bool:
        """Whether no call is in progress."""
        return not self._begun

    def stall(self, least_ms: int) -> Stall | None:
        """Return the call that has had no response for at least this long."""
        oldest = next(iter(self._begun.values()), None)
        waits = [wait for wait in (oldest, self._failing) if wait is not None]
        if not waits:
            return None
        begun_ms, what = min(waits)
        passed_ms = self._clock.monotonic_ms() - begun_ms
        return Stall(what, passed_ms, self._error) if passed_ms >= least_ms else None


_CURRENT: ContextVar[PendingCalls | None] = ContextVar("pending calls", default=None)


def note(reason: str) -> None:
    """Record why an attempt of the current call failed."""
    calls = _CURRENT.get()
    if calls is not None:
        calls.note(reason)
