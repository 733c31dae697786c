"""Fetches that wait for new records: woken by the commit, never by looking again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rookery.log.tail import Key

Wake = Callable[[], None]


class Waiting:
    """Who waits for which partition."""

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Wake, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def add(self, keys: Iterable[Key], wake: Wake) -> None:
        """Have `wake` called whenever one of the partitions has grown, until `remove`."""
        for key in keys:
            self._by_key.setdefault(key, {})[wake] = None

    def remove(self, keys: Iterable[Key], wake: Wake) -> None:
        """Wait no longer."""
        for key in keys:
            waiters = self._by_key.get(key)
            if waiters is not None:
                waiters.pop(wake, None)
                if not waiters:
                    del self._by_key[key]

    def grown(self, keys: Iterable[Key]) -> None:
        """Wake those who wait for these partitions, each once."""
        woken: dict[Wake, None] = {}
        for key in keys:
            woken.update(self._by_key.get(key, {}))
        for wake in woken:
            wake()
