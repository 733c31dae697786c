"""Stores that wrap another store: one counts requests, one keeps clusters of a bucket apart.

`CountedStore` counts requests, bytes, seconds and dollars.

`NamespacedStore` lets several clusters share a bucket. Everything but segments gets a prefix:

    _rookery/objects/…   is stored as   _rookery/{namespace}/objects/…

Segments have the namespace in their keys already. The layers above use the short form alone, so
they cannot name another cluster's objects by mistake. Errors name the full key, as it is in the
bucket.
"""

from __future__ import annotations

from builtins import list as List  # noqa: N812 (the port has a method of that name)
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from rookery.clock import stopwatch
from rookery.errors import Error
from rookery.store.meter import (
    COST_DOLLARS,
    COST_PER_GB,
    ERRORS,
    READ_BYTES,
    REQUEST_SECONDS,
    REQUESTS,
    RETRIES,
    WRITTEN_BYTES,
)
from rookery.store.pendingcalls import PendingCalls
from rookery.store.port import Buffer, NotFound, Store, StoredObject
from rookery.store.prices import Prices

_GB: Final = 1e9
KINDS: Final = ("create", "replace", "list", "read", "size", "delete")
# The number of keys that a store lists in one request.
_PAGE: Final = 1000

T = TypeVar("T")


def cost(prices: Prices) -> float:
    """Return the cost of this process's requests so far."""
    return cost_of(prices, counts()) + prices.read_gb * READ_BYTES.value / _GB


def cost_of(prices: Prices, made: Mapping[str, float]) -> float:
    """Return the cost of the given number of requests of each kind."""
    thousands = (
        prices.put * sum(made.get(kind, 0) for kind in ("create", "replace", "list"))
        + prices.get * sum(made.get(kind, 0) for kind in ("read", "size"))
        + prices.delete * made.get("delete", 0)
    )
    return thousands / 1000


def cost_per_gb(prices: Prices) -> float:
    """Return the cost of this process for each gigabyte that it wrote."""
    return cost(prices) / max(WRITTEN_BYTES.value / _GB, 1 / _GB)


def counts() -> dict[str, float]:
    """Return the requests of this process by kind, including retries."""
    return {kind: _count_requests(kind) for kind in KINDS}


def _count_requests(kind: str) -> float:
    return REQUESTS.labels(kind).value + RETRIES.labels(kind).value


class CountedStore:
    """Forwards all calls and counts them."""

    def __init__(
        self, store: Store, prices: Prices | None = None, calls: PendingCalls | None = None
    ) -> None:
        """Count the requests to a store.

        Args:
            store: the store.
            prices: without them there are no cost metrics.
            calls: tracks requests until the store answers.
        """
        self._store = store
        self._calls = calls or PendingCalls("store")
        if prices is not None:
            COST_DOLLARS.follow(partial(cost, prices))
            COST_PER_GB.follow(partial(cost_per_gb, prices))

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Count and pass on."""
        await self._count("create", key, self._store.create(key, parts))
        WRITTEN_BYTES.inc(sum(memoryview(part).nbytes for part in parts))

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Count and pass on."""
        data = await self._count("read", key, self._store.read(key, start, size))
        READ_BYTES.inc(len(data))
        return data

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        """Count and pass on."""
        data = await self._count("read", key, self._store.view(key, start, size))
        READ_BYTES.inc(len(data))
        return data

    async def size(self, key: str) -> int | None:
        """Count and pass on."""
        return await self._count("size", key, self._store.size(key))

    async def list(self, prefix: str = "") -> List[StoredObject]:
        """Count and pass on; every thousand keys count as a request."""
        objects = await self._count("list", prefix, self._store.list(prefix))
        REQUESTS.labels("list").inc(max(0, len(objects) - 1) // _PAGE)
        return objects

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Count and pass on."""
        current = await self._count("read", key, self._store.read_version(key))
        READ_BYTES.inc(len(current[0]) if current else 0)
        return current

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Count and pass on."""
        new_version = await self._count("replace", key, self._store.replace(key, data, version))
        WRITTEN_BYTES.inc(len(data))
        return new_version

    async def delete(self, key: str) -> None:
        """Count and pass on."""
        await self._count("delete", key, self._store.delete(key))

    async def close(self) -> None:
        """Close the handle."""
        await self._store.close()

    async def _count(self, kind: str, key: str, request: Awaitable[T]) -> T:
        REQUESTS.labels(kind).inc()
        began = stopwatch()
        try:
            with self._calls.call(f"{kind} {key!r}"):
                return await request
        except Error as error:
            ERRORS.labels(kind, type(error).__name__).inc()
            raise
        finally:
            REQUEST_SECONDS.labels(kind).observe(stopwatch() - began)


ROOT: Final = "_rookery/"


def full_key(namespace: str, key: str) -> str:
    """Return the key of an object in the store itself, where every namespace has its own keys."""
    return f"{ROOT}{namespace}/{key.removeprefix(ROOT)}" if key.startswith(ROOT) else key


class NamespacedStore:
    """Forwards all calls with the keys of the namespace."""

    def __init__(self, store: Store, namespace: str) -> None:
        """Take ownership of the store, which `close` closes."""
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

    async def list(self, prefix: str = "") -> List[StoredObject]:
        """Return all objects whose keys begin with the prefix, except those of other namespaces."""
        if prefix.startswith(ROOT):
            listed = await self._store.list(self._full(prefix))
        else:
            listed = [
                stored
                for stored in await self._store.list(prefix)
                if not stored.key.startswith(ROOT) or stored.key.startswith(self._own)
            ]
        return sorted(StoredObject(self._short(stored.key), stored.size) for stored in listed)

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Return a whole object with the name of its version."""
        return await self._store.read_version(self._full(key))

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace an object if it still has that version."""
        return await self._store.replace(self._full(key), data, version)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await self._store.delete(self._full(key))

    async def close(self) -> None:
        """Close the handle."""
        await self._store.close()

    def _full(self, key: str) -> str:
        return full_key(self._namespace, key)

    def _short(self, key: str) -> str:
        return ROOT + key[len(self._own) :] if key.startswith(self._own) else key
