"""Reads entries and the bounds of the log.

Only plain range requests are used, because some versions of etcd reject all transactions when they
are full. Ranges that must be consistent with each other use the same revision.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.cluster.etcd.client import EtcdClient
from rookery.cluster.etcd.layout import EtcdKeys, read_value
from rookery.cluster.etcd.messages import RANGE, Pair, RangeResult, range_request, read_range
from rookery.cluster.etcd.refusal import HistoryCompacted
from rookery.cluster.port import READ_BYTES, EntriesTrimmed, LogEntry
from rookery.errors import Corrupt

# A range is limited by its number of entries, not by bytes. This many entries of the maximum size
# are 32 MiB, which etcd and this process must hold in memory.
_MAX_RANGE: Final = 64


class LogBounds(NamedTuple):
    """The first and last entries of the log: entries exist from `floor + 1` to `head`."""

    floor: int
    head: int


def ask_first(layout: EtcdKeys, revision: int = 0) -> bytes:
    """Request the key of the first entry."""
    return range_request(layout.entry(0), layout.end, limit=1, revision=revision, keys_only=True)


def read_bounds(layout: EtcdKeys, first: list[Pair], head: list[Pair]) -> LogBounds:
    """Return the bounds of the log from both keys, read at the same revision."""
    end = layout.read_head(head[0].value) if head else 0
    return LogBounds(layout.number(first[0].key) - 1 if first else end, end)


class EtcdReader:
    """Reads one log."""

    def __init__(self, client: EtcdClient, layout: EtcdKeys) -> None:
        self._client = client
        self._layout = layout
        # The recent average size of entries; it determines how many entries a range requests.
        self._usual_bytes = READ_BYTES // 16

    async def bounds(self) -> LogBounds:
        """Read the floor and the head at the same revision."""
        while True:
            try:
                return await self._bounds()
            except HistoryCompacted:
                # A compaction happened between the two reads; the next reads use a newer revision.
                continue

    async def read(self, after: int, max_bytes: int) -> list[LogEntry]:
        """Return the entries that follow number `after`: as many as fit, but at least one.

        Raises:
            EntriesTrimmed: at least one of them was trimmed.
            Corrupt: an entry that must exist is missing or damaged.
        """
        taken: list[LogEntry] = []
        room = max_bytes
        while True:
            limit = max(1, min(_MAX_RANGE, room // self._usual_bytes + 1))
            try:
                entries = await self._range(after + len(taken), limit)
            except EntriesTrimmed:
                if taken:
                    return taken
                raise
            for entry in entries:
                room -= len(entry.data)
                if taken and room < 0:
                    return taken
                taken.append(entry)
            if len(entries) < limit or room <= 0:
                return taken

    async def _range(self, after: int, limit: int) -> list[LogEntry]:
        start = self._layout.entry(max(after + 1, 0))
        result = await self._ask(range_request(start, self._layout.end, limit=limit))
        entries = [self._entry(pair) for pair in result.pairs]
        if not entries or entries[0].number != after + 1:
            return await self._without_next(entries, after, result.revision)
        for expected, entry in enumerate(entries, after + 1):
            if entry.number != expected:
                raise self._make_missing_error(expected)
        self._usual_bytes = max(1, sum(len(entry.data) for entry in entries) // len(entries))
        return entries

    async def _without_next(
        self, entries: list[LogEntry], after: int, revision: int
    ) -> list[LogEntry]:
        """Find out why entry `after + 1` did not exist at a revision."""
        try:
            bounds = await self._bounds(revision)
        except HistoryCompacted:
            bounds = await self.bounds()
            if bounds.floor <= after < bounds.head:
                # It was written in the meantime, or it is missing: look again.
                return await self._range(after, len(entries) or 1)
        if bounds.floor > after:
            raise EntriesTrimmed(after, bounds.floor)
        if entries or bounds.head > after:
            raise self._make_missing_error(after + 1)
        return []

    async def _bounds(self, revision: int = 0) -> LogBounds:
        first = await self._ask(ask_first(self._layout, revision))
        head = range_request(self._layout.head, revision=revision or first.revision)
        return read_bounds(self._layout, first.pairs, (await self._ask(head)).pairs)

    async def _ask(self, request: bytes) -> RangeResult:
        return read_range((await self._client.call(RANGE, request)).data)

    def _entry(self, pair: Pair) -> LogEntry:
        return LogEntry(self._layout.number(pair.key), read_value(pair.key, pair.value))

    def _make_missing_error(self, number: int) -> Corrupt:
        return Corrupt(
            f"entry {number} of the cluster log {self._layout.name!r} in etcd is missing: was its "
            "key deleted by hand? Stop all brokers"
        )
