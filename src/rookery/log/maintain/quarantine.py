"""Items that maintenance cannot process: skipped for a while, logged once, and reported.

One partition, object or step that fails must not stop the others. `guard` catches the errors of a
piece of work, except those that concern all work: an unreachable log or store, and the expiry of
this process by the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rookery.clock import Clock
from rookery.cluster.appender import IncarnationFenced
from rookery.errors import Error, Unavailable

log = logging.getLogger(__name__)

_PAUSE_MS: Final = 60_000
_LONGEST_PAUSE_MS: Final = 3_600_000
# All reports of a round go through a pipe as one line of at most 64 KiB.
_REPORTED: Final = 20
_REPORT_CHARACTERS: Final = 300

Key: TypeAlias = tuple[Any, ...]
"""Identifies an item: a word for its kind, and its distinguishing values."""


@dataclass(slots=True)
class Case:
    """One item that could not be processed."""

    subject: str
    reason: str
    kind: type[BaseException]
    """The class of the last error."""
    pause_ms: int
    until_ms: int
    """When it is retried, by the monotonic clock."""


class Quarantine:
    """The open cases of one worker, by key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cases: dict[Key, Case] = {}
        self.failures = 0
        """Failures since the process started."""

    def __len__(self) -> int:
        """Return the number of open cases."""
        return len(self._cases)

    def holds(self, key: Key) -> bool:
        """Whether an item is to be skipped for now."""
        case = self._cases.get(key)
        return case is not None and self._clock.monotonic_ms() < case.until_ms

    def list_held(self, kind: str) -> list[Key]:
        """Return the keys of a kind that are to be skipped for now, without the kind."""
        return [key[1:] for key in self._cases if key[0] == kind and self.holds(key)]

    def add(self, key: Key, subject: str, error: BaseException, *, is_logged: bool = True) -> None:
        """Record a failure; each consecutive failure doubles the pause before the next attempt.

        An unreachable store or log may be back at any time, so that pause stays short.

        Args:
            key: identifies the item.
            subject: its name in messages.
            error: why it failed.
            is_logged: whether to log a new case.
        """
        error = _root(error)
        case = self._cases.get(key)
        if is_logged and (case is None or type(error) is not case.kind):
            # An error of another class than expected is a bug, so its traceback is logged.
            origin = None if isinstance(error, Error) else error
            log.error("%s: %s; it is skipped and tried again", subject, error, exc_info=origin)
        is_doubled = case is not None and not isinstance(error, Unavailable)
        pause = min(case.pause_ms * 2, _LONGEST_PAUSE_MS) if case and is_doubled else _PAUSE_MS
        until = self._clock.monotonic_ms() + pause
        reason = str(error) or type(error).__name__
        self._cases[key] = Case(subject, reason, type(error), pause, until)
        self.failures += 1

    def release(self, key: Key) -> None:
        """Close a case: the item was processed, or was deleted."""
        case = self._cases.pop(key, None)
        if case is not None:
            log.info("%s: works again", case.subject)

    def keep(self, is_there: Callable[[Key], bool]) -> None:
        """Drop the cases of items that no longer exist."""
        self._cases = {key: case for key, case in self._cases.items() if is_there(key)}

    @contextmanager
    def guard(
        self,
        key: Key,
        subject: str,
        passes: tuple[type[Error], ...] = (IncarnationFenced, Unavailable),
    ) -> Iterator[None]:
        """Record an error of a piece of work, or close its case; errors in `passes` are raised."""
        try:
            yield
        except passes:
            raise
        except Exception as error:  # noqa: BLE001 (one failure must not stop the others)
            self.add(key, subject, error)
        else:
            self.release(key)

    def report(self) -> list[str]:
        """Describe the open cases; only the first ones if there are many."""
        cases = list(self._cases.values())[:_REPORTED]
        return [f"{case.subject}: {case.reason}"[:_REPORT_CHARACTERS] for case in cases]


def _root(error: BaseException) -> BaseException:
    """Return the first error of a group, because the group's own text has no details."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
