"""Deadlines of many keys, most of which are postponed repeatedly."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """Due times by key; keys must be orderable. Postponing a deadline does not touch the heap."""

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._heap: list[tuple[int, Any]] = []
        self._queued: dict[Key, int] = {}
        """The earliest time at which the heap holds a key."""

    @property
    def next_ms(self) -> int | None:
        """Return a time before which nothing is due; None if there are no deadlines.

        Postponing a key does not change this value, so a heartbeat does not need to set a timer.
        """
        return self._heap[0][0] if self._due else None

    def __contains__(self, key: Key) -> bool:
        return key in self._due

    def set(self, key: Key, due_ms: int) -> None:
        """Set the deadline of a key, replacing any earlier one."""
        self._due[key] = due_ms
        queued = self._queued.get(key)
        if queued is None or due_ms < queued:
            self._queued[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key))

    def cancel(self, key: Key) -> None:
        """Remove the deadline of a key."""
        self._due.pop(key, None)
        if not self._due:
            self._heap.clear()
            self._queued.clear()

    def take(self, now_ms: int, limit: int = sys.maxsize) -> list[Key]:
        """Remove and return the keys that are due, at most `limit` of them."""
        taken: list[Key] = []
        while self._due and self._heap[0][0] <= now_ms and len(taken) < limit:
            moment, key = heapq.heappop(self._heap)
            if self._queued.get(key) == moment:
                del self._queued[key]
            due = self._due.get(key)
            if due is None:
                continue
            if due <= now_ms:
                taken.append(key)
                self.cancel(key)
            else:
                self.set(key, due)
        return taken
