"""Selects the partitions that the merge must not wait for: those that are done or idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rookery.clock import Clock
from rookery.consumer.fetch.shelf import Shelf, Shelves
from rookery.consumer.order.block import RowBlock
from rookery.consumer.order.merge import Merge
from rookery.consumer.settings import StreamSettings, ms

# How long the proof that a partition is empty remains valid without new answers.
_FRESH_MS: Final = 2_000
# How often partitions without news are checked.
_LOOK_MS: Final = 100


class ShelfWatch:
    """Watches the shelves for the merge."""

    def __init__(
        self,
        shelves: Shelves,
        shelf_of: Sequence[Shelf],
        merge: Merge[RowBlock],
        settings: StreamSettings,
        clock: Clock,
    ) -> None:
        """Create a watch.

        Args:
            shelves: the partitions with news.
            shelf_of: the shelves by partition number; partitions that join are appended to it.
            merge: receives every change.
            settings: how long the merge waits for an empty partition.
            clock: gives the age of the proof that a partition is empty.
        """
        self._shelves = shelves
        self._shelf_of = shelf_of
        self._merge = merge
        self._settings = settings
        self._clock = clock
        self._looked_at = 0

    def look(self, *, is_live: bool) -> None:
        """Update the merge: which partitions are done and, in live mode, which are idle."""
        changed = self._shelves.take_changed()
        for shelf in changed:
            self._merge.set_done(shelf.index, is_done=shelf.is_done)
        if is_live:
            now = self._clock.monotonic_ms()
            # Only answers prove that a partition is idle, and the proof expires.
            is_due = now - self._looked_at >= _LOOK_MS
            for shelf in self._shelf_of if is_due else changed:
                self._merge.set_idle(shelf.index, is_idle=self._is_idle(shelf, now))
            if is_due:
                self._looked_at = now

    def look_at(self, shelf: Shelf) -> None:
        """Update the merge in live mode: whether a partition is idle now."""
        is_idle = self._is_idle(shelf, self._clock.monotonic_ms())
        self._merge.set_idle(shelf.index, is_idle=is_idle)

    def _is_idle(self, shelf: Shelf, now: int) -> bool:
        if shelf.is_gone or not shelf.is_empty or now - shelf.proved_at > _FRESH_MS:
            return False
        limit = self._settings.max_idle
        if shelf.is_blocked:
            limit = self._settings.max_transaction_wait
        return shelf.idle_ms() >= ms(limit)
