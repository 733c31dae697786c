"""Several broker processes on one host: their ports and node ids, and the worker entry point.

    listen   127.0.0.1:9092   shared by all workers: where clients begin
             127.0.0.1:9093   worker 1, 127.0.0.1:9094 worker 2, … : what Metadata advertises

Every worker is a complete broker with its own node id and port, so clients connect to the leader of
each partition. Each worker also binds the shared port (SO_REUSEPORT), and the system assigns every
new connection to one of them.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rookery.broker.process.exposure import check_exposure
from rookery.broker.serve import BrokerInfo, check_folder, serve
from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.service.listen.sharedport import following_port, reserve_port
from rookery.service.process import StopRequest
from rookery.service.supervisor import Orders, Report, Supervisor
from rookery.service.worker import Tell, run_worker


def worker_settings(
    settings: BrokerSettings, index: int, shared: Mapping[str, Address]
) -> BrokerSettings:
    """Return the settings of one worker: its own ports and node id, and the shared ports.

    Args:
        settings: the settings of all workers.
        index: the number of the worker, from 0.
        shared: the shared address of each listener.

    Raises:
        ConfigError: there are not enough ports, or the settings contradict each other.
    """
    http = settings.http_listen
    if http:
        address = parse_address(http, "http_listen", lowest_port=0)
        http = following_port(address, index, "http_listen").text
    own = replace(
        settings,
        http_listen=http,
        node_id=settings.node_id + index if settings.node_id >= 0 else -1,
        workers=1,
    )
    if settings.listeners:
        return replace(
            own,
            listeners={
                name: replace(_of_worker(listener, index), shared=shared[name].text)
                for name, listener in settings.listeners.items()
            },
        )
    only = _of_worker(ListenerConfig(listen=settings.listen, advertise=settings.advertise), index)
    [bootstrap] = shared.values()
    return replace(own, listen=only.listen, advertise=only.advertise, bootstrap=bootstrap.text)


def _of_worker(config: ListenerConfig, index: int) -> ListenerConfig:
    """Return a worker's own listener, on a port after the shared one.

    Raises:
        ConfigError: there is no such port, or the advertised one is not known.
    """
    advertise = ""
    if config.advertise:
        public = parse_address(config.advertise, "advertise")
        advertise = following_port(public, index + 1, "advertise").text
        if not config.address.port:
            raise ConfigError("advertise: workers need fixed ports for it; give `listen` a port")
    listen = following_port(config.address, index + 1, "listen")
    return replace(config.at(listen), advertise=advertise)


class BrokerWorkers:
    """The supervisor of several brokers."""

    def __init__(
        self, settings: BrokerSettings, when_ready: Callable[[list[BrokerInfo]], None]
    ) -> None:
        """Reserve the shared port.

        Raises:
            ConfigError: a setting cannot be used, or a port is taken.
        """
        if settings.bootstrap:
            raise ConfigError("bootstrap: with workers the shared address is that of `listen`")
        check_exposure(settings)
        if not settings.store:
            check_folder(settings.data)
        self._reserved: list[socket.socket] = []
        shared = {
            name: self._reserve(listener.address)
            for name, listener in settings.client_listeners().items()
        }
        self.bootstrap = next(iter(shared.values()))
        self._supervisor = Supervisor(
            (sys.executable, "-m", "rookery.broker.process.workers"),
            [
                partial(orders_of, worker_settings(settings, index, shared))
                for index in range(settings.workers)
            ],
            settings.drain_timeout_ms,
            lambda reports: when_ready([BrokerInfo(**report) for report in reports]),
        )

    def _reserve(self, address: Address) -> Address:
        """Keep a port for the workers, and return it."""
        reserved = reserve_port(address, "listen")
        self._reserved.append(reserved)
        return Address(address.host, int(reserved.getsockname()[1]))

    async def run(self, stop: StopRequest) -> int:
        """Keep the workers alive until they are asked to stop; return the exit code."""
        try:
            return await self._supervisor.run(stop)
        finally:
            for reserved in self._reserved:
                reserved.close()


def orders_of(settings: BrokerSettings, report: Report | None) -> Orders:
    """Return a worker's settings for a restart, with the last port and node id."""
    if report is None:
        return asdict(settings)
    config = ListenerConfig(listen=settings.listen)
    if not config.address.port:
        config = config.at(parse_address(report["address"]))
    return asdict(replace(settings, listen=config.listen, node_id=report["node_id"]))


async def _work(orders: dict[str, Any], stop: StopRequest, tell: Tell) -> int:
    def when_ready(info: BrokerInfo) -> None:
        tell(info.as_json())

    return await serve(BrokerSettings.from_json(orders), stop, when_ready)


if __name__ == "__main__":
    sys.exit(run_worker("rookery broker", _work))
