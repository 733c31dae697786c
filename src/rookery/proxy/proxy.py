"""The proxy of a process: its virtual clusters, and the periodic look at their upstreams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from rookery.proxy.filterapi import Filter
from rookery.proxy.filterload import load_filters
from rookery.proxy.processshare import ProcessShare
from rookery.proxy.settings import ProxySettings
from rookery.proxy.virtualcluster import VirtualCluster
from rookery.service.periodic import PeriodicTasks

_SECURITY_INTERVAL_MS: Final = 1_000


class Proxy:
    """Serves the clients of all virtual clusters."""

    def __init__(
        self, settings: ProxySettings, filters: Mapping[str, Sequence[Filter]] | None = None
    ) -> None:
        """Prepare the clusters.

        Args:
            settings: of the proxy.
            filters: of each virtual cluster, by its name, instead of those that are configured.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self.settings = settings
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.share = ProcessShare.of(settings)
        self.clusters = [
            VirtualCluster(
                name,
                each,
                settings,
                self.share,
                filters[name] if filters else load_filters(each, settings.filter),
            )
            for name, each in settings.virtual_clusters().items()
        ]
        self._tasks = PeriodicTasks()

    async def start(self) -> None:
        """Open the ports of all clusters.

        Raises:
            ConfigError: a port cannot be listened on.
        """
        for cluster in self.clusters:
            await cluster.start()
            name = f"refresh of the brokers of {cluster.name}"
            self._tasks.every(self.settings.refresh_interval_ms, name, cluster.refresh)
            name = f"reload of certificates and users of {cluster.name}"
            self._tasks.every(_SECURITY_INTERVAL_MS, name, cluster.refresh_security)

    def waits_for(self) -> str:
        """Return what a start under way waits for."""
        return "the upstream clusters"

    async def stop(self) -> None:
        """Answer the requests in flight, then close all connections."""
        await self._tasks.stop()
        grace_ms = self.settings.drain_timeout_ms
        await asyncio.gather(*(cluster.stop(grace_ms) for cluster in self.clusters))

    async def abandon(self) -> None:
        """Close everything that a failed start has opened."""
        await self._tasks.stop()
        await asyncio.gather(*(cluster.stop(0) for cluster in self.clusters))
