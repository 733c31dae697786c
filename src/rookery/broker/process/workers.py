"""Several broker processes on one host: their ports and node ids, and the worker entry point.

    listen   127.0.0.1:9092   shared by all workers: where clients begin
             127.0.0.1:9093   worker 1, 127.0.0.1:9094 worker 2, … : what Metadata advertises

Every worker is a complete broker with its own node id and port, so clients connect to the leader of
each partition. Each worker also binds the shared port (SO_REUSEPORT), and the system assigns every
new connection to one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rookery.broker.serve import BrokerInfo, check_folder, serve
from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address
from rookery.service.process import StopRequest
from rookery.service.sharedport import following_port, reserve_port
from rookery.service.supervisor import Orders, Report, Supervisor
from rookery.service.worker import Tell, run_worker


def worker_settings(settings: BrokerSettings, index: int, bootstrap: Address) -> BrokerSettings:
    """Return the settings of one worker: its own ports and node id, and the shared port.

    Raises:
        ConfigError: there are not enough ports, or the settings contradict each other.
    """
    advertise = ""
    if settings.advertise:
        public = parse_address(settings.advertise, "advertise")
        advertise = following_port(public, index + 1, "advertise").text
    listen = parse_address(settings.listen, "listen", lowest_port=0)
    if not listen.port and settings.advertise:
        raise ConfigError("advertise: workers need fixed ports for it; give `listen` a port")
    http = settings.http_listen
    if http:
        address = parse_address(http, "http_listen", lowest_port=0)
        http = following_port(address, index, "http_listen").text
    return replace(
        settings,
        listen=following_port(listen, index + 1, "listen").text,
        bootstrap=bootstrap.text,
        advertise=advertise,
        http_listen=http,
        node_id=settings.node_id + index if settings.node_id >= 0 else -1,
        workers=1,
    )


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
        if not settings.store:
            check_folder(settings.data)
        listen = parse_address(settings.listen, "listen", lowest_port=0)
        self._reserved = reserve_port(listen, "listen")
        self.bootstrap = Address(listen.host, int(self._reserved.getsockname()[1]))
        self._supervisor = Supervisor(
            (sys.executable, "-m", "rookery.broker.process.workers"),
            [
                partial(orders_of, worker_settings(settings, index, self.bootstrap))
                for index in range(settings.workers)
            ],
            settings.drain_timeout_ms,
            lambda reports: when_ready([BrokerInfo(**report) for report in reports]),
        )

    async def run(self, stop: StopRequest) -> int:
        """Keep the workers alive until they are asked to stop; return the exit code."""
        try:
            return await self._supervisor.run(stop)
        finally:
            self._reserved.close()


def orders_of(settings: BrokerSettings, report: Report | None) -> Orders:
    """Return a worker's settings for a restart, with the last port and node id."""
    if report is None:
        return asdict(settings)
    listen = parse_address(settings.listen, lowest_port=0)
    if not listen.port:
        listen = Address(listen.host, parse_address(report["address"]).port)
    return asdict(replace(settings, listen=listen.text, node_id=report["node_id"]))


async def _work(orders: dict[str, Any], stop: StopRequest, tell: Tell) -> int:
    def when_ready(info: BrokerInfo) -> None:
        tell(info.as_json())

    return await serve(BrokerSettings.from_json(orders), stop, when_ready)


if __name__ == "__main__":
    sys.exit(run_worker("rookery broker", _work))
