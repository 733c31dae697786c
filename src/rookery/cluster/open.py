"""Opens a cluster log by its URL: the scheme is the name of a module in `cluster/backends`.

`WatchedLog` wraps an open log and counts its calls as pending until they are answered.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Protocol, cast, get_args

from rookery.cluster.port import READ_BYTES, ClusterLog, ClusterLogTraits, Durability, LogEntry
from rookery.errors import ConfigError
from rookery.model.location import Location
from rookery.store.pendingcalls import PendingCalls

_BACKENDS: Final = "rookery.cluster.backends"


class ClusterLogBackend(Protocol):
    """The interface of a module in `cluster/backends`."""

    def traits(self, url: str) -> ClusterLogTraits:
        """Return the traits of the log that the URL names, without opening it."""

    def open(self, url: str, durability: Durability) -> ClusterLog:
        """Open a handle on the log that the URL names, creating the log if it is absent."""


def open_log(url: str, *, durability: Durability = "disk") -> ClusterLog:
    """Open the cluster log at a URL, such as `sqlite:///var/lib/rookery/cluster.sqlite`.

    Call it from a running event loop, to which the handle then belongs.

    Raises:
        ConfigError: the URL or the durability cannot be used.
        Unavailable: the log cannot be reached.
        Corrupt: the data there is not a cluster log that this version can read.
    """
    if durability not in get_args(Durability):
        raise ConfigError(f'durability {durability!r}: choose "disk" or "os"')
    return _backend(url).open(Location(url), durability)


def log_traits(url: str) -> ClusterLogTraits:
    """Return the traits of the cluster log at a URL, without opening it.

    Raises:
        ConfigError: the URL cannot be used.
    """
    return _backend(url).traits(Location(url))


def _backend(url: str) -> ClusterLogBackend:
    url = Location(url)
    scheme, colon, _ = url.partition(":")
    # Only letters: the scheme becomes part of a module's name.
    if not colon or re.fullmatch(r"[a-z][a-z0-9]*", scheme) is None:
        raise ConfigError(f"cluster log {url!r}: not a URL; write sqlite:///path or memory:name")
    if find_spec(f"{_BACKENDS}.{scheme}") is None:
        raise ConfigError(f"cluster log {url!r}: there is no backend called {scheme!r}")
    return cast("ClusterLogBackend", import_module(f"{_BACKENDS}.{scheme}"))


class WatchedLog:
    """Forwards every call. `wait` is not counted: it completes only when there is an entry."""

    def __init__(self, cluster_log: ClusterLog, calls: PendingCalls) -> None:
        self._log = cluster_log
        self._calls = calls
        self.wait = cluster_log.wait
        self.close = cluster_log.close

    async def append(self, data: bytes) -> int:
        """Count and pass on."""
        with self._calls.call("an append"):
            return await self._log.append(data)

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Count and pass on."""
        with self._calls.call("a read"):
            return await self._log.read(after, max_bytes)

    async def head(self) -> int:
        """Count and pass on."""
        with self._calls.call("a look at its end"):
            return await self._log.head()

    async def trim(self, before: int) -> None:
        """Count and pass on."""
        with self._calls.call("a trim"):
            await self._log.trim(before)

    async def floor(self) -> int:
        """Count and pass on."""
        with self._calls.call("a look at its floor"):
            return await self._log.floor()

    async def begin_after(self, number: int) -> None:
        """Count and pass on."""
        with self._calls.call("a change of its beginning"):
            await self._log.begin_after(number)
