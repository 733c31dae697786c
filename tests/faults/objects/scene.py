"""A cluster's log in the servers of the session: brokers, caretakers and the proxy before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

from rookery.broker.settings import BrokerSettings
from rookery.log.settings import RewriteSettings
from rookery.store.open import open_store
from rookery.store.port import Store
from rookery.testing.backends import ETCD, ProxyThread, ServerBackend, list_keys
from rookery.testing.brokers import BRISK, Hosts
from rookery.testing.caretakers import CaretakerProcess
from rookery.testing.wait import wait_until
from tests.crash.load import Load

_names = count(1)

T = TypeVar("T")


class Scene:
    """The servers and processes of one test."""

    def __init__(self, backend: ServerBackend, kind: str, folder: Path, stack: ExitStack) -> None:
        self.backend = backend
        self.kind = kind
        self.folder = folder
        name = f"scene-{folder.parent.name}-{next(_names)}"
        self.store = backend.store(name)
        self.cluster = backend.cluster(name) if kind == ETCD else ""
        self.proxy = stack.enter_context(ProxyThread(backend.seaweed.port))
        self._name = name
        self._stack = stack
        self._hosts: list[Hosts] = []
        self._caretakers: list[CaretakerProcess] = []

    def proxied(self, **options: str) -> str:
        """Return the URL of the store through the proxy."""
        return self.backend.store(self._name, self.proxy.endpoint, **options)

    def hosts(self, number: int, *flags: str, store: str = "") -> Hosts:
        """Start brokers; they end with the test."""
        folder = self.folder / f"hosts-{len(self._hosts)}"
        folder.mkdir()
        hosts = Hosts(
            number,
            store=store or self.store,
            cluster=self.cluster,
            folder=folder,
            flags=[*BRISK, *flags],
        )
        self._hosts.append(hosts)
        return self._stack.enter_context(hosts)

    def caretaker(self, store: str = "", segment_bytes: int = 400_000) -> CaretakerProcess:
        """Start a caretaker that no broker knows of; it ends with the test."""
        log = self.folder / f"caretaker-{len(self._caretakers)}.log"
        made = CaretakerProcess(self.settings(store or self.store, segment_bytes), log)
        self._caretakers.append(made)
        return self._stack.enter_context(made)

    def settings(self, store: str, segment_bytes: int) -> BrokerSettings:
        """Return settings with which a caretaker does everything within seconds."""
        return BrokerSettings(
            store=store,
            cluster=self.cluster,
            upkeep_interval_ms=200,
            beat_interval_ms=500,
            delete_delay_ms=300,
            orphan_interval_ms=1000,
            snapshot_entries=100,
            rewrite=RewriteSettings(
                merge_age_ms=200, segment_bytes=segment_bytes, round_bytes=1_000_000
            ),
        )

    def keys(self, part: str = "") -> list[str]:
        """Return the keys of the store's objects that have a text in them."""
        return list_keys(self.store, part)

    def with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Use the store directly, without the proxy."""

        async def run() -> T:
            store = open_store(self.store)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def rest(self, seconds: float) -> None:
        """Let time pass while all processes are suspended, since there is nothing to wait for."""
        sleep(seconds)

    def words(self) -> str:
        """Return the end of the output of all processes."""
        said = [hosts.words() for hosts in self._hosts]
        return "\n".join([*said, *(caretaker.words() for caretaker in self._caretakers)])


def load_until(load: Load, holds: Callable[[], Any], what: str) -> None:
    """Continue to write until a condition holds."""

    def step() -> bool:
        load.wait_for(1)
        return bool(holds())

    wait_until(step, what)
