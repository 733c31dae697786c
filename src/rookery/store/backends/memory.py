"""Objects in this process's memory, for tests and trials: `memory:name`.

All handles with the same name share its objects until the process ends. `memory:` alone is a new
store each time.
"""

from __future__ import annotations

import hashlib
import threading
from builtins import list as List  # noqa: N812 (the port has a method of that name)
from collections.abc import Sequence
from typing import Final

from rookery.errors import Conflict
from rookery.store.port import (
    Buffer,
    NotFound,
    Store,
    StoredObject,
    StoreTraits,
    check_key,
    check_range,
)

_stores: Final[dict[str, dict[str, bytes]]] = {}
_changing: Final = threading.Lock()


def traits(_url: str) -> StoreTraits:
    """Return the traits."""
    return StoreTraits(has_preconditions=True)


def open(url: str) -> Store:  # noqa: A001 (a backend's interface)
    """Open the store of that name."""
    name = url.removeprefix("memory:")
    return MemoryStore(_stores.setdefault(name, {}) if name else {})


class MemoryStore:
    """A store in a dictionary."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self._objects = objects

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts as a new object."""
        check_key(key)
        data = b"".join(parts)
        with _changing:
            if key in self._objects:
                raise Conflict(f"object {key!r} exists already")
            self._objects[key] = data

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Return a range of an object."""
        check_key(key)
        check_range(key, start, size)
        data = self._objects.get(key)
        if data is None:
            raise NotFound(key)
        check_range(key, start, size, len(data))
        return data[start : None if size is None else start + size]

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        """Return a range of an object."""
        return await self.read(key, start, size)

    async def size(self, key: str) -> int | None:
        """Return an object's size, None if there is none."""
        check_key(key)
        data = self._objects.get(key)
        return None if data is None else len(data)

    async def list(self, prefix: str = "") -> List[StoredObject]:
        """Return the objects whose keys begin with the prefix."""
        sizes = ((key, len(data)) for key, data in list(self._objects.items()))
        return sorted(StoredObject(key, size) for key, size in sizes if key.startswith(prefix))

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Return an object and its version, None if there is none."""
        check_key(key)
        data = self._objects.get(key)
        return None if data is None else (data, _version(data))

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace an object that still has that version."""
        check_key(key)
        with _changing:
            old = self._objects.get(key)
            if old is None or _version(old) != version:
                raise Conflict(f"object {key!r} is no longer version {version!r}")
            self._objects[key] = bytes(data)
        return _version(data)

    async def delete(self, key: str) -> None:
        """Delete an object, if it exists."""
        check_key(key)
        with _changing:
            self._objects.pop(key, None)

    async def close(self) -> None:
        """Do nothing: the objects stay available under the store's name."""


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
