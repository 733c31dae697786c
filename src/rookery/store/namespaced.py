"""One bucket for several clusters: what is not a segment lies apart for each namespace.

    _rookery/objects/…   is kept as   _rookery/{namespace}/objects/…

Segments have the namespace in their keys already. Everything above this layer asks for the short
form alone, so that nothing can name another cluster's objects by mistake; errors name the full key,
which is the one to look for in the bucket.
"""

from __future__ import annotations

from builtins import list as List  # noqa: N812 (the port has a method of that name)
from collections.abc import Sequence
from typing import Final

from rookery.store.port import Buffer, NotFound, Store, Stored

ROOT: Final = "_rookery/"


def full_key(namespace: str, key: str) -> str:
    """Return what an object is called in the store itself, where every namespace has its own."""
    return f"{ROOT}{namespace}/{key.removeprefix(ROOT)}" if key.startswith(ROOT) else key


class NamespacedStore:
    """Passes everything on, under the namespace's own keys."""

    def __init__(self, store: Store, namespace: str) -> None:
        """Take over the store, which `close` closes."""
        self._store = store
        self._namespace = namespace
        self._own = f"{ROOT}{namespace}/"

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts as a new object."""
        await self._store.create(self._full(key), parts)

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Return the bytes from `start` on."""
        full = self._full(key)
        try:
            return await self._store.read(full, start, size)
        except NotFound:
            raise NotFound(key, full) from None

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        """Return the same without a copy."""
        full = self._full(key)
        try:
            return await self._store.view(full, start, size)
        except NotFound:
            raise NotFound(key, full) from None

    async def size(self, key: str) -> int | None:
        """Return the object's size in bytes."""
        return await self._store.size(self._full(key))

    async def list(self, prefix: str = "") -> List[Stored]:
        """Return all objects whose keys begin with the prefix, without other namespaces' own."""
        if prefix.startswith(ROOT):
            found = await self._store.list(self._full(prefix))
        else:
            found = [
                one
                for one in await self._store.list(prefix)
                if not one.key.startswith(ROOT) or one.key.startswith(self._own)
            ]
        return sorted(Stored(self._short(one.key), one.size) for one in found)

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Return an object whole with the name of its version."""
        return await self._store.read_version(self._full(key))

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace an object, if it still is that version."""
        return await self._store.replace(self._full(key), data, version)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await self._store.delete(self._full(key))

    async def close(self) -> None:
        """Let the handle go."""
        await self._store.close()

    def _full(self, key: str) -> str:
        return full_key(self._namespace, key)

    def _short(self, key: str) -> str:
        return ROOT + key[len(self._own) :] if key.startswith(self._own) else key
