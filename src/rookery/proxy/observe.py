"""The proxy's health and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery import metrics
from rookery.metrics import MetricReading
from rookery.net.http import Checks
from rookery.proxy.proxy import Proxy
from rookery.proxy.virtualcluster import VirtualCluster
from rookery.service.health import ServerHealth
from rookery.service.listen.listenermetrics import listener_numbers

_LINKS: Final = metrics.gauge("rookery_proxy_links_open", "Clients that have sent a request.")
_NODES: Final = metrics.gauge("rookery_proxy_nodes_known", "Brokers of all upstream clusters.")


class ProxyObserver(ServerHealth):
    """Copies the proxy's counters into the metrics, and checks its upstreams."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__("proxy", proxy, _numbers(proxy))
        self._proxy = proxy

    def ready_checks(self) -> Checks:
        """Return the checks that decide whether clients can be served: every upstream answers."""
        upstreams = {
            f"upstream {cluster.name}": lambda cluster=cluster: cluster.trouble
            for cluster in self._proxy.clusters
        }
        return {**super().ready_checks(), **upstreams}

    def warnings(self) -> Checks:
        """Return the checks for certificates and users that were changed and cannot be used."""
        return {
            f"certificates and users of {cluster.name}": _trouble_of(cluster)
            for cluster in self._proxy.clusters
        }


def _trouble_of(cluster: VirtualCluster) -> Callable[[], str]:
    return lambda: cluster.security_trouble


def _numbers(proxy: Proxy) -> list[MetricReading]:
    clusters = proxy.clusters
    return [
        (_LINKS, lambda: sum(len(cluster.links) for cluster in clusters)),
        (_NODES, lambda: sum(len(cluster.nodes) for cluster in clusters)),
        *listener_numbers(proxy.share.listeners),
    ]
