"""Runs a broker as the server of a process, and reports when it is ready."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rookery.broker.broker import Broker
from rookery.broker.process.exposure import check_exposure
from rookery.broker.process.observe import Observer
from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.net.http import HttpServer
from rookery.service.process import StopRequest, run_server
from rookery.service.server import MonitoredServer
from rookery.store.open import name_of


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """The report of a broker that is ready."""

    node_id: int
    address: str
    """The address for clients."""
    http: str
    """The address of metrics and health; empty if there is none."""
    cluster_id: str
    data: str
    """The location of the log: a folder, or the URL of a store."""
    durability: str
    """Where an acknowledged record is stored: "disk", "os" or "store"; "none" if read-only."""
    pid: int

    def as_json(self) -> dict[str, object]:
        """Return it as JSON, for scripts and for the supervisor process."""
        return asdict(self)


async def serve(
    settings: BrokerSettings, stop: StopRequest, when_ready: Callable[[BrokerInfo], None]
) -> int:
    """Run a broker until it is asked to stop or fails; return the exit code.

    Raises:
        ConfigError: a setting cannot be used.
        Unavailable: the folder's cluster log is unreachable.
        Corrupt: the folder holds data that this version cannot read.
    """
    check_exposure(settings)
    if not settings.store and not settings.log_dir:
        check_folder(settings.data)
    broker = Broker(settings)
    server = MonitoredServer(
        broker, Observer(broker), settings.http_listen, token_file=settings.http_token_file
    )
    return await run_server(
        server, stop, lambda: when_ready(_info(broker, server.http)), settings.drain_timeout_ms
    )


def _info(broker: Broker, http: HttpServer | None) -> BrokerInfo:
    """Return the report of a broker that is ready."""
    settings = broker.settings
    own = broker.ports.endpoints[0]
    return BrokerInfo(
        node_id=broker.services.node_id,
        address=Address(own.host, own.port).text,
        http=Address(http.settings.host, http.port).text if http else "",
        cluster_id=broker.replica.state.cluster_id,
        data=name_of(settings.store) or str(Path(settings.log_dir or settings.data).absolute()),
        durability=_durability(settings),
        pid=os.getpid(),
    )


def _durability(settings: BrokerSettings) -> str:
    if settings.read_only:
        return "none"
    return "store" if settings.store else settings.durability


def check_folder(data: str) -> None:
    """Refuse an unusable data folder before anything is started.

    Raises:
        ConfigError: it cannot be created or written.
    """
    folder = Path(data).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is not a folder" if folder.exists() else error.strerror
        raise ConfigError(
            f"data: cannot use the folder {folder}: {reason}; name another with --data"
        ) from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(
            f"data: the folder {folder} may not be written; change its permissions or name "
            "another with --data"
        )
