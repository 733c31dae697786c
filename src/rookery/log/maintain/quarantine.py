"""What upkeep cannot process: skipped for a while, logged once, and reported until it works.

One partition, object or step that fails must not stop the others. `guard` catches what a piece of
work raises, except errors that concern all of it: an unreachable log or store, and that the cluster
has expired this process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rookery.clock import Clock
from rookery.cluster.replica import IncarnationFenced
from rookery.errors import Error, Unavailable

log = logging.getLogger(__name__)

_PAUSE_MS: Final = 60_000
_LONGEST_PAUSE_MS: Final = 3_600_000
# All reports of a round go through a pipe as one line of at most 64 KiB.
_REPORTED: Final = 20
_REPORT_CHARACTERS: Final = 300

Key: TypeAlias = tuple[Any, ...]
"""What identifies a thing: a word for its kind, and what tells it apart."""


@dataclass(slots=True)
class Case:
    """One thing that could not be processed."""

    subject: str
    reason: str
    kind: type[BaseException]
    """The class of the last error."""
    pause_ms: int
    until_ms: int
    """When it is tried again, by the monotonic clock."""


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
        """Whether a thing is to be skipped for now."""
        case = self._cases.get(key)
        return case is not None and self._clock.monotonic_ms() < case.until_ms

    def held(self, kind: str) -> list[Key]:
        """Return the keys to be skipped for now that begin with a word, without the word."""
        return [key[1:] for key in self._cases if key[0] == kind and self.holds(key)]

    def add(self, key: Key, subject: str, error: BaseException, *, is_logged: bool = True) -> None:
        """Note a failure; each one in a row doubles the pause before the next try.

        What is out of reach may be back at any time, so that pause stays short.

        Args:
            key: identifies the thing.
            subject: names it for people.
            error: why it failed.
            is_logged: whether a new case is worth a line in the log.
        """
        error = _root(error)
        case = self._cases.get(key)
        if is_logged and (case is None or type(error) is not case.kind):
            # An error of another class than expected is a bug: its origin is worth the lines.
            origin = None if isinstance(error, Error) else error
            log.error("%s: %s; it is skipped and tried again", subject, error, exc_info=origin)
        is_doubled = case is not None and not isinstance(error, Unavailable)
        pause = min(case.pause_ms * 2, _LONGEST_PAUSE_MS) if case and is_doubled else _PAUSE_MS
        until = self._clock.monotonic_ms() + pause
        reason = str(error) or type(error).__name__
        self._cases[key] = Case(subject, reason, type(error), pause, until)
        self.failures += 1

    def release(self, key: Key) -> None:
        """Close a case: the thing was processed, or is gone."""
        case = self._cases.pop(key, None)
        if case is not None:
            log.info("%s: works again", case.subject)

    def keep(self, is_there: Callable[[Key], bool]) -> None:
        """Drop the cases of things that are gone."""
        self._cases = {key: case for key, case in self._cases.items() if is_there(key)}

    @contextmanager
    def guard(
        self,
        key: Key,
        subject: str,
        passes: tuple[type[Error], ...] = (IncarnationFenced, Unavailable),
    ) -> Iterator[None]:
        """Note what a piece of work raises, or close its case; errors in `passes` go on."""
        try:
            yield
        except passes:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it must not stop the others)
            self.add(key, subject, error)
        else:
            self.release(key)

    def report(self) -> list[str]:
        """Describe the open cases, the first of them if there are many."""
        cases = list(self._cases.values())[:_REPORTED]
        return [f"{case.subject}: {case.reason}"[:_REPORT_CHARACTERS] for case in cases]


def _root(error: BaseException) -> BaseException:
    """Return the first error of a group: a group's own text says nothing."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
