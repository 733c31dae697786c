"""Who writes next: a store has no queue, so writers leave each other room.

A writer whose create was answered may create the next number at once; the others learn of it a
request later. Left alone, one writer under load would win every number. So entries say how many
numbers their writer had lost to others before; who reads of losses rests after each entry of its
own, until the others can have come first. Those who lose every time cannot say so: for them, a
writer rests now and then in any case, less often if it seems to be the only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rookery.clock import Random, loop_seconds

# A rest in round trips: one for a loser's answer and its look at who won, one for its next try.
_REST: Final = 2.0
# What was read of losses counts for so many entries, and of another writer for so many.
_CONTENDED: Final = 16
_ACCOMPANIED: Final = 1024
# How many entries in a row are enough, beside others and alone.
_IN_A_ROW: Final = 8
_IN_A_ROW_ALONE: Final = 24
# No single answer that took its time makes for a long rest.
_LONGEST: Final = 0.25


class Turns:
    """When this writer may create its next entry."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._round_trip = 0.0
        self._next_at = 0.0
        self._in_a_row = 0
        self._contended_until = 0
        self._accompanied_until = 0

    def lost(self, number: int, losses: int) -> None:
        """Note that another has written an entry, after so many losses of its own."""
        self._in_a_row = 0
        self._accompanied_until = number + _ACCOMPANIED
        if losses:
            self._contended_until = number + _CONTENDED

    def won(self, number: int) -> None:
        """Note that this writer has written an entry."""
        now = loop_seconds()
        # Whoever came later than it might have has rested already.
        has_rested = now - self._next_at > 2 * self._round_trip
        self._in_a_row = 1 if has_rested else self._in_a_row + 1
        self._next_at = now + self._rest(number)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Learn from a create that is answered how long a round trip takes."""
        began = loop_seconds()
        yield
        seconds = min(loop_seconds() - began, _LONGEST)
        self._round_trip += (seconds - self._round_trip) / (4 if self._round_trip else 1)

    async def wait(self) -> None:
        """Return when the rest is over; at once if there is none."""
        left = self._next_at - loop_seconds()
        if left > 0:
            await asyncio.sleep(left)

    def _rest(self, number: int) -> float:
        enough = _IN_A_ROW if number < self._accompanied_until else _IN_A_ROW_ALONE
        if number >= self._contended_until and self._in_a_row < enough:
            return 0.0
        self._in_a_row = 0
        return self._random.jitter(_REST * self._round_trip)
