"""When each of several things is due, where most are put off again and again."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """Moments by key; keys can be ordered. Putting a moment off leaves the heap alone."""

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._heap: list[tuple[int, Any]] = []
        self._queued: dict[Key, int] = {}
        """The earliest moment at which the heap holds a key."""

    @property
    def next_ms(self) -> int | None:
        """Return a moment before which nothing is due; None if nothing ever is.

        Putting a key off does not change this value, so that a heartbeat need not set a timer.
        """
        return self._heap[0][0] if self._due else None

    def __contains__(self, key: Key) -> bool:
        return key in self._due

    def set(self, key: Key, due_ms: int) -> None:
        """Let the key be due then, and at no other moment."""
        self._due[key] = due_ms
        queued = self._queued.get(key)
        if queued is None or due_ms < queued:
            self._queued[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key))

    def cancel(self, key: Key) -> None:
        """Let the key not be due at all."""
        self._due.pop(key, None)
        if not self._due:
            self._heap.clear()
            self._queued.clear()

    def take(self, now_ms: int, limit: int = sys.maxsize) -> list[Key]:
        """Remove and return what is due by now, up to a number of keys."""
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
