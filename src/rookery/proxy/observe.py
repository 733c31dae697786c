"""The proxy's health and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final

from rookery import metrics
from rookery.metrics import MetricReading
from rookery.net.http import Checks, Routes, health_route
from rookery.net.httptext import HttpRequest, Refusal, Response
from rookery.proxy.operation.settingsreload import SettingsReload
from rookery.proxy.proxy import Proxy
from rookery.proxy.virtualcluster import VirtualCluster
from rookery.service.health import ServerHealth
from rookery.service.listen.listenermetrics import listener_numbers

_LINKS: Final = metrics.gauge("rookery_proxy_links_open", "Clients that are connected.")
_NODES: Final = metrics.gauge("rookery_proxy_nodes_known", "Brokers of all upstream clusters.")
_MISSING: Final = metrics.gauge(
    "rookery_proxy_nodes_missing", "Brokers that have no port or name at the proxy."
)
_UPSTREAMS_AWAY: Final = metrics.gauge(
    "rookery_proxy_upstreams_away", "Virtual clusters whose upstream does not answer."
)
_DRAINING: Final = metrics.gauge(
    "rookery_proxy_clusters_draining", "Replaced virtual clusters that still have connections."
)
_RELOADS: Final = metrics.counter(
    "rookery_proxy_reloads_total", "Changes of settings that are in effect."
)
_REFUSED: Final = metrics.counter(
    "rookery_proxy_reloads_refused_total", "Changes of settings that could not be used."
)
_STALE: Final = metrics.gauge(
    "rookery_proxy_settings_stale", "1 while the last change of settings is refused, else 0."
)

_READY_PATH: Final = "/health/ready/"


class ProxyObserver(ServerHealth):
    """Copies the proxy's counters into the metrics, and checks its virtual clusters."""

    def __init__(self, proxy: Proxy, reload: SettingsReload) -> None:
        super().__init__("proxy", proxy, _numbers(proxy, reload))
        self._proxy = proxy
        self._reload = reload

    def ready_checks(self) -> Checks:
        """Return the checks that decide whether the clients of all clusters can be served."""
        return CurrentChecks(self._find_ready_checks)

    def warnings(self) -> Checks:
        """Return the checks for problems of some brokers, some requests or the next connections."""
        return CurrentChecks(self._find_warnings)

    def _find_ready_checks(self) -> Checks:
        checks = dict(super().ready_checks())
        for cluster in self._proxy.clusters:
            checks |= {f"{kind} {cluster.name}": check for kind, check in _ready(cluster).items()}
        return checks

    def _find_warnings(self) -> Checks:
        checks: dict[str, Callable[[], str]] = {"settings": lambda: self._reload.trouble}
        for cluster in self._proxy.clusters:
            checks |= {
                f"{kind} of {cluster.name}": check for kind, check in _warnings(cluster).items()
            }
        return checks


class CurrentChecks(Mapping[str, Callable[[], str]]):
    """The checks of the virtual clusters that there are when they are asked for."""

    def __init__(self, find: Callable[[], Checks]) -> None:
        self._find = find

    def __getitem__(self, name: str) -> Callable[[], str]:
        return self._find()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._find())

    def __len__(self) -> int:
        return len(self._find())


def cluster_pages(proxy: Proxy) -> Routes:
    """Return the page that reports the health of a single virtual cluster."""
    return {f"{_READY_PATH}*": partial(_answer_ready, proxy)}


async def _answer_ready(proxy: Proxy, request: HttpRequest) -> Response:
    name = request.path.removeprefix(_READY_PATH)
    for cluster in proxy.clusters:
        if cluster.name == name:
            return await health_route(_ready(cluster), _warnings(cluster))(request)
    raise Refusal(HTTPStatus.NOT_FOUND, "there is no virtual cluster of this name")


def _ready(cluster: VirtualCluster) -> Checks:
    """Return the checks for problems of all clients of a cluster."""
    return {
        "ports": lambda: "" if cluster.is_open else "the ports are not open yet",
        "upstream": lambda: cluster.trouble,
        "certificate": lambda: cluster.certificate_trouble,
    }


def _warnings(cluster: VirtualCluster) -> Checks:
    """Return the checks for problems of some brokers, some requests or the next connections."""
    return {
        "brokers": lambda: "; ".join(cluster.missing_nodes.values()),
        "certificates and users": lambda: cluster.security_trouble,
        "filters": lambda: cluster.filter_health.trouble,
    }


def _numbers(proxy: Proxy, reload: SettingsReload) -> list[MetricReading]:
    return [
        (_LINKS, lambda: sum(len(cluster.links) for cluster in proxy.clusters)),
        (_NODES, lambda: sum(len(cluster.nodes) for cluster in proxy.clusters)),
        (_MISSING, lambda: sum(len(cluster.missing_nodes) for cluster in proxy.clusters)),
        (_UPSTREAMS_AWAY, lambda: sum(bool(cluster.trouble) for cluster in proxy.clusters)),
        (_DRAINING, lambda: proxy.draining),
        (_RELOADS, lambda: reload.applied),
        (_REFUSED, lambda: reload.refused),
        (_STALE, lambda: bool(reload.trouble)),
        *listener_numbers(proxy.share.listeners, proxy.share.past),
    ]
