"""The open handles of a check, and the reader of its bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from rookery.cluster.entry import read_entry
from rookery.cluster.port import ClusterLog, EntriesTrimmed
from rookery.cluster.state.state import State
from rookery.errors import Corrupt
from rookery.log.read.files import JournalFiles
from rookery.log.read.objects import Places
from rookery.store.port import NotFound, Store

_ENTRIES_BYTES: Final = 1024 * 1024


class Sources(NamedTuple):
    """The open handles."""

    cluster_log: ClusterLog
    store: Store
    files: JournalFiles | None
    """The journal files of a broker with a folder; None if there is none."""
    namespace: str
    folder: Path | None = None
    """The folder of the journal files."""


class Bytes:
    """Reads bytes of entries of the cluster log, journal files and objects of the store."""

    def __init__(self, sources: Sources, state: Callable[[], State]) -> None:
        self.places = Places(sources.files, sources.store, state, sources.namespace)
        self._log = sources.cluster_log
        self._store = sources.store
        self._payloads: dict[int, bytes] = {}

    async def read(self, object_id: int, position: int, size: int) -> bytes:
        """Return bytes of an object, fewer only where it ends.

        Raises:
            MissingObject, Corrupt, Unavailable: as `Places.read`.
        """
        if object_id > 0:
            return bytes(await self.places.read(object_id, position, size))
        payload = self._payloads.get(-object_id)
        if payload is None:
            payload = await self._payload(-object_id)
        return payload[position : position + size]

    async def whole(self, key: str) -> bytes | None:
        """Return a small object of the store, None if it does not exist."""
        try:
            return await self._store.read(key)
        except NotFound:
            return None

    async def _payload(self, number: int) -> bytes:
        try:
            entries = await self._log.read(number - 1, _ENTRIES_BYTES)
        except EntriesTrimmed as error:
            raise Corrupt(f"entry {number} was trimmed, and the batches in it with it") from error
        # Entries are requested in order, so the entries of one read serve later requests.
        self._payloads = {
            entry.number: bytes(read_entry(entry.number, entry.data).payload)  # type: ignore[arg-type] # read as a view
            for entry in entries
        }
        if number not in self._payloads:
            raise Corrupt(f"entry {number} is not in the cluster log")
        return self._payloads[number]
