"""Several proxy processes on one host that share all ports (SO_REUSEPORT).

Every worker serves every port, and the system assigns each new connection to one of them. The ports
of brokers follow from their node ids alone, so that all workers agree without asking each other.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rookery.model.address import Address, parse_address
from rookery.proxy.serve import ProxyInfo, check_proxy_exposure, serve
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.service.listen.sharedport import following_port, reserve_port
from rookery.service.process import StopRequest
from rookery.service.supervisor import Orders, Report, Supervisor
from rookery.service.worker import Tell, run_worker


class ProxyWorkers:
    """The supervisor of several proxies."""

    def __init__(
        self, settings: ProxySettings, when_ready: Callable[[list[ProxyInfo]], None]
    ) -> None:
        """Reserve the shared ports.

        Raises:
            ConfigError: a setting cannot be used, or a port is taken.
        """
        check_proxy_exposure(settings)
        self._reserved: list[socket.socket] = []
        clusters = {name: self._reserve(each) for name, each in settings.virtual_clusters().items()}
        shared = replace(settings.with_clusters(clusters), is_shared=True)
        self._supervisor = Supervisor(
            (sys.executable, "-m", "rookery.proxy.workers"),
            [partial(_orders, worker_settings(shared, index)) for index in range(settings.workers)],
            settings.drain_timeout_ms,
            lambda reports: when_ready([ProxyInfo.from_json(each) for each in reports]),
        )

    def _reserve(self, settings: VirtualClusterSettings) -> VirtualClusterSettings:
        """Keep the bootstrap port of a cluster for the workers; return settings that name it."""
        reserved = reserve_port(settings.address, "listen")
        self._reserved.append(reserved)
        return settings.at(Address(settings.address.host, int(reserved.getsockname()[1])))

    async def run(self, stop: StopRequest) -> int:
        """Keep the workers alive until they are asked to stop; return the exit code."""
        try:
            return await self._supervisor.run(stop)
        finally:
            for reserved in self._reserved:
                reserved.close()


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


async def _work(orders: dict[str, Any], stop: StopRequest, tell: Tell) -> int:
    return await serve(ProxySettings.from_json(orders), stop, lambda info: tell(info.as_json()))


if __name__ == "__main__":
    sys.exit(run_worker("rookery proxy", _work))
