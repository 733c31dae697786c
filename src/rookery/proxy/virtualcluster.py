"""A virtual cluster: its ports, the brokers that they stand for, and the links of its clients."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from itertools import count

from rookery.client.connect.versions import negotiate
from rookery.clock import Clock, SystemClock, SystemRandom
from rookery.errors import ConfigError, Error, Unavailable
from rookery.model.address import Address
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.upstream import Upstream
from rookery.proxy.access.clientlogins import ClientLogins
from rookery.proxy.access.clusterports import ClusterPorts
from rookery.proxy.access.upstreamaccess import CLIENT_ID, UpstreamAccess
from rookery.proxy.access.upstreamversions import UpstreamVersions
from rookery.proxy.addresses import read_addresses, replace_addresses
from rookery.proxy.clientlink import ClientLink
from rookery.proxy.filterapi import Filter
from rookery.proxy.linkstate import LinkEvent
from rookery.proxy.passage import mirror_passages
from rookery.proxy.processshare import ProcessShare
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.wire.frame import Frame
from rookery.wire.message import Message
from rookery.wire.messages.metadata import METADATA, MetadataRequest

log = logging.getLogger(__name__)


class MissingLoginError(ConfigError):
    """The upstream wants a login, but the proxy has no credentials for it."""


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
            name: of the cluster.
            settings: of the cluster.
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
        self.passages = mirror_passages(filters)
        self.request_options = CallOptions(timeout_ms=limits.request_timeout_ms)
        self.slow_options = CallOptions(timeout_ms=limits.rebalance_timeout_ms)
        self.one_way_options = CallOptions(timeout_ms=limits.request_timeout_ms, is_answered=False)
        self.links: dict[Connection, ClientLink] = {}
        """The clients that have sent a request."""
        self.trouble = ""
        """Why the upstream cannot be asked for its brokers; empty if it can."""
        self._limits = limits
        self._bootstrap = settings.bootstrap()
        self._next_bootstrap = count()
        self._upstream_of: dict[int, Address] = {}
        self._filters = tuple(filters)
        random = SystemRandom()
        self._access = UpstreamAccess(settings.upstream_security, limits, share.chunks, random)
        self._logins: ClientLogins | None = None
        if settings.listener().protocol.has_sasl or self._access.has_login:
            versions = UpstreamVersions(self.open_upstream, self.passages, limits, self.clock)
            self._logins = ClientLogins(settings, self.passages, versions, self.clock, random)
        # Whether only clients can ask the upstream for its brokers, because only they log in.
        self._is_passed_through = False
        start = self._start_request if self._logins is None else self._start_guarded
        self.ports = ClusterPorts(name, settings, limits, share, start)

    @property
    def bootstrap_address(self) -> Address:
        """The address where clients begin."""
        return self.ports.bootstrap_address

    @property
    def nodes(self) -> dict[int, Address]:
        """The proxy's address of each broker."""
        return dict(self.ports.advertised)

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
        for each in self._filters:
            await each.start()
        if self._logins is not None:
            await self._logins.start()
        await self.ports.start()
        try:
            await self.refresh()
        except MissingLoginError:
            raise
        except Error as error:
            log.warning("cluster %s: the upstream does not answer: %s", self.name, error)

    async def refresh(self) -> None:
        """Ask the upstream for its brokers, and open ports for new ones.

        Raises:
            Unavailable: no broker can be reached.
            ApiError: the upstream does not answer the request, or refuses the login.
            ConfigError: a broker's certificate is refused, or the upstream wants a login.
        """
        try:
            await self._ask_brokers()
        except Error as error:
            self.trouble = str(error)
            raise
        self.trouble = ""

    async def _ask_brokers(self) -> None:
        timeout_ms = self._limits.connect_timeout_ms
        upstream = await self.open_upstream(None)
        try:
            versions = await negotiate(upstream, CLIENT_ID, {}, timeout_ms)
            if self._is_passed_through:
                return
            version = versions.choose(METADATA, lowest=1)
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            response = await upstream.call(METADATA, version, request, timeout_ms)
        except Unavailable:
            if self._access.has_login or not await self._wants_login(upstream):
                raise
            self._is_passed_through = True
            log.info("cluster %s: clients log in at the upstream", self.name)
            return
        finally:
            upstream.close()
        await self._learn(read_addresses(response))

    async def _wants_login(self, upstream: Upstream) -> bool:
        """Return whether a broker wants a login that clients can pass to it.

        Raises:
            MissingLoginError: it wants one, but the logins of clients end at the proxy.
        """
        address = Address(upstream.host, upstream.port)
        offered = await self._access.offered_mechanisms(address)
        if offered and self._logins is not None:
            raise MissingLoginError(
                f"broker {address.text} wants a login by {', '.join(offered)}; set "
                "upstream_security.mechanism and its credentials",
                name="mechanism",
            )
        return bool(offered)

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

    async def stop(self, grace_ms: int) -> None:
        """Close all ports, and all connections when their requests are answered."""
        await self.ports.stop(grace_ms)
        if self._logins is not None:
            self._logins.close()
        for each in self._filters:
            await each.close()

    # What links need.

    async def open_upstream(self, node_id: int | None) -> Upstream:
        """Connect to a broker; to any of the bootstrap servers if there is no node id.

        Raises:
            Unavailable: it cannot be reached.
            ConfigError: its certificate is refused.
            ApiError: it refuses the login.
        """
        if node_id is not None:
            return await self._access.open(self._upstream_of[node_id])
        start = next(self._next_bootstrap)
        problems: list[str] = []
        for step in range(len(self._bootstrap)):
            try:
                address = self._bootstrap[(start + step) % len(self._bootstrap)]
                return await self._access.open(address)
            except Error as error:
                problems.append(str(error))
        raise Unavailable("; ".join(problems))

    async def rewrite(self, response: Message) -> None:
        """Replace the addresses in a response, after ports were opened for new brokers.

        Raises:
            ConfigError: there is no port for a new broker.
        """
        await self._learn(read_addresses(response))
        replace_addresses(response, self.ports.advertised.get)

    def advertised(self, node_id: int) -> Address | None:
        """Return the proxy's address of a broker; None if it has none."""
        return self.ports.advertised.get(node_id)

    async def _learn(self, addresses: dict[int, Address]) -> None:
        """Record the upstream's brokers; open a port for each new one."""
        self._upstream_of.update(addresses)
        for node_id in await self.ports.open(set(addresses)):
            log.info(
                "cluster %s: broker %d at %s is served at %s",
                self.name,
                node_id,
                self._upstream_of[node_id].text,
                self.ports.advertised[node_id].text,
            )

    def _start_request(
        self, node_id: int | None, connection: Connection, frame: Frame
    ) -> Answer | Awaitable[Answer]:
        link = self.links.get(connection) or self._open_link(node_id, connection)
        return link.start(frame)

    def _start_guarded(
        self, node_id: int | None, connection: Connection, frame: Frame
    ) -> Answer | Awaitable[Answer]:
        """Start a request, unless it belongs to a login that ends here."""
        assert self._logins is not None  # noqa: S101 (only used with logins)
        link = self.links.get(connection) or self._open_link(node_id, connection)
        answer = self._logins.intercept(node_id, connection, frame)
        if answer is None:
            return link.start(frame)
        link.state.on(LinkEvent.LOGIN_REQUEST)
        return answer

    def _open_link(self, node_id: int | None, connection: Connection) -> ClientLink:
        link = self.links[connection] = ClientLink(connection, self, node_id)
        connection.when_lost(lambda: self._forget(connection))
        return link

    def _forget(self, connection: Connection) -> None:
        del self.links[connection]
