"""A store that fails, hangs or deceives on request, over a real one; it counts its requests."""

from __future__ import annotations

import asyncio
from builtins import list as List  # noqa: N812 (the port has a method of that name)
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import TypeVar

from rookery.errors import Unavailable
from rookery.store.port import Buffer, Store, StoredObject
from rookery.store.probe import PROBES

T = TypeVar("T")


class Fault(Enum):
    """What happens to a request."""

    NONE = auto()
    NOT_SENT = auto()
    """It fails before it reaches the store."""
    LOST_ANSWER = auto()
    """It is carried out, and fails all the same."""
    LATE = auto()
    """It fails, and is carried out when the test says so (`deliver`)."""


class Killed(BaseException):
    """The process is gone: nothing catches this but the test."""


class DrillStore:
    """Passes requests on, except for what a test orders; each process has one of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._late: list[Callable[[], Awaitable[object]]] = []
        self.count: Counter[str] = Counter()
        """How many requests were made, by kind."""
        self.held = asyncio.Event()
        """Set once a request is held back."""
        self._asked = asyncio.Event()
        self.fault: Callable[[str, str], Fault] = lambda kind, key: Fault.NONE
        """Says what happens to a request, by kind and key."""
        self.dies_after: int | None = None
        """The number of requests after which the process is killed, before the next one is sent."""

    def order(self, kind: str, *faults: Fault) -> None:
        """Set the outcomes of the next requests of a kind; later ones succeed."""
        left = list(faults)
        self.fault = lambda asked, _: left.pop(0) if asked == kind and left else Fault.NONE

    def hold(self) -> None:
        """Hold back all requests before they reach the store."""
        self.held.clear()
        self._is_open.clear()

    def let_through(self) -> None:
        """End `hold`."""
        self._is_open.set()

    async def asked(self, kind: str, times: int) -> None:
        """Return when a given number of requests of a kind were made."""
        while self.count[kind] < times:
            self._asked.clear()
            await self._asked.wait()

    async def deliver(self) -> None:
        """Carry out the delayed requests; their results are dropped."""
        late, self._late = self._late, []
        await asyncio.gather(*(request() for request in late), return_exceptions=True)

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._pass("create", key, lambda: self._store.create(key, parts))

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return await self._pass("read", key, lambda: self._store.read(key, start, size))

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        return await self.read(key, start, size)

    async def size(self, key: str) -> int | None:
        return await self._pass("size", key, lambda: self._store.size(key))

    async def list(self, prefix: str = "") -> List[StoredObject]:
        return await self._pass("list", prefix, lambda: self._store.list(prefix))

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        return await self._pass("read_version", key, lambda: self._store.read_version(key))

    async def replace(self, key: str, data: bytes, version: str) -> str:
        return await self._pass("replace", key, lambda: self._store.replace(key, data, version))

    async def delete(self, key: str) -> None:
        await self._pass("delete", key, lambda: self._store.delete(key))

    async def close(self) -> None:
        await self._store.close()

    async def _pass(self, kind: str, key: str, request: Callable[[], Awaitable[T]]) -> T:
        if key.startswith(PROBES):
            return await request()
        if self.dies_after is not None and self.count.total() >= self.dies_after:
            raise Killed
        self.count[kind] += 1
        self._asked.set()
        fault = self.fault(kind, key)
        if not self._is_open.is_set():
            self.held.set()
            await self._is_open.wait()
        if fault is Fault.NOT_SENT:
            raise Unavailable("ordered by the test: not sent")
        if fault is Fault.LATE:
            self._late.append(request)
            raise Unavailable("ordered by the test: no answer yet")
        result = await request()
        if fault is Fault.LOST_ANSWER:
            raise Unavailable("ordered by the test: the answer is lost")
        return result
