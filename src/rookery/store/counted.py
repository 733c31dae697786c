"""A store that counts what is asked of another one, in requests, bytes, seconds and dollars."""

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
from rookery.store.pending import PendingCalls
from rookery.store.port import Buffer, Store, Stored
from rookery.store.prices import Prices

_GB: Final = 1e9
KINDS: Final = ("create", "replace", "list", "read", "size", "delete")
# How many keys a store lists in one request.
_PAGE: Final = 1000

T = TypeVar("T")


def cost(prices: Prices) -> float:
    """Return what this process has spent."""
    return cost_of(prices, counts()) + prices.read_gb * READ_BYTES.value / _GB


def cost_of(prices: Prices, made: Mapping[str, float]) -> float:
    """Return what so many requests of each kind cost."""
    thousands = (
        prices.put * sum(made.get(kind, 0) for kind in ("create", "replace", "list"))
        + prices.get * sum(made.get(kind, 0) for kind in ("read", "size"))
        + prices.delete * made.get("delete", 0)
    )
    return thousands / 1000


def cost_per_gb(prices: Prices) -> float:
    """Return what this process has spent for each gigabyte that it wrote."""
    return cost(prices) / max(WRITTEN_BYTES.value / _GB, 1 / _GB)


def counts() -> dict[str, float]:
    """Return the requests of this process by kind, with those that were made again."""
    return {kind: _made(kind) for kind in KINDS}


def _made(kind: str) -> float:
    return REQUESTS.labels(kind).value + RETRIES.labels(kind).value


class CountedStore:
    """Passes everything on and counts it."""

    def __init__(
        self, store: Store, prices: Prices | None = None, calls: PendingCalls | None = None
    ) -> None:
        """Count what is asked of a store.

        Args:
            store: the store.
            prices: without them there are no metrics of cost.
            calls: where requests are pending until the store answers.
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

    async def list(self, prefix: str = "") -> List[Stored]:
        """Count and pass on; every thousand keys are a request."""
        found = await self._count("list", prefix, self._store.list(prefix))
        REQUESTS.labels("list").inc(max(0, len(found) - 1) // _PAGE)
        return found

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Count and pass on."""
        found = await self._count("read", key, self._store.read_version(key))
        READ_BYTES.inc(len(found[0]) if found else 0)
        return found

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Count and pass on."""
        new_version = await self._count("replace", key, self._store.replace(key, data, version))
        WRITTEN_BYTES.inc(len(data))
        return new_version

    async def delete(self, key: str) -> None:
        """Count and pass on."""
        await self._count("delete", key, self._store.delete(key))

    async def close(self) -> None:
        """Let the handle go."""
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
