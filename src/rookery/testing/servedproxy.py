"""The proxy for tests: real, on real ports, in an event loop of its own.

with ServedProxy("127.0.0.1:9092") as proxy:
    AdminClient({"bootstrap.servers": proxy.bootstrap})
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from rookery.errors import ConfigError
from rookery.net.loop import loop_factory
from rookery.proxy.filterapi import Filter
from rookery.proxy.proxy import Proxy
from rookery.proxy.settings import ProxySettings
from rookery.testing.ports import HOST, free_port, free_ports
from rookery.testing.wait import PATIENCE_SECONDS

_NODE_PORTS: Final = 4

T = TypeVar("T")


class ServedProxy:
    """A proxy with one virtual cluster, unless the settings have others."""

    def __init__(
        self,
        upstream: str = "",
        settings: ProxySettings | None = None,
        filters: Sequence[Filter] = (),
        *,
        port: int = 0,
    ) -> None:
        """Choose ports; start nothing.

        Args:
            upstream: the brokers of the cluster.
            settings: what else to set; without tables of clusters, the upstream is set here, and
                without tables of listeners, too, the address and the ports.
            filters: the filters of the virtual cluster.
            port: the port of the cluster; any free one if it is 0.

        Raises:
            ConfigError: a virtual cluster with mirror nodes has no `node_ports`. The default, the
                ports after its own, can belong to another test.
        """
        self.port = port or free_port()
        self.settings = replace(settings or ProxySettings(), http_listen="")
        if not self.settings.clusters:
            self.settings = replace(self.settings, upstream=upstream)
            if not self.settings.listeners:
                self._choose_ports()
        check_node_ports(self.settings)
        self._filters = filters
        self.proxy: Proxy
        """The proxy itself; what changes it must run in its own loop, by `do`."""
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    def _choose_ports(self) -> None:
        self.settings = replace(self.settings, listen=f"{HOST}:{self.port}")
        if not self.settings.node_ports and self.settings.nodes == "mirror":
            self.settings = replace(self.settings, node_ports=_free_range())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the proxy's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.do(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.do(self.proxy.stop())
        finally:
            self._end()

    async def _start(self) -> None:
        self.proxy = Proxy(self.settings, {"default": self._filters} if self._filters else None)
        try:
            await self.proxy.start()
        except BaseException:
            await self.proxy.abandon()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()


def check_node_ports(settings: ProxySettings) -> None:
    """Refuse a virtual cluster whose brokers would get ports that are not reserved for it.

    Raises:
        ConfigError: it has mirror nodes without names, and no `node_ports`.
    """
    for name, cluster in settings.virtual_clusters().items():
        for each in cluster.client_listeners().values():
            if cluster.nodes == "mirror" and not (each.node_ports or each.node_names):
                raise ConfigError(
                    "tests must reserve the ports of brokers: take them from `free_ports`",
                    name=f"clusters.{name}.node_ports",
                )


def _free_range() -> str:
    """Return a range of ports that nothing listens on."""
    first = free_ports(_NODE_PORTS)
    return f"{first}-{first + _NODE_PORTS - 1}"
