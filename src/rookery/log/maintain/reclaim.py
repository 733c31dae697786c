"""Frees the disk space of the current journal file when it has no live data.

The sweeper deletes journal files that their writer has ended. A writer ends a file when it is full.
Without this module an idle broker would keep up to a whole file of expired or rewritten bytes.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from rookery.clock import Clock
from rookery.cluster.events.logevents import ObjectsCondemned
from rookery.log.maintain.newobjects import Proposer
from rookery.log.write.journal import Journal

EMPTY_MS: Final = 60_000
"""How long a file must be empty before it is ended and condemned: slow reads finish first."""
MAX_AGE_MS: Final = 3_600_000
"""A file that is written for longer is ended. Otherwise most of it would outlive its records."""


class Reclaimer:
    """Watches the files of one journal; for one event loop."""

    def __init__(self, journal: Journal, replica: Proposer, clock: Clock) -> None:
        self._journal = journal
        self._replica = replica
        self._clock = clock
        self._commits: Counter[int] = Counter()
        self._current: int | None = None
        self._current_since = 0
        self._ended: set[int] = set()
        self._empty_since: dict[int, int] = {}

    def begin_commit(self, object_id: int) -> None:
        """Record that bytes of a file are about to be committed."""
        self._commits[object_id] += 1

    def end_commit(self, object_id: int) -> None:
        """Record that a commit is settled, or that its outcome is not known."""
        self._commits[object_id] -= 1
        if self._commits[object_id] <= 0:
            del self._commits[object_id]

    async def look(self) -> None:
        """End the current file if that frees space, and condemn ended files.

        Raises:
            Unavailable, IncarnationFenced: the cluster log rejected the event; call it again.
        """
        now = self._clock.monotonic_ms()
        current = self._journal.current
        if current != self._current:
            self._current, self._current_since = current, now
        watched = self._ended if current is None else self._ended | {current}
        self._empty_since = {
            journal: self._empty_since.get(journal, now)
            for journal in watched
            if self._is_empty(journal)
        }
        if current is not None and self._may_end(current, now):
            await self._journal.roll()
            self._ended.add(current)
        ripe = sorted(journal for journal in self._ended if self._is_ripe(journal, now))
        if ripe:
            await self._replica.propose([ObjectsCondemned(object_ids=ripe)])
            self._ended.difference_update(ripe)

    def _may_end(self, current: int, now: int) -> bool:
        is_old = now - self._current_since >= MAX_AGE_MS
        # A commit in progress would be rejected if its file were condemned first.
        is_busy = self._journal.pending_bytes or current in self._commits
        return not is_busy and (is_old or self._is_ripe(current, now))

    def _is_ripe(self, object_id: int, now: int) -> bool:
        return now - self._empty_since.get(object_id, now) >= EMPTY_MS

    def _is_empty(self, object_id: int) -> bool:
        return not self._replica.state.objects.rows.get(object_id) and not self._commits[object_id]
