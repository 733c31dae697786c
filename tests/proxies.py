"""Proxies before the servers of tests: one for each server and kind of nodes.

A suite runs through a proxy if its address is a parameter: "kafka-mirror" is that of "kafka"
through a proxy with mirror nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Final, Self

from rookery.proxy.settings import ProxySettings
from rookery.testing.proxyprocess import NODES, ProxyProcess
from rookery.testing.servedproxy import ServedProxy

MODES: Final[Mapping[str, ProxySettings]] = {
    "mirror": ProxySettings(),
    "proxy": ProxySettings(nodes="proxy"),
}
"""The settings of each kind of nodes that a proxy can have."""
WAYS: Final = ("rookery-mirror", "kafka-mirror", "cluster-mirror", "cluster-proxy")
"""The proxied servers of the suites of clients: one Rookery, one Kafka, a cluster of three."""


class Proxies:
    """The proxies of one run of tests; they start when the first test needs them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._served: dict[tuple[str, str], ServedProxy] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def find(self, upstream: str, mode: str) -> ServedProxy:
        """Return the proxy before a cluster."""
        known = self._served.get((upstream, mode))
        if known is None:
            known = self._stack.enter_context(ServedProxy(upstream, MODES[mode]))
            self._served[upstream, mode] = known
        return known

    def brokers(self, bootstrap: str) -> list[str]:
        """Return the addresses of the brokers that clients of an address see.

        Args:
            bootstrap: the address of one of these proxies, or else of a broker that is alone.
        """
        for served in self._served.values():
            if served.bootstrap == bootstrap:
                return [address.text for address in served.proxy.clusters[0].nodes.values()]
        return [bootstrap]


@contextmanager
def proxy_before(upstream: str, mode: str) -> Iterator[ProxyProcess]:
    """Run a proxy in a process of its own, for tests that load it or that kill its brokers."""
    nodes = {"mirror": NODES, "proxy": 0}[mode]
    with ProxyProcess(upstream, ("--refresh-interval-ms", "500"), nodes=nodes) as proxy:
        yield proxy


def through(*kinds: str) -> tuple[str, ...]:
    """Return the names of proxied servers, given those of servers."""
    return tuple(way for way in WAYS if way.partition("-")[0] in kinds)
