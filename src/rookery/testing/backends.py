"""Servers for brokers on many hosts: a real S3 server, a proxy that adds faults, perhaps etcd.

with ServerBackend("etcd+s3") as backend:
    hosts = Hosts(3, store=backend.store("mine"), cluster=backend.cluster("mine"), ...)
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from rookery.store.open import open_store
from rookery.testing.etcd import EtcdCluster
from rookery.testing.s3proxy import Rule, S3Proxy
from rookery.testing.seaweed import SeaweedServer
from rookery.testing.wait import PATIENCE_SECONDS, wait_until

ETCD: Final = "etcd+s3"
STORE: Final = "store+s3"
KINDS: Final = (ETCD, STORE)

# The server itself creates this object, to test whether it can.
_BUCKET: Final = "ready"


class ServerBackend:
    """The servers in which brokers store data; each cluster has its own name there."""

    def __init__(self, kind: str, *, members: int = 1) -> None:
        """Choose ports; start nothing.

        Args:
            kind: `etcd+s3`, or `store+s3` for brokers that agree in the store itself.
            members: the members of etcd.
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not one of {', '.join(KINDS)}")
        self.kind = kind
        self.seaweed = SeaweedServer()
        self.etcd = EtcdCluster(members) if kind == ETCD else None
        self._servers = ExitStack()

    def __enter__(self) -> Self:
        with self._servers:
            self._servers.enter_context(self.seaweed)
            if self.etcd is not None:
                self._servers.enter_context(self.etcd)
            self._servers = self._servers.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._servers.close()

    def store(self, name: str, endpoint: str | None = None, **options: str) -> str:
        """Return the URL of a cluster's store; the endpoint may be a proxy's."""
        return self.seaweed.url(f"{_BUCKET}/{name}", endpoint, **options)

    def cluster(self, name: str) -> str:
        """Return the URL of a cluster's log; empty if it is in the store."""
        return self.etcd.url(name) if self.etcd is not None else ""


class ProxyThread:
    """An `S3Proxy` for tests that have no event loop."""

    def __init__(self, upstream_port: int, *, seed: int = 0) -> None:
        """Choose a port; entering a `with` block starts it."""
        self.proxy = S3Proxy(upstream_port, seed=seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.proxy.start(), self._loop).result(PATIENCE_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.proxy.close(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    @property
    def endpoint(self) -> str:
        """Return its address."""
        return self.proxy.endpoint

    @property
    def befallen(self) -> int:
        """Return the number of requests with a fault so far."""
        return self.proxy.faults.total()

    def add(self, *rules: Rule) -> None:
        """Add rules."""
        for rule in rules:
            self._loop.call_soon_threadsafe(self.proxy.add, rule)

    def clear(self) -> None:
        """Drop all rules."""
        self._loop.call_soon_threadsafe(self.proxy.clear)

    def wait_for_faults(
        self, more: int = 1, since: int = 0, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Return when `more` requests had a fault beyond the `since` that had one before."""
        wait_until(
            lambda: self.befallen - since,
            f"{more} faults",
            accepts=lambda count: count >= more,
            seconds=patience,
        )


def list_keys(url: str, part: str = "") -> list[str]:
    """Return the keys of a store's objects that contain a text."""

    async def look() -> list[str]:
        store = open_store(url)
        try:
            return [listed.key for listed in await store.list() if part in listed.key]
        finally:
            await store.close()

    return asyncio.run(look())
