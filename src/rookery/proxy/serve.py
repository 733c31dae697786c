"""Runs a proxy as the server of a process, and reports when it is ready."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from rookery.model.address import Address
from rookery.net.http import HttpServer
from rookery.proxy.observe import ProxyObserver
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


async def serve(
    settings: ProxySettings, stop: StopRequest, when_ready: Callable[[ProxyInfo], None]
) -> int:
    """Run a proxy until it is asked to stop or fails; return the exit code.

    Raises:
        ConfigError: a setting cannot be used.
    """
    check_proxy_exposure(settings)
    proxy = Proxy(settings)
    server = MonitoredServer(
        proxy, ProxyObserver(proxy), settings.http_listen, token_file=settings.http_token_file
    )
    return await run_server(
        server, stop, lambda: when_ready(_info(proxy, server.http)), settings.drain_timeout_ms
    )


def check_proxy_exposure(settings: ProxySettings) -> None:
    """Refuse a proxy that is open to other hosts, unless the setting `insecure` allows it.

    Raises:
        ConfigError: a listener or HTTP has no authentication.
    """
    if settings.insecure:
        return
    for name, cluster in settings.virtual_clusters().items():
        check_listener(name, cluster.listener(), _ADVICE)
    check_http(settings.http_listen, settings.http_token_file)


def _info(proxy: Proxy, http: HttpServer | None) -> ProxyInfo:
    return ProxyInfo(
        clusters={cluster.name: cluster.bootstrap_address.text for cluster in proxy.clusters},
        nodes={
            cluster.name: {str(node): address.text for node, address in cluster.nodes.items()}
            for cluster in proxy.clusters
        },
        http=Address(http.settings.host, http.port).text if http else "",
        pid=os.getpid(),
    )
