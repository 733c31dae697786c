"""The proxy of a process: its virtual clusters, and the periodic refresh of their upstreams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rookery.proxy.filterapi import Filter
from rookery.proxy.filterload import load_filters
from rookery.proxy.nodes.presence import PROBE_INTERVAL_MS
from rookery.proxy.operation.addresscheck import check_addresses
from rookery.proxy.operation.clusterfiles import digest_files, find_touched
from rookery.proxy.operation.settingowner import SettingOwner
from rookery.proxy.operation.settingschange import SettingsChange, compare
from rookery.proxy.processshare import ProcessShare
from rookery.proxy.settings import ProxySettings
from rookery.proxy.virtualcluster import VirtualCluster
from rookery.service.periodic import PeriodicTasks

log = logging.getLogger(__name__)

_SECURITY_INTERVAL_MS: Final = 1_000


class Proxy:
    """Serves the clients of all virtual clusters."""

    def __init__(
        self, settings: ProxySettings, filters: Mapping[str, Sequence[Filter]] | None = None
    ) -> None:
        """Prepare the clusters.

        Args:
            settings: the settings of the proxy.
            filters: the filters of virtual clusters by name, instead of the configured ones.

        Raises:
            ConfigError: a setting cannot be used.
        """
        check_addresses(settings)
        self.settings = settings
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.share = ProcessShare.of(settings)
        self._filters = filters or {}
        self._files = digest_files(settings)
        self._clusters = {
            name: self._create(settings, name) for name in settings.virtual_clusters()
        }
        self._tasks: dict[str, PeriodicTasks] = {}
        self._draining: set[asyncio.Task[None]] = set()
        # Changes of settings follow the start and each other, and the stop follows them.
        self._changing = asyncio.Lock()

    @property
    def clusters(self) -> list[VirtualCluster]:
        """The virtual clusters that accept clients, in the order of the settings."""
        return list(self._clusters.values())

    @property
    def draining(self) -> int:
        """The number of replaced or removed clusters that still have connections."""
        return len(self._draining)

    async def start(self) -> None:
        """Open the ports of all clusters.

        Raises:
            ConfigError: a port cannot be listened on.
        """
        async with self._changing:
            for name, cluster in self._clusters.items():
                with SettingOwner(self.settings, name):
                    await cluster.start()
                self._tasks[name] = _watch(cluster)

    def waits_for(self) -> str:
        """Return what a start under way waits for."""
        return "the upstream clusters"

    async def apply(self, settings: ProxySettings) -> SettingsChange:
        """Change the settings; connections of virtual clusters that differ are drained.

        Everything that can fail comes first, so that a change happens as a whole or not at all.
        Unchanged clusters and their connections are left alone.

        Raises:
            ConfigError: the settings cannot be used; nothing has changed.
        """
        async with self._changing:
            files = digest_files(settings)
            change = compare(self.settings, settings, find_touched(self._files, files))
            closed = [self._clusters[name] for name in change.closed]
            released = [address for each in closed for address in each.listeners.addresses()]
            prepared: dict[str, VirtualCluster] = {}
            try:
                for name in change.opened:
                    prepared[name] = self._create(settings, name)
                    with SettingOwner(settings, name):
                        await prepared[name].prepare(released)
            except BaseException:
                await _stop(prepared.values(), 0)
                raise
            await self._switch(change, prepared)
            self._files = files
            return change

    async def stop(self) -> None:
        """Answer the requests in flight, then close all connections."""
        async with self._changing:
            await self._close(self.settings.drain_timeout_ms)

    async def abandon(self) -> None:
        """Close everything that a failed start has opened."""
        await self._close(0)

    async def _close(self, grace_ms: int) -> None:
        for tasks in self._tasks.values():
            await tasks.stop()
        await _stop(self._clusters.values(), grace_ms)
        await asyncio.gather(*self._draining)

    def _create(self, settings: ProxySettings, name: str) -> VirtualCluster:
        own = settings.virtual_clusters()[name]
        with SettingOwner(settings, name):
            filters = self._filters.get(name) or load_filters(own, settings.filter)
            return VirtualCluster(name, own, settings, self.share, filters)

    async def _switch(self, change: SettingsChange, prepared: dict[str, VirtualCluster]) -> None:
        """Let the prepared clusters take the place of those that they replace."""
        closed = [self._clusters[name] for name in change.closed]
        for name in change.closed:
            await self._tasks.pop(name).stop()
        for each in closed:
            each.listeners.release()
        self.settings = change.settings
        self._clusters = {
            name: prepared.get(name) or self._clusters[name]
            for name in change.settings.virtual_clusters()
        }
        try:
            for name, each in prepared.items():
                await each.open()
                self._tasks[name] = _watch(each)
        finally:
            self.share.held.close()
            for each in closed:
                self._drain(each)

    def _drain(self, cluster: VirtualCluster) -> None:
        """Close the connections of a cluster when their requests are answered."""
        log.info("cluster %s: draining %d connections", cluster.name, len(cluster.links))
        task = asyncio.create_task(cluster.stop(self.settings.drain_timeout_ms))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)


def _watch(cluster: VirtualCluster) -> PeriodicTasks:
    """Look at the upstream and the files of a cluster from now on."""
    tasks = PeriodicTasks()
    name = f"refresh of the brokers of {cluster.name}"
    tasks.every(cluster.refresh_interval_ms, name, cluster.refresh)
    name = f"probe of the brokers of {cluster.name}"
    tasks.every(cluster.refresh_interval_ms, name, cluster.brokers.probe)
    name = f"probe of the instances of {cluster.name}"
    tasks.every(PROBE_INTERVAL_MS, name, cluster.probe_instances)
    name = f"reload of certificates and users of {cluster.name}"
    tasks.every(_SECURITY_INTERVAL_MS, name, cluster.refresh_security)
    return tasks


async def _stop(clusters: Iterable[VirtualCluster], grace_ms: int) -> None:
    await asyncio.gather(*(cluster.stop(grace_ms) for cluster in clusters))
