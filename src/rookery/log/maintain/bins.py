"""Finds and deletes objects of every kind: journal files, shared objects, segments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rookery.clock import Clock, SystemClock
from rookery.cluster.state.state import State
from rookery.errors import Unavailable
from rookery.formats.keys import (
    OBJECTS,
    is_stored,
    journal_name,
    parse_journal_name,
    parse_object_key,
)
from rookery.log.read.objects import keys_of
from rookery.store.port import Store
from rookery.store.probe import PROBES

# Longer than a probe can take, even on a busy machine. A probe without its object rejects the
# store.
_PROBE_MS: Final = 20_000


class ObjectBin:
    """The objects of a cluster, by id."""

    def __init__(
        self,
        journals: Path | None,
        store: Store,
        state: Callable[[], State],
        namespace: str,
        clock: Clock | None = None,
    ) -> None:
        """Prepare to find and delete objects.

        Args:
            journals: the folder of journal files; None if there are none.
            store: stores all other objects.
            state: returns the state, which knows the names of segments.
            namespace: the prefix of segment keys.
            clock: measures how long a probe object has existed.
        """
        self._journals = journals
        self._store = store
        self._state = state
        self._namespace = namespace
        self._clock = clock or SystemClock()
        self._probes: dict[str, int] = {}

    async def find(self) -> list[int]:
        """Return the ids of all journals and shared objects that exist."""
        await self._remove_probes()
        names = await asyncio.to_thread(_names, self._journals) if self._journals else []
        keys = [item.key for item in await self._store.list(OBJECTS)]
        ids = [*map(parse_journal_name, names), *map(parse_object_key, keys)]
        return [object_id for object_id in ids if object_id is not None]

    async def _remove_probes(self) -> None:
        """Remove probe objects of killed processes; a running probe must not be disturbed."""
        now = self._clock.monotonic_ms()
        keys = {item.key for item in await self._store.list(PROBES)}
        self._probes = {key: self._probes.get(key, now) for key in keys}
        for key, seen in list(self._probes.items()):
            if now - seen >= _PROBE_MS:
                await self._store.delete(key)
                del self._probes[key]

    async def delete(self, object_id: int) -> None:
        """Delete an object and the files that belong to it; a missing object is not an error.

        Raises:
            Unavailable: the store or the operating system refused.
        """
        if is_stored(object_id):
            for key in keys_of(self._state(), self._namespace, object_id):
                await self._store.delete(key)
        elif self._journals is not None:
            await asyncio.to_thread(_unlink, self._journals / journal_name(object_id))


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot remove {path}: {error.strerror}") from error
