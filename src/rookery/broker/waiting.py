"""Fetches that wait for new records. A commit wakes them; nothing polls.

A fetch session subscribes to its partitions once and stays subscribed between its fetches, so a
wake costs what has changed and not what is subscribed to. A fetch that waits is one object and one
timer, no task: thousands may wait. It wakes a turn of the loop after the commit, when the writer
has put the new batches where readers find them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from rookery.log.tail import Key

if TYPE_CHECKING:
    from rookery.broker.fetchsession import WatchingSession


class Subscriber(Protocol):
    """What wants to know about changes of partitions."""

    def partition_changed(self, key: Key) -> None:
        """Note that a partition has grown, lost its oldest records or was deleted."""


class Waiting:
    """Subscriptions to partitions, and the fetches that wait."""

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Subscriber, None]] = {}
        self.fetches: dict[FetchWait, None] = {}

    def __len__(self) -> int:
        """Return the number of partitions that fetches wait for now."""
        return sum(len(fetch.session.partitions) for fetch in self.fetches)

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions to partitions."""
        return sum(map(len, self._by_key.values()))

    def subscribe(self, key: Key, subscriber: Subscriber) -> None:
        """Report changes of a partition until `unsubscribe`."""
        subscribers = self._by_key.get(key)
        if subscribers is None:
            self._by_key[key] = {subscriber: None}
        else:
            subscribers[subscriber] = None

    def unsubscribe(self, keys: Iterable[Key], subscriber: Subscriber) -> None:
        """Report changes of these partitions no longer."""
        for key in keys:
            subscribers = self._by_key.get(key)
            if subscribers is not None:
                subscribers.pop(subscriber, None)
                if not subscribers:
                    del self._by_key[key]

    def report(self, keys: Iterable[Key]) -> None:
        """Report that these partitions have changed."""
        by_key = self._by_key
        if not by_key:
            return
        for key in keys:
            subscribers = by_key.get(key)
            if subscribers is not None:
                for subscriber in list(subscribers):
                    subscriber.partition_changed(key)

    def report_all(self) -> None:
        """Report that any partition may have changed: the state was replaced."""
        self.report(list(self._by_key))

    def hurry_all(self) -> None:
        """End all waits: the broker stops."""
        for fetch in list(self.fetches):
            fetch.hurry()


class FetchWait:
    """The wait of one fetch, for enough bytes or until its time is up."""

    __slots__ = ("_is_due", "_loop", "_missing", "_timer", "_waiting", "_wake", "session")

    def __init__(
        self,
        waiting: Waiting,
        session: WatchingSession,
        missing: int,
        seconds: float,
        wake: Callable[[], None],
    ) -> None:
        """Wait from now on.

        Args:
            waiting: the waits of this broker.
            session: what is fetched; it is subscribed to its partitions.
            missing: bytes that must come before it is worth looking.
            seconds: how long to wait for them.
            wake: called once, in a turn of the loop of its own; not after `leave`.
        """
        self._waiting = waiting
        self.session = session
        self._missing = missing
        self._wake = wake
        self._is_due = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self.hurry)
        waiting.fetches[self] = None
        session.waits[self] = None

    def add(self, size: int) -> None:
        """Count bytes that were added to a partition; wake if they are enough.

        Nothing added means that the partition has lost records or is deleted.
        """
        self._missing -= size
        if self._missing <= 0 or size <= 0:
            self.hurry()

    def hurry(self) -> None:
        """Wake, whatever is there."""
        if not self._is_due:
            self._is_due = True
            self.leave()
            self._loop.call_soon(self._wake)

    def leave(self) -> None:
        """End the wait without a wake."""
        self._timer.cancel()
        self._waiting.fetches.pop(self, None)
        self.session.waits.pop(self, None)
