"""Reads objects by id: entries of the cluster log, journal files, or objects in the store.

object id ──┬─ below zero ───────────────────► payload of an entry of the cluster log
            ├─ number below STORED ──────────► journal file
            ├─ named in State.objects.segments ──► {namespace}/{topic}/{partition}/segment-….kfs
            └─ any other ────────────────────► _rookery/objects/{incarnation}/{number}
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from rookery import metrics
from rookery.cluster.entry import read_entry
from rookery.cluster.port import EntriesTrimmed, ReadableLog
from rookery.cluster.state.state import State
from rookery.errors import Corrupt, Unavailable
from rookery.formats.keys import (
    Generation,
    index_key,
    is_stored,
    journal_name,
    object_key,
    segment_key,
    split_object_id,
    times_key,
)
from rookery.log.read.files import JournalFiles, MissingObject
from rookery.store.port import Buffer, NotFound, ReadableStore
from rookery.store.wrappers import full_key

Read = Callable[[int, int, int], Awaitable[Buffer]]
"""Reads (object id, position, size); returns fewer bytes only where the object ends."""

# The index files of a segment are read whole. The bound protects memory against damaged names.
_BESIDE_BYTES: Final = 64 * 1024 * 1024

_MISSING: Final = metrics.counter(
    "rookery_log_objects_missing_total",
    "Reads of objects in the store that were not there; a few are moves, more call for fsck.",
)
# Entries are read in steps of this size, and cached up to the other bound.
_READ_BYTES: Final = 512 * 1024
_CACHE_BYTES: Final = 16 * 1024 * 1024


class RemovedObject(MissingObject):
    """An object is not in the store any more."""

    def __init__(self, object_id: int, error: NotFound) -> None:
        super().__init__(
            object_id,
            f"{error}; if the cluster log still names it, another program has deleted it: "
            "run rookery fsck",
        )
        self.key = error.key


def key_of(state: State, namespace: str, object_id: int) -> str:
    """Return the key of an object in the store: a segment's, or a shared object's."""
    segment = state.objects.segments.get(object_id)
    if segment is None:
        return object_key(object_id)
    generation = None if segment.is_plain else Generation(*split_object_id(object_id))
    return segment_key(namespace, segment.topic, segment.partition, segment.base_offset, generation)


def keys_of(state: State, namespace: str, object_id: int) -> list[str]:
    """Return the keys of an object in the store and of the files that belong to it."""
    key = key_of(state, namespace, object_id)
    if object_id not in state.objects.segments:
        return [key]
    return [key, index_key(key), times_key(key)]


class Places:
    """Reads journal files and objects in the store."""

    def __init__(
        self,
        files: JournalFiles | None,
        store: ReadableStore | None,
        state: Callable[[], State],
        namespace: str,
    ) -> None:
        """Set the sources.

        Args:
            files: the journal files; None if this process has none.
            store: stores all other objects; None if there is none.
            state: returns the current state, which knows the names of segments.
            namespace: the prefix of segment keys.
        """
        self._files = files
        self._store = store
        self._state = state
        self._namespace = namespace

    def name(self, object_id: int) -> str:
        """Return the name of an object, for messages."""
        if not is_stored(object_id):
            return f"journal file {journal_name(object_id)}"
        return f"object {full_key(self._namespace, self.key(object_id))}"

    def key(self, object_id: int) -> str:
        """Return the key of an object in the store."""
        return key_of(self._state(), self._namespace, object_id)

    async def read(self, object_id: int, position: int, size: int) -> Buffer:
        """Return `size` bytes from the position on, fewer only where the object ends.

        Raises:
            MissingObject: There is no such object.
            Corrupt: The header of a journal file is invalid.
            Unavailable: The disk or the store could not read it.
        """
        if position < 0 or size < 0:
            raise ValueError(f"cannot read {size} bytes at position {position}")
        if is_stored(object_id):
            try:
                return await self._read_stored(object_id, self.key(object_id), position, size)
            except MissingObject:
                _MISSING.inc()
                raise
        if self._files is None:
            raise Unavailable(f"{self.name(object_id)}: this process has no journal folder")
        return await self._files.read(object_id, position, size)

    async def beside(self, object_id: int, key: str) -> bytes:
        """Return the whole contents of a file that belongs to a segment.

        Raises:
            RemovedObject: There is no such file.
            Corrupt: It is far larger than any such file.
            Unavailable: The store could not read it.
        """
        data = bytes(await self._read_stored(object_id, key, 0, _BESIDE_BYTES + 1))
        if len(data) > _BESIDE_BYTES:
            raise Corrupt(f"{key}: is longer than {_BESIDE_BYTES} bytes, which none can be")
        return data

    async def _read_stored(self, object_id: int, key: str, position: int, size: int) -> Buffer:
        if self._store is None:
            name = full_key(self._namespace, key)
            raise Unavailable(f"object {name} is in a store, but this process has no store")
        try:
            return await self._store.view(key, position, size)
        except NotFound as error:
            raise RemovedObject(object_id, error) from error
        except ValueError:
            return b""  # the position is beyond the object's end


class TrimmedEntry(MissingObject):
    """An entry was trimmed, so its batches were moved."""

    def __init__(self, number: int) -> None:
        super().__init__(
            -number,
            f"entry {number} was trimmed from the cluster log; if the cluster log still names "
            "batches in it, run rookery fsck",
        )


class EntryPayloads:
    """Payloads of cluster log entries, read several at a time, because readers move forward."""

    def __init__(self, cluster_log: ReadableLog) -> None:
        self._log = cluster_log
        self._kept: OrderedDict[int, memoryview] = OrderedDict()
        self._kept_bytes = 0
        self._reading = asyncio.Lock()

    async def payload(self, number: int) -> memoryview:
        """Return the payload of an entry.

        Raises:
            TrimmedEntry: the entry was trimmed.
            Corrupt: the log has no such entry.
            Unavailable: the cluster log cannot be read.
        """
        if number not in self._kept:
            async with self._reading:  # others may request the same entry
                if number not in self._kept:
                    return await self._load(number)
        self._kept.move_to_end(number)
        return self._kept[number]

    async def _load(self, number: int) -> memoryview:
        wanted: memoryview | None = None
        try:
            entries = await self._log.read(number - 1, _READ_BYTES)
        except EntriesTrimmed as error:
            raise TrimmedEntry(number) from error
        for entry, data in entries:
            payload = memoryview(read_entry(entry, data).payload)  # type: ignore[arg-type] # read as a view
            if entry == number:
                wanted = payload
            self._keep(entry, payload)
        if wanted is None:
            raise Corrupt(f"entry {number} of the cluster log is missing, with the batches in it")
        return wanted

    def _keep(self, number: int, payload: memoryview) -> None:
        if number in self._kept or not payload:
            return
        self._kept[number] = payload
        self._kept_bytes += len(payload)
        while self._kept_bytes > _CACHE_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])


class EntryReader:
    """Reads the bytes of any row: payloads of entries itself, other objects by another reader."""

    def __init__(self, cluster_log: ReadableLog, objects: Read) -> None:
        """Set the sources.

        Args:
            cluster_log: stores the payloads.
            objects: reads journals and objects in the store.
        """
        self._entries = EntryPayloads(cluster_log)
        self._objects = objects

    async def read(self, object_id: int, position: int, size: int) -> Buffer:
        """Return `size` bytes from the position on, fewer only where the object ends.

        Raises:
            MissingObject: the entry was trimmed, or the object deleted.
            Corrupt: the entry is damaged.
            Unavailable: the cluster log or the store cannot be reached.
        """
        if object_id > 0:
            return await self._objects(object_id, position, size)
        payload = await self._entries.payload(-object_id)
        return bytes(payload[position : position + size])
