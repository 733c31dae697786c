"""A virtual cluster: its upstream, its listeners, and the links of its clients."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from rookery.clock import Clock, SystemClock, SystemRandom
from rookery.errors import ConfigError, Error
from rookery.model.address import Address
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.upstream import Upstream
from rookery.proxy.access.clusterlisteners import ClusterListeners
from rookery.proxy.access.upstreamaccess import UpstreamAccess
from rookery.proxy.access.upstreambrokers import MissingLoginError, UpstreamBrokers
from rookery.proxy.clientlink import ClientLink
from rookery.proxy.direct.relayrules import relay_rules
from rookery.proxy.filterapi import Filter
from rookery.proxy.nodes.brokernodes import REFRESH_INTERVAL_MS, BrokerNodes
from rookery.proxy.nodes.nodelink import NodeLink
from rookery.proxy.nodes.routes import list_refused_apis
from rookery.proxy.operation.filterhealth import FilterHealth
from rookery.proxy.passage import PassageTable, mirror_passages
from rookery.proxy.processshare import ProcessShare
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.proxy.virtual.apirules import virtual_passages

log = logging.getLogger(__name__)


class VirtualCluster:
    """One upstream, and the listeners at which clients see it."""

    def __init__(
        self,
        name: str,
        settings: VirtualClusterSettings,
        limits: ProxySettings,
        share: ProcessShare,
        filters: Sequence[Filter] = (),
    ) -> None:
        """Prepare the cluster; `start` opens its ports.

        Args:
            name: the name of the cluster.
            settings: the settings of the cluster.
            limits: what all clusters of the process have in common.
            share: shared with other clusters.
            filters: in the order in which requests pass them.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self.name = name
        self.settings = settings
        self.limits = limits
        self.share = share
        self.clock: Clock = SystemClock()
        self.filter_timeout_ms = limits.filter_timeout_ms
        self.own_timeout_ms = limits.connect_timeout_ms
        self.passages = _find_passages(settings, filters)
        self.request_options = CallOptions(timeout_ms=limits.request_timeout_ms)
        self.slow_options = CallOptions(timeout_ms=limits.rebalance_timeout_ms)
        self.one_way_options = CallOptions(timeout_ms=limits.request_timeout_ms, is_answered=False)
        has_plain = not filters and settings.nodes == "mirror"
        self.plain_rules = relay_rules(self.passages, limits) if has_plain else None
        self.filter_health = FilterHealth(name, self.clock)
        self.trouble = ""
        """Why the upstream cannot be asked for its brokers; empty if it can."""
        self.links: dict[Connection, ClientLink | NodeLink] = {}
        """The links of the clients."""
        self._filters = tuple(filters)
        random = SystemRandom()
        access = UpstreamAccess(settings.upstream_security, limits, share.chunks, random)
        self.brokers = UpstreamBrokers(name, settings.bootstrap(), access, self.own_timeout_ms)
        self.broker_nodes: BrokerNodes | None = None
        """The instances that clients see; None if they see the upstream's brokers."""
        if settings.nodes == "proxy":
            connect = access.open, self.open_upstream
            self.broker_nodes = BrokerNodes(
                settings, limits, self.passages, connect, self.clock, random
            )
        self.listeners = ClusterListeners(self, random)

    @property
    def refresh_interval_ms(self) -> int:
        """How often the upstream is asked for its brokers."""
        interval_ms = self.limits.refresh_interval_ms
        return interval_ms if self.broker_nodes is None else min(interval_ms, REFRESH_INTERVAL_MS)

    @property
    def bootstrap_address(self) -> Address:
        """The address that clients of the first listener connect to first."""
        return self.listeners.first.ports.bootstrap_address

    @property
    def nodes(self) -> dict[int, Address]:
        """The address of each broker that the first listener advertises."""
        return self.nodes_at(next(iter(self.listeners.by_name)))

    def nodes_at(self, listener: str) -> dict[int, Address]:
        """Return the address of each broker that a listener advertises."""
        if self.broker_nodes is not None:
            return self.broker_nodes.addresses_at(listener)
        return dict(self.listeners.by_name[listener].ports.advertised)

    @property
    def is_open(self) -> bool:
        """Whether clients can connect to all listeners."""
        return self.listeners.is_open

    @property
    def certificate_trouble(self) -> str:
        """Why clients refuse a certificate; empty if all are valid, or there is none."""
        return self.listeners.expiry_trouble(self.clock.now_ms())

    @property
    def missing_nodes(self) -> dict[int, str]:
        """Why a broker has no address at a listener, by its node id."""
        return self.listeners.missing

    @property
    def security_trouble(self) -> str:
        """Why changed certificates or users are not in use; empty if they are."""
        return self.listeners.security_trouble

    async def start(self) -> None:
        """Open the bootstrap ports, and the ports of the brokers if the upstream can be asked.

        Raises:
            ConfigError: a port cannot be listened on, or the upstream wants a login that is not
                set.
        """
        await self._start_parts()
        await self.listeners.reserve()
        await self._accept()
        await self._try_refresh()

    async def prepare(self, released: Collection[Address]) -> None:
        """Do all of the start that can fail, but accept no clients.

        Args:
            released: the addresses that other clusters hand over before `open`.

        Raises:
            ConfigError: a setting cannot be used, or the upstream wants a login that is not set.
        """
        await self._start_parts()
        await self.listeners.reserve(released)
        await self._try_refresh()

    async def open(self) -> None:
        """Accept clients after `prepare`; ports that other clusters have released are taken over.

        Raises:
            ConfigError: a port cannot be listened on.
        """
        await self._accept()
        await self._open_ports(set(self.brokers.address_of))

    async def _accept(self) -> None:
        await self.listeners.start()
        if self.broker_nodes is not None:
            for name, each in self.listeners.by_name.items():
                self.broker_nodes.begin(name, each.ports.bootstrap_address)

    async def _start_parts(self) -> None:
        for each in self._filters:
            await each.start()
        await self.listeners.start_logins()

    async def _try_refresh(self) -> None:
        try:
            await self.refresh()
        except MissingLoginError:
            raise
        except Error as error:
            log.warning("cluster %s: the upstream does not answer: %s", self.name, error)

    async def refresh(self) -> None:
        """Ask the upstream for its brokers, and open ports for new ones.

        Raises:
            Unavailable: no broker can be reached, or none accepts the proxy.
            ApiError: the upstream does not know the request.
            ConfigError: the upstream wants a login.
        """
        try:
            response = await self.brokers.refresh()
        except Error as error:
            self.trouble = str(error)
            raise
        self.trouble = ""
        if self.broker_nodes is not None and response is not None:
            self.broker_nodes.learn(response)
            brokers = {each.node_id for each in response.brokers}
            for link in list(self.links.values()):
                if isinstance(link, NodeLink):
                    link.keep_brokers(brokers)
        # All that are known: a port that was taken may be free by now.
        await self._open_ports(set(self.brokers.address_of), is_retry=True)

    async def refresh_security(self) -> None:
        """Use changed certificates and users, for the next connections and logins.

        Raises:
            ConfigError: some of them cannot be used; the previous ones stay.
            Unavailable: the keys of tokens cannot be read.
        """
        await self.listeners.refresh_security()

    async def probe_instances(self) -> None:
        """Find out which of the other instances of broker nodes are away."""
        if self.broker_nodes is not None:
            await self.broker_nodes.probe.run()

    async def stop(self, grace_ms: int) -> None:
        """Close all ports, and all connections when their requests are answered."""
        for link in list(self.links.values()):
            link.drain()
        await self.listeners.stop(grace_ms)
        if self.broker_nodes is not None:
            self.broker_nodes.close()
        for each in self._filters:
            await each.close()

    # What links need.

    async def open_upstream(self, node_id: int | None) -> Upstream:
        """Connect to a broker; to any of them if there is no node id.

        Raises:
            Unavailable: it cannot be reached, its certificate is refused, or it refuses the login.
        """
        return await self.brokers.open(node_id)

    async def learn_brokers(self, addresses: Mapping[int, Address]) -> None:
        """Give brokers that a response names an address at each listener."""
        self.brokers.address_of.update(addresses)
        await self._open_ports(set(addresses))

    async def _open_ports(self, nodes: set[int], *, is_retry: bool = False) -> None:
        """Open ports for each new broker, unless no clients are accepted yet.

        Broker nodes need none: the bootstrap port serves all brokers.
        """
        if self.broker_nodes is not None or not self.listeners.is_open:
            return
        for listener, node_id in await self.listeners.open(nodes, is_retry=is_retry):
            log.info(
                "cluster %s: broker %d at %s is served at %s",
                listener.label,
                node_id,
                self.brokers.address_of[node_id].text,
                listener.ports.advertised[node_id].text,
            )


def _find_passages(settings: VirtualClusterSettings, filters: Sequence[Filter]) -> PassageTable:
    """Return what passes through a virtual cluster.

    Raises:
        ConfigError: settings contradict each other.
    """
    if settings.nodes != "proxy":
        if settings.virtual:
            raise ConfigError('needs `nodes = "proxy"`', name="virtual")
        return mirror_passages(filters)
    find = virtual_passages if settings.virtual else mirror_passages
    return find(filters, list_refused_apis())
