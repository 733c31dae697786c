"""A virtual cluster: its ports, the brokers that they stand for, and the links of its clients."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.errors import ConfigError, Error
from rookery.model.address import Address
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.upstream import Upstream
from rookery.proxy.access.clientlogins import ClientLogins
from rookery.proxy.access.clusterlinks import ClusterLinks
from rookery.proxy.access.clusterports import ClusterPorts
from rookery.proxy.access.upstreamaccess import UpstreamAccess
from rookery.proxy.access.upstreambrokers import MissingLoginError, UpstreamBrokers
from rookery.proxy.access.upstreamversions import UpstreamVersions
from rookery.proxy.addresses import read_addresses, replace_addresses
from rookery.proxy.clientlink import ClientLink
from rookery.proxy.direct.relayrules import relay_rules
from rookery.proxy.filterapi import Filter
from rookery.proxy.nodes.brokernodes import REFRESH_INTERVAL_MS, BrokerNodes
from rookery.proxy.nodes.nodelink import NodeLink
from rookery.proxy.nodes.routes import refused_apis
from rookery.proxy.operation.filterhealth import FilterHealth
from rookery.proxy.passage import PassageTable, mirror_passages
from rookery.proxy.processshare import ProcessShare
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.proxy.virtual.apirules import virtual_passages
from rookery.wire.message import Message

log = logging.getLogger(__name__)


class VirtualCluster:
    """One port to begin with, and one for each broker of the upstream."""

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
        self.clock: Clock = SystemClock()
        self.filter_timeout_ms = limits.filter_timeout_ms
        self.own_timeout_ms = limits.connect_timeout_ms
        self.passages = _find_passages(settings, filters)
        self.request_options = CallOptions(timeout_ms=limits.request_timeout_ms)
        self.slow_options = CallOptions(timeout_ms=limits.rebalance_timeout_ms)
        self.one_way_options = CallOptions(timeout_ms=limits.request_timeout_ms, is_answered=False)
        self.filter_health = FilterHealth(name, self.clock)
        self.trouble = ""
        """Why the upstream cannot be asked for its brokers; empty if it can."""
        self._filters = tuple(filters)
        self._limits = limits
        random = SystemRandom()
        access = UpstreamAccess(settings.upstream_security, limits, share.chunks, random)
        self.brokers = UpstreamBrokers(name, settings.bootstrap(), access, self.own_timeout_ms)
        self._broker_nodes: BrokerNodes | None = None
        if settings.nodes == "proxy":
            connect = access.open, self.open_upstream
            self._broker_nodes = BrokerNodes(
                settings, limits, self.passages, connect, self.clock, random
            )
        self._logins = self._make_logins(settings, random)
        self._links = ClusterLinks(self, self._broker_nodes, self._logins)
        self.ports = ClusterPorts(name, settings, limits, share, self._links)
        self.relay_rules = None if filters or self._logins else relay_rules(self.passages, limits)

    def _make_logins(self, settings: VirtualClusterSettings, random: Random) -> ClientLogins | None:
        """Return what logs clients in; None if their logins pass to the upstream.

        They cannot pass where a client has several connections to the upstream.
        """
        nodes = self._broker_nodes
        has_login = settings.listener().protocol.has_sasl or self.brokers.access.has_login
        if nodes is None and not has_login:
            return None
        self.brokers.ends_logins = True
        versions = (
            nodes.versions
            if nodes is not None
            else UpstreamVersions(self.open_upstream, self.passages, self._limits, self.clock)
        )
        return ClientLogins(settings, self.passages, versions, self.clock, random)

    @property
    def links(self) -> dict[Connection, ClientLink | NodeLink]:
        """The links of the clients."""
        return self._links.open

    @property
    def refresh_interval_ms(self) -> int:
        """How often the upstream is asked for its brokers."""
        interval_ms = self._limits.refresh_interval_ms
        return interval_ms if self._broker_nodes is None else min(interval_ms, REFRESH_INTERVAL_MS)

    @property
    def bootstrap_address(self) -> Address:
        """The address that clients connect to first."""
        return self.ports.bootstrap_address

    @property
    def nodes(self) -> dict[int, Address]:
        """The proxy's address of each broker."""
        return dict(self._broker_nodes.addresses if self._broker_nodes else self.ports.advertised)

    @property
    def is_open(self) -> bool:
        """Whether clients can connect."""
        return self.ports.is_open

    @property
    def certificate_trouble(self) -> str:
        """Why clients refuse the certificate; empty if it is valid, or there is none."""
        return self.ports.expiry_trouble(self.clock.now_ms())

    @property
    def missing_nodes(self) -> dict[int, str]:
        """Why a broker has no address at the proxy, by its node id."""
        return self.ports.missing

    @property
    def security_trouble(self) -> str:
        """Why changed certificates or users are not in use; empty if they are."""
        problems = (self.ports.certificate_trouble, self._logins.trouble if self._logins else "")
        return "; ".join(filter(None, problems))

    async def start(self) -> None:
        """Open the bootstrap port, and the ports of the brokers if the upstream can be asked.

        Raises:
            ConfigError: a port cannot be listened on, or the upstream wants a login that is not
                set.
        """
        await self._start_parts()
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
        await self.ports.reserve(released)
        await self._try_refresh()

    async def open(self) -> None:
        """Accept clients after `prepare`; ports that other clusters have released are taken over.

        Raises:
            ConfigError: a port cannot be listened on.
        """
        await self._accept()
        await self._open_ports(set(self.brokers.address_of))

    async def _accept(self) -> None:
        await self.ports.start()
        if self._broker_nodes is not None:
            self._broker_nodes.begin(self.bootstrap_address)

    async def _start_parts(self) -> None:
        for each in self._filters:
            await each.start()
        if self._logins is not None:
            await self._logins.start()

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
        if self._broker_nodes is not None and response is not None:
            self._broker_nodes.learn(response)
            self._links.keep_brokers({each.node_id for each in response.brokers})
        # All that are known: a port that was taken may be free by now.
        await self._open_ports(set(self.brokers.address_of), is_retry=True)

    async def refresh_security(self) -> None:
        """Use changed certificates and users, for the next connections and logins.

        Raises:
            ConfigError: some of them cannot be used; the previous ones stay.
            Unavailable: the keys of tokens cannot be read.
        """
        try:
            await self.ports.reload_certificate()
        finally:
            if self._logins is not None:
                await self._logins.refresh()

    async def probe_instances(self) -> None:
        """Find out which of the other instances of broker nodes are away."""
        if self._broker_nodes is not None:
            await self._broker_nodes.probe.run()

    async def stop(self, grace_ms: int) -> None:
        """Close all ports, and all connections when their requests are answered."""
        self._links.drain()
        await self.ports.stop(grace_ms)
        for part in (self._broker_nodes, self._logins):
            if part is not None:
                part.close()
        for each in self._filters:
            await each.close()

    # What links need.

    async def open_upstream(self, node_id: int | None) -> Upstream:
        """Connect to a broker; to any of them if there is no node id.

        Raises:
            Unavailable: it cannot be reached, its certificate is refused, or it refuses the login.
        """
        return await self.brokers.open(node_id)

    async def rewrite(self, response: Message) -> bool:
        """Replace the addresses in a response, after ports were opened for new brokers.

        Returns:
            Whether the response has changed.
        """
        addresses = read_addresses(response)
        self.brokers.address_of.update(addresses)
        await self._open_ports(set(addresses))
        return replace_addresses(response, self.ports.advertised.get)

    def advertised(self, node_id: int) -> Address | None:
        """Return the proxy's address of a broker; None if it has none."""
        return self.ports.advertised.get(node_id)

    async def _open_ports(self, nodes: set[int], *, is_retry: bool = False) -> None:
        """Open a port for each new broker, unless no clients are accepted yet.

        Broker nodes need none: the bootstrap port serves all brokers.
        """
        if self._broker_nodes is not None or not self.ports.is_open:
            return
        for node_id in await self.ports.open(nodes, is_retry=is_retry):
            log.info(
                "cluster %s: broker %d at %s is served at %s",
                self.name,
                node_id,
                self.brokers.address_of[node_id].text,
                self.ports.advertised[node_id].text,
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
    return find(filters, refused_apis())
