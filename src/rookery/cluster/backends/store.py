"""A cluster log in an object store, without any other service: `store:` and a store's URL.

    store:s3://bucket/prefix      store:file:///shared/folder      store:memory:name

Every entry is an object that is created with if-absent: of all processes that try number n,
exactly one succeeds. Other processes find the entry by requesting it. Options in the URL's query:
`poll` sets how soon they ask again after an entry (100 ms; up to ten times that when the log is
idle). `namespace` separates several logs in one store. All other options belong to the store.

An append costs one PUT, plus a GET and a PUT for each number that another process took first. A
waiting process costs one GET per poll, and the floor costs one GET every five minutes.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple

from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.cluster.objects.ahead import EntryBuffer
from rookery.cluster.objects.appender import ObjectAppender
from rookery.cluster.objects.end import End
from rookery.cluster.objects.entries import EntryObjects
from rookery.cluster.objects.floor import Floor
from rookery.cluster.objects.layout import entry_key
from rookery.cluster.objects.waiters import Waiters
from rookery.cluster.port import (
    READ_BYTES,
    ClusterLog,
    ClusterLogTraits,
    Durability,
    EntriesTrimmed,
    LogEntry,
    check_beginning,
    check_empty,
    check_entry,
    check_trim,
)
from rookery.errors import ConfigError, Corrupt, Unavailable
from rookery.store.open import open_store
from rookery.store.port import Store
from rookery.store.probe import probe
from rookery.store.wrappers import NamespacedStore

POLL_MS: Final = 100
_MAX_POLL_MS: Final = 60_000
_APPEND_SECONDS: Final = 30.0
# If the store does not respond for this long, the waiters for the log get an error.
_LOOK_SECONDS: Final = 10.0
# A start needs a separate request for each entry.
_MAX_REPLAY_ENTRIES: Final = 1_000
_OPTIONS: Final = frozenset({"poll", "namespace"})
_UNITS_MS: Final = {"ms": 1, "s": 1000}


def traits(_url: str) -> ClusterLogTraits:
    """Return the traits: entries are objects in the store like any others."""
    return ClusterLogTraits(
        is_as_durable_as_store=True, max_replay_entries=_MAX_REPLAY_ENTRIES, checks_store=True
    )


def open(url: str, durability: Durability) -> ClusterLog:  # noqa: A001, ARG001 (a backend's interface; a store is always durable)
    """Open a handle on the log in a store."""
    inner, name, poll_ms, namespace = _parse(url)
    store = open_store(inner)
    if namespace:
        store = NamespacedStore(store, namespace)
    return StoreLog(store, name, poll_ms)


class StoreLog:
    """One handle on a log in a store."""

    def __init__(
        self,
        store: Store,
        name: str,
        poll_ms: int = POLL_MS,
        clock: Clock | None = None,
        random: Random | None = None,
        patience: float = _APPEND_SECONDS,
    ) -> None:
        """Take ownership of the store, which `close` closes; errors refer to it by this name."""
        self._store = store
        self._name = name
        self._patience = patience
        self._entries = EntryObjects(store)
        self._floor = Floor(store, self._entries, clock or SystemClock())
        self._ahead = EntryBuffer()
        self._waiters = Waiters(self._find_end, poll_ms / 1000, _LOOK_SECONDS)
        self._end = End(self._entries, self._floor, self._ahead, self._waiters.wake)
        self._appender = ObjectAppender(
            self._entries, self._floor, self._end, self._ahead, random or SystemRandom()
        )
        self._appending = asyncio.Lock()
        self._probed = False
        self._closed = False

    async def append(self, data: bytes) -> int:
        """Create the next entry's object, after the queued appends of this handle."""
        self._check_open()
        check_entry(data)
        try:
            async with asyncio.timeout(self._patience), self._appending:
                await self._probe()
                return await self._appender.append(bytes(data))
        except TimeoutError:
            raise Unavailable(
                f"the store did not answer for {self._patience} s: it is not known whether the "
                "entry is in the log"
            ) from None

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Return the entries that follow number `after`."""
        self._check_open()
        self._check_floor(after)
        if taken := self._ahead.take(after, max_bytes):
            return taken
        known = self._end.known
        reading = self._entries.read(after, known, max_bytes)
        if after < known:
            # A reader that lags is redirected to the floor, even while the entries it requests
            # still exist.
            entries, _ = await asyncio.gather(reading, self._floor.read())
        else:
            entries = await reading
            self._waiters.note_poll()
        await self._floor.confirm()
        self._check_floor(after)
        if entries:
            self._end.see(entries[-1].number)
        elif after < known:
            raise Corrupt(
                f"entry {after + 1} is missing, but the log has entries up to {known} at least: "
                f"someone else has removed {entry_key(after + 1)!r} from {self._name}"
            )
        return entries

    async def head(self) -> int:
        """Return the last entry's number."""
        self._check_open()
        return await self._find_end()

    async def wait(self, after: int) -> int:
        """Return a head above `after`, as soon as a poll of the store finds one."""
        self._check_open()
        if self._end.known > after:
            return self._end.known
        self._ahead.drop(after)
        return await self._waiters.wait(after)

    async def trim(self, before: int) -> None:
        """Raise the floor, and delete entries that have been below it for long enough."""
        self._check_open()
        await self._probe()
        if before - 1 > self._end.known:
            check_trim(before, await self._find_end())
        await self._floor.lift(before - 1)
        self._ahead.drop(self._floor.value)
        await self._floor.sweep()

    async def floor(self) -> int:
        """Return the highest number that was trimmed."""
        self._check_open()
        return await self._floor.read()

    async def begin_after(self, number: int) -> None:
        """Set the floor to a number, if there has never been an entry."""
        self._check_open()
        check_beginning(number)
        await self._probe()
        check_empty(await self._find_end())
        await self._floor.begin(number)

    async def close(self) -> None:
        """Close the handle after the queued appends."""
        if self._closed:
            return
        self._closed = True
        self._waiters.fail(_closed())
        await self._waiters.close()
        async with self._appending:
            await self._store.close()

    async def _find_end(self) -> int:
        head = await self._end.find()
        self._waiters.note_poll()
        return head

    async def _probe(self) -> None:
        """Check once that the store honours preconditions, on which this backend depends."""
        if not self._probed:
            await probe(self._store, self._name)
            self._probed = True

    def _check_floor(self, after: int) -> None:
        if after < self._floor.value:
            raise EntriesTrimmed(after, self._floor.value)

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


class _Address(NamedTuple):
    """The parts of a URL."""

    inner: str
    name: str
    """The store's name in error messages, without the query, which may hold secrets."""
    poll_ms: int
    namespace: str


def _parse(url: str) -> _Address:
    """Extract our own options from a URL; the others belong to the store."""
    name, _, query = url.removeprefix("store:").partition("?")
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    own = {key: value for key, _, value in pairs if key in _OPTIONS}
    rest = "&".join("".join(pair) for pair in pairs if pair[0] not in _OPTIONS)
    poll_ms = _milliseconds(name, own["poll"]) if "poll" in own else POLL_MS
    return _Address(f"{name}?{rest}" if rest else name, name, poll_ms, own.get("namespace", ""))


def _milliseconds(name: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6})(ms|s)", text)
    poll_ms = int(match[1]) * _UNITS_MS[match[2]] if match else 0
    if not 1 <= poll_ms <= _MAX_POLL_MS:
        raise ConfigError(
            f"cluster log in {name}: poll={text!r} is not a time from 1ms to 60s; write poll=100ms"
        )
    return poll_ms


def _closed() -> Unavailable:
    return Unavailable("this handle on the cluster log was closed: open another")
