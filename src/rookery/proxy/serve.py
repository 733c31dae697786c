"""Runs a proxy as the server of a process, and reports when it is ready."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from rookery.model.address import Address
from rookery.net.http import HttpServer
from rookery.proxy.observe import ProxyObserver, cluster_pages
from rookery.proxy.operation.settingowner import ListenerOwner, SettingOwner
from rookery.proxy.operation.settingschange import SettingsChange
from rookery.proxy.operation.settingsreload import HangUp, SettingsReload, SettingsSource
from rookery.proxy.proxy import Proxy
from rookery.proxy.settings import ProxySettings
from rookery.service.listen.exposure import check_http, check_listener
from rookery.service.process import StopRequest, run_server
from rookery.service.server import MonitoredServer

_ADVICE: Final = (
    "use sasl_ssl:// with users_file (docs/guide/proxy.md), or ssl:// with client_auth = required"
)


@dataclass(frozen=True, slots=True)
class ProxyInfo:
    """The report of a proxy that is ready."""

    clusters: dict[str, str]
    """The address where the clients of each virtual cluster begin."""
    nodes: dict[str, dict[str, str]]
    """The proxy's address of each broker, by cluster and node id."""
    listeners: dict[str, dict[str, dict[str, Any]]]
    """The listeners of each virtual cluster by name: `address`, where clients begin, and `nodes`.
    Those above are of the first one."""
    http: str
    """The address of metrics and health; empty if there is none."""
    pid: int

    def as_json(self) -> dict[str, object]:
        """Return it as JSON, for scripts and for the supervisor process."""
        return asdict(self)

    @classmethod
    def from_json(cls, report: dict[str, Any]) -> ProxyInfo:
        """Return the report that `as_json` gave."""
        return cls(**report)


class ProxyServer:
    """The proxy of one process, with HTTP and changes of its settings."""

    def __init__(self, settings: ProxySettings, stop: StopRequest) -> None:
        """Prepare the proxy; `run` serves.

        Raises:
            ConfigError: a setting cannot be used.
        """
        check_proxy_exposure(settings)
        self.proxy = Proxy(settings)
        self.reload = SettingsReload(self._apply, stop.wanted)
        self._stop = stop
        self._server = MonitoredServer(
            self.proxy,
            ProxyObserver(self.proxy, self.reload),
            settings.http_listen,
            cluster_pages(self.proxy),
            token_file=settings.http_token_file,
        )

    async def run(self, when_ready: Callable[[ProxyInfo], None]) -> int:
        """Serve until asked to stop, or until the proxy fails; return the exit code.

        Raises:
            ConfigError: a setting cannot be used.
        """
        return await run_server(
            self._server,
            self._stop,
            lambda: when_ready(self.info()),
            self.proxy.settings.drain_timeout_ms,
        )

    def info(self) -> ProxyInfo:
        """Return the addresses that are served."""
        return _info(self.proxy, self._server.http)

    async def _apply(self, settings: ProxySettings) -> SettingsChange:
        check_proxy_exposure(settings)
        return await self.proxy.apply(settings)


async def serve(
    settings: ProxySettings,
    stop: StopRequest,
    when_ready: Callable[[ProxyInfo], None],
    source: SettingsSource | None = None,
) -> int:
    """Run a proxy until it is asked to stop or fails; return the exit code.

    Args:
        settings: the settings of the proxy.
        stop: ends it.
        when_ready: called once clients can connect.
        source: read again at a hang-up signal; without one, that signal stops the process.

    Raises:
        ConfigError: a setting cannot be used.
    """
    server = ProxyServer(settings, stop)
    if source is not None:
        stop.when_hung_up = HangUp(partial(server.reload.read, source)).request
    return await server.run(when_ready)


def check_proxy_exposure(settings: ProxySettings) -> None:
    """Refuse a proxy that is open to other hosts, unless the setting `insecure` allows it.

    Raises:
        ConfigError: a listener or HTTP has no authentication.
    """
    if settings.insecure:
        return
    for name, cluster in settings.virtual_clusters().items():
        with SettingOwner(settings, name):
            for listener, config in cluster.client_listeners().items():
                with ListenerOwner(cluster, listener):
                    label = f"{name}.{listener}" if cluster.listeners else name
                    check_listener(label, config, _ADVICE)
    check_http(settings.http_listen, settings.http_token_file)


def _info(proxy: Proxy, http: HttpServer | None) -> ProxyInfo:
    return ProxyInfo(
        clusters={cluster.name: cluster.bootstrap_address.text for cluster in proxy.clusters},
        nodes={cluster.name: _texts(cluster.nodes) for cluster in proxy.clusters},
        listeners={
            cluster.name: {
                name: {
                    "address": each.ports.bootstrap_address.text,
                    "nodes": _texts(cluster.nodes_at(name)),
                }
                for name, each in cluster.listeners.by_name.items()
            }
            for cluster in proxy.clusters
        },
        http=Address(http.settings.host, http.port).text if http else "",
        pid=os.getpid(),
    )


def _texts(nodes: dict[int, Address]) -> dict[str, str]:
    return {str(node): address.text for node, address in nodes.items()}
