"""Fairness between writers: a store has no queue, so writers pause for each other.

A writer whose create succeeded can create the next number immediately; the others learn of it one
request later. Without pauses, one writer under load would win every number. So each entry records
how many numbers its writer had lost to others. A writer that reads of losses pauses after each of
its own entries, until the others have had a chance. Writers that always lose cannot report it. For
them, every writer pauses now and then, less often if it seems to be the only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rookery.clock import Random, loop_seconds

# The pause in round trips: one for a loser's response and its read of the winner, one for its next
# attempt.
_REST: Final = 2.0
# Losses that were read count for this many entries; another writer's entry counts for the second
# number.
_CONTENDED: Final = 16
_ACCOMPANIED: Final = 1024
# The maximum number of entries in a row, with other writers and alone.
_IN_A_ROW: Final = 8
_IN_A_ROW_ALONE: Final = 24
# A single slow response must not cause a long pause.
_LONGEST: Final = 0.25


class Turns:
    """Decides when this writer may create its next entry."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._round_trip = 0.0
        self._next_at = 0.0
        self._in_a_row = 0
        self._contended_until = 0
        self._accompanied_until = 0

    def note_loss(self, number: int, losses: int) -> None:
        """Record that another writer has written an entry, after `losses` of its own."""
        self._in_a_row = 0
        self._accompanied_until = number + _ACCOMPANIED
        if losses:
            self._contended_until = number + _CONTENDED

    def note_win(self, number: int) -> None:
        """Record that this writer has written an entry."""
        now = loop_seconds()
        # A writer that arrives later than it could have has already paused.
        has_rested = now - self._next_at > 2 * self._round_trip
        self._in_a_row = 1 if has_rested else self._in_a_row + 1
        self._next_at = now + self._rest(number)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure the round-trip time of a create."""
        began = loop_seconds()
        yield
        seconds = min(loop_seconds() - began, _LONGEST)
        self._round_trip += (seconds - self._round_trip) / (4 if self._round_trip else 1)

    async def wait(self) -> None:
        """Return when the pause is over, or immediately if there is none."""
        left = self._next_at - loop_seconds()
        if left > 0:
            await asyncio.sleep(left)

    def _rest(self, number: int) -> float:
        enough = _IN_A_ROW if number < self._accompanied_until else _IN_A_ROW_ALONE
        if number >= self._contended_until and self._in_a_row < enough:
            return 0.0
        self._in_a_row = 0
        return self._random.jitter(_REST * self._round_trip)
