"""Several proxy processes on one host that share all ports (SO_REUSEPORT).

Every worker serves every port, and the system assigns each new connection to one of them. The ports
of brokers follow from their node ids alone, so that all workers agree without asking each other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address
from rookery.proxy.operation.addresscheck import check_addresses
from rookery.proxy.operation.clusterfiles import digest_files, find_touched
from rookery.proxy.operation.settingowner import ListenerOwner, SettingOwner
from rookery.proxy.operation.settingschange import compare
from rookery.proxy.operation.settingsreload import (
    HangUp,
    SettingsReload,
    SettingsSource,
    log_change,
)
from rookery.proxy.serve import ProxyInfo, ProxyServer, check_proxy_exposure
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.service.listen.sharedport import following_port, reserve_port
from rookery.service.process import StopRequest
from rookery.service.supervisor import Orders, OrdersOf, Report, Supervisor
from rookery.service.worker import LaterOrders, Tell, run_worker

log = logging.getLogger(__name__)


class ProxyWorkers:
    """The supervisor of several proxies."""

    def __init__(
        self, settings: ProxySettings, when_ready: Callable[[list[ProxyInfo]], None]
    ) -> None:
        """Reserve the shared ports.

        Raises:
            ConfigError: a setting cannot be used, or a port is taken.
        """
        check_addresses(settings)
        check_proxy_exposure(settings)
        self._settings = settings
        self._files = digest_files(settings)
        self._ports = _SharedPorts()
        shared = self._ports.reserve(settings)
        self._ports.keep(shared)
        self._supervisor = Supervisor(
            (sys.executable, "-m", "rookery.proxy.workers"),
            _all_orders(shared),
            settings.drain_timeout_ms,
            lambda reports: when_ready([ProxyInfo.from_json(each) for each in reports]),
        )

    def reload_from(self, source: SettingsSource, stop: StopRequest) -> None:
        """Read the settings again at a hang-up signal, once `stop` is connected to signals."""
        stop.when_hung_up = HangUp(partial(self.reload, source)).request

    async def reload(self, source: SettingsSource) -> None:
        """Read the settings again; all workers use them, or none does."""
        try:
            settings = await asyncio.to_thread(source.read)
            check_proxy_exposure(settings)
            files = digest_files(settings)
            change = compare(self._settings, settings, find_touched(self._files, files))
            await self._change(change.settings)
        except ConfigError as error:
            problem = str(source.locate(error))
            log.error("the settings are not reloaded: %s", problem, extra={"error": problem})  # noqa: TRY400 (a user's mistake)
            await self._supervisor.tell({"refused": problem})
            return
        self._settings, self._files = change.settings, files
        log_change(change)

    async def run(self, stop: StopRequest) -> int:
        """Keep the workers alive until they are asked to stop; return the exit code."""
        try:
            return await self._supervisor.run(stop)
        finally:
            self._ports.close()

    async def _change(self, settings: ProxySettings) -> None:
        """Give settings to all workers.

        Raises:
            ConfigError: a worker cannot use them, or a port is taken.
        """
        shared = self._ports.reserve(settings)
        reply = await self._supervisor.change(_all_orders(shared))
        if reply["error"]:
            self._ports.keep(None)
            name = reply["name"]
            # Workers always have tables of clusters, which the user's file may not have.
            prefix = "" if settings.clusters else "clusters.default."
            raise ConfigError(reply["error"], name=name.removeprefix(prefix))
        self._ports.keep(shared)


class _SharedPorts:
    """The bootstrap ports of all virtual clusters, bound by the supervisor for its workers."""

    def __init__(self) -> None:
        self._sockets: dict[Address, socket.socket] = {}
        # What a port was reserved for: a listener with port 0 keeps the port that it got.
        self._address_of: dict[tuple[str, str, str], Address] = {}
        self._kept: set[Address] = set()

    def reserve(self, settings: ProxySettings) -> ProxySettings:
        """Bind the ports that are not bound; return settings that name all.

        Raises:
            ConfigError: a port is taken.
        """
        try:
            clusters: dict[str, VirtualClusterSettings] = {}
            for name, each in settings.virtual_clusters().items():
                with SettingOwner(settings, name):
                    clusters[name] = each.at(self._find_all(name, each))
        except ConfigError:
            self.keep(None)
            raise
        return replace(settings.with_clusters(clusters), is_shared=True)

    def keep(self, settings: ProxySettings | None) -> None:
        """Release all ports but those of some settings, by default those that were kept before."""
        if settings is not None:
            self._kept = {
                listener.address
                for each in settings.virtual_clusters().values()
                for listener in each.client_listeners().values()
            }
        for address in [each for each in self._sockets if each not in self._kept]:
            self._sockets.pop(address).close()
        self._address_of = {
            key: address for key, address in self._address_of.items() if address in self._kept
        }

    def close(self) -> None:
        """Release all ports."""
        for reserved in self._sockets.values():
            reserved.close()

    def _find_all(self, cluster: str, settings: VirtualClusterSettings) -> dict[str, Address]:
        addresses: dict[str, Address] = {}
        for name, config in settings.client_listeners().items():
            with ListenerOwner(settings, name):
                addresses[name] = self._find((cluster, name, config.listen), config.address)
        return addresses

    def _find(self, key: tuple[str, str, str], wanted: Address) -> Address:
        known = self._address_of.get(key)
        if known is not None:
            return known
        address = wanted
        if wanted not in self._sockets:
            reserved = reserve_port(wanted, "listen")
            address = Address(wanted.host, int(reserved.getsockname()[1]))
            self._sockets[address] = reserved
        self._address_of[key] = address
        return address


def _all_orders(shared: ProxySettings) -> list[OrdersOf]:
    return [partial(_orders, worker_settings(shared, index)) for index in range(shared.workers)]


def worker_settings(settings: ProxySettings, index: int) -> ProxySettings:
    """Return the settings of one worker: its own HTTP port, and everything else shared.

    Raises:
        ConfigError: there are not enough ports.
    """
    http = settings.http_listen
    if http:
        address = parse_address(http, "http_listen", lowest_port=0)
        http = following_port(address, index, "http_listen").text
    return replace(settings, http_listen=http, workers=1)


def _orders(settings: ProxySettings, _: Report | None) -> Orders:
    return asdict(settings)


async def _work(later: LaterOrders, orders: dict[str, Any], stop: StopRequest, tell: Tell) -> int:
    server = ProxyServer(ProxySettings.from_json(orders), stop)
    later.handle = partial(_follow, server.reload)
    return await server.run(lambda info: tell(info.as_json()))


async def _follow(reload: SettingsReload, message: dict[str, Any]) -> None:
    """Apply changed settings, or record that the supervisor cannot use them.

    Raises:
        ConfigError: the settings cannot be used.
    """
    if "refused" in message:
        reload.record_refusal(message["refused"])
    else:
        await reload.change(ProxySettings.from_json(message["orders"]))


def _main() -> int:
    later = LaterOrders()
    return run_worker("rookery proxy", partial(_work, later), later)


if __name__ == "__main__":
    sys.exit(_main())
