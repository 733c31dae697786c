"""Fetches that wait for new records: woken by the commit, never by looking again and again.

One object a fetch, one timer, no task: thousands may wait. A commit tells each waiting fetch which
of its partitions have grown; what it does then is done a turn of the loop later, when the writer
has put the new batches where readers find them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from rookery.cluster.state.partition import Partition
from rookery.log.tail import Key


class Waiter(Protocol):
    """Who waits for partitions to grow."""

    def grown(self, key: Key) -> None:
        """Be told that a partition has grown, or is gone."""

    def hurry(self) -> None:
        """Be told to wait no longer, whatever is there."""


class Waiting:
    """Who waits for which partition."""

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Waiter, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def add(self, keys: Iterable[Key], waiter: Waiter) -> None:
        """Tell `waiter` whenever one of the partitions has grown, until `remove`."""
        by_key = self._by_key
        for key in keys:
            waiters = by_key.get(key)
            if waiters is None:
                by_key[key] = {waiter: None}
            else:
                waiters[waiter] = None

    def remove(self, keys: Iterable[Key], waiter: Waiter) -> None:
        """Wait no longer."""
        for key in keys:
            waiters = self._by_key.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._by_key[key]

    def grown(self, keys: Iterable[Key]) -> None:
        """Tell those who wait for these partitions."""
        by_key = self._by_key
        if not by_key:
            return
        for key in keys:
            waiters = by_key.get(key)
            if waiters is not None:
                for waiter in list(waiters):
                    waiter.grown(key)

    def hurry_all(self) -> None:
        """Let nobody wait any longer: the broker stops."""
        for waiter in {waiter: None for waiters in self._by_key.values() for waiter in waiters}:
            waiter.hurry()


class Parked:
    """One fetch that waits: until enough has been written, its time is up, or nobody wants it."""

    __slots__ = (
        "_is_due", "_loop", "_missing", "_partitions", "_sizes", "_timer", "_waiting", "_wake",
    )  # fmt: skip

    def __init__(
        self,
        waiting: Waiting,
        partitions: dict[Key, Partition],
        missing: int,
        seconds: float,
        wake: Callable[[], None],
    ) -> None:
        """Wait from now on.

        Args:
            waiting: where to be told of what grows.
            partitions: what is waited for.
            missing: bytes that must come before it is worth looking.
            seconds: how long to wait for them.
            wake: called once, in a turn of the loop of its own; not after `leave`.
        """
        self._waiting = waiting
        self._missing = missing
        self._wake = wake
        self._is_due = False
        self._partitions = partitions
        # Where any byte will do, nothing need be counted.
        self._sizes = (
            {key: partition.size_bytes for key, partition in partitions.items()}
            if missing > 1
            else None
        )
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self.hurry)
        waiting.add(partitions, self)

    def grown(self, key: Key) -> None:
        """Count what is new; wake if it is enough."""
        if self._sizes is None:
            self.hurry()
            return
        before, now = self._sizes[key], self._partitions[key].size_bytes
        self._sizes[key] = now
        self._missing -= now - before
        # Not more than before: the partition is gone, or was emptied.
        if self._missing <= 0 or now <= before:
            self.hurry()

    def hurry(self) -> None:
        """Wake, whatever is there."""
        if not self._is_due:
            self._is_due = True
            self.leave()
            self._loop.call_soon(self._wake)

    def leave(self) -> None:
        """Wait no longer, and do not wake."""
        self._timer.cancel()
        self._waiting.remove(self._partitions, self)
