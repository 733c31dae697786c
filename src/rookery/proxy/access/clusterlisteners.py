"""The listeners of a virtual cluster: their ports, their logins, and the links of their clients.

A client learns the addresses of the listener that it has connected to, as at a broker. Everything
else of a virtual cluster, such as its filters and its users, is the same for all its listeners.

A client of mirror nodes has one connection to one broker. A client of broker nodes has a connection
to each broker that it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from rookery.clock import Random
from rookery.errors import ConfigError, Unavailable
from rookery.model.address import Address
from rookery.net.connection import Connection
from rookery.net.listener import Listener
from rookery.net.outbox import Answer
from rookery.proxy.access.clientlogins import ClientLogins
from rookery.proxy.access.listenerports import ListenerPorts
from rookery.proxy.access.upstreambrokers import UpstreamBrokers
from rookery.proxy.access.upstreamversions import UpstreamVersions
from rookery.proxy.addresses import read_addresses, replace_addresses
from rookery.proxy.clientlink import ClientLink, LinkTarget
from rookery.proxy.direct.relayrules import RelayRules
from rookery.proxy.nodes.brokernodes import BrokerNodes
from rookery.proxy.nodes.nodelink import NodeLink
from rookery.proxy.nodes.nodeversions import NodeVersions
from rookery.proxy.operation.settingowner import ListenerOwner
from rookery.proxy.processshare import ProcessShare
from rookery.proxy.settings import (
    ClusterListenerSettings,
    ProxySettings,
    VirtualClusterSettings,
)
from rookery.service.listen.listeners import ListenerIdentity
from rookery.wire.codec import peek
from rookery.wire.frame import Frame
from rookery.wire.message import Message


class ListenerCluster(LinkTarget, Protocol):
    """The virtual cluster of a listener."""

    settings: VirtualClusterSettings
    limits: ProxySettings
    """What all clusters of the process have in common."""
    share: ProcessShare
    brokers: UpstreamBrokers
    broker_nodes: BrokerNodes | None
    """The instances that clients see; None if they see the upstream's brokers."""
    links: dict[Connection, ClientLink | NodeLink]
    """The links of the clients of all listeners."""
    plain_rules: RelayRules | None
    """The requests that need no Python code where no login ends at the proxy."""

    async def learn_brokers(self, addresses: Mapping[int, Address]) -> None:
        """Give brokers that a response names an address at each listener."""


class ClusterListener:
    """One listener of a virtual cluster."""

    def __init__(
        self,
        name: str,
        config: ClusterListenerSettings,
        cluster: ListenerCluster,
        logins: ClientLogins | None,
    ) -> None:
        """Read the certificate; `ports` listen.

        Args:
            name: the name of the listener.
            config: the settings of the listener.
            cluster: the virtual cluster.
            logins: logs clients in; None if their logins pass to the upstream.

        Raises:
            ConfigError: a setting cannot be used.
        """
        nodes = cluster.broker_nodes
        self.label = f"{cluster.name}.{name}" if cluster.settings.listeners else cluster.name
        """The name of the listener in log lines, with that of its virtual cluster."""
        self.logins = logins
        self.relay_rules = None if logins else cluster.plain_rules
        """The requests that need no Python code; None if every request needs it."""
        self.start = self._start if logins is None else self._start_guarded
        """Starts a request of a client."""
        self._cluster = cluster
        self._view = None if nodes is None else nodes.views[name]
        self.ports = ListenerPorts(
            ListenerIdentity(name, config),
            config,
            cluster.limits,
            cluster.share,
            self,
            has_brokers=nodes is None,
        )

    def add(self, node_id: int | None, connection: Connection) -> None:
        """Open the link of a client that has connected.

        Args:
            node_id: the broker whose port it has connected to; None for the bootstrap port.
            connection: the connection of the client.
        """
        cluster = self._cluster
        link: ClientLink | NodeLink
        if cluster.broker_nodes is not None and self._view is not None:
            link = cluster.broker_nodes.open_link(connection, cluster, self._view)
        else:
            link = ClientLink(connection, cluster, self, node_id)
        cluster.links[connection] = link
        connection.when_lost(lambda: self._forget(connection))

    def _start(self, connection: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        return self._cluster.links[connection].start(frame)

    def _start_guarded(self, connection: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        """Start a request, unless it belongs to a login that ends here."""
        assert self.logins is not None  # noqa: S101 (only used with logins)
        link = self._cluster.links[connection]
        answer = self.logins.intercept(link.node_id, connection, frame)
        if answer is None:
            return link.start(frame)
        link.state.note_request(peek(frame)[0])
        return answer

    def _forget(self, connection: Connection) -> None:
        del self._cluster.links[connection]

    # What links need.

    async def rewrite(self, response: Message) -> bool:
        """Replace the addresses in a response, after ports were opened for new brokers.

        Returns:
            Whether the response has changed.
        """
        await self._cluster.learn_brokers(read_addresses(response))
        return replace_addresses(response, self.ports.advertised.get)

    def find_address(self, node_id: int) -> Address | None:
        """Return the address of a broker at this listener; None if it has none."""
        return self.ports.advertised.get(node_id)


class ClusterListeners:
    """All listeners of a virtual cluster, by name."""

    def __init__(self, cluster: ListenerCluster, random: Random) -> None:
        """Read certificates and users; `reserve` and `start` listen.

        Args:
            cluster: the virtual cluster.
            random: creates nonces and salts.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self.by_name: dict[str, ClusterListener] = {}
        self._settings = cluster.settings
        nodes = cluster.broker_nodes
        versions = (
            nodes.versions
            if nodes is not None
            else UpstreamVersions(
                cluster.open_upstream, cluster.passages, cluster.limits, cluster.clock
            )
        )
        for name, config in self._settings.client_listeners().items():
            with ListenerOwner(self._settings, name):
                logins = _make_logins(config, cluster, versions, random)
                self.by_name[name] = ClusterListener(name, config, cluster, logins)

    def __iter__(self) -> Iterator[ClusterListener]:
        return iter(self.by_name.values())

    @property
    def first(self) -> ClusterListener:
        """The listener that stands for the virtual cluster where only one can be shown."""
        return next(iter(self))

    @property
    def is_open(self) -> bool:
        """Whether clients can connect to all of them."""
        return all(each.ports.is_open for each in self)

    @property
    def missing(self) -> dict[int, str]:
        """Why a broker has no address at a listener, by its node id."""
        reasons: dict[int, str] = {}
        for each in self:
            for node_id, reason in each.ports.missing.items():
                known = reasons.get(node_id)
                reasons[node_id] = f"{known}; {reason}" if known else reason
        return reasons

    @property
    def security_trouble(self) -> str:
        """Why changed certificates or users are not in use; empty if they are."""
        problems = [each.ports.certificate_trouble for each in self]
        problems += [each.logins.trouble for each in self if each.logins]
        return _join(problems)

    def expiry_trouble(self, now_ms: int) -> str:
        """Return a text if a certificate has expired at a given time."""
        return _join(each.ports.expiry_trouble(now_ms) for each in self)

    def addresses(self) -> list[Address]:
        """Return what is listened on."""
        return [each.address for each in self.list_sockets() if each.is_bound]

    def list_sockets(self) -> list[Listener]:
        """Return the sockets of all listeners that have started."""
        return [each for listener in self for each in listener.ports.listeners]

    async def start_logins(self) -> None:
        """Read the keys of tokens.

        Raises:
            ConfigError: they cannot be used.
        """
        for name, each in self.by_name.items():
            if each.logins is not None:
                with ListenerOwner(self._settings, name):
                    await each.logins.start()

    async def reserve(self, released: Collection[Address] = ()) -> None:
        """Listen on all bootstrap ports; clients wait until the start.

        Args:
            released: the addresses that other clusters hand over before the start.

        Raises:
            ConfigError: one cannot be listened on.
        """
        for name, each in self.by_name.items():
            with ListenerOwner(self._settings, name):
                await each.ports.reserve(released)

    async def start(self) -> None:
        """Accept clients at all bootstrap ports, which are reserved.

        Raises:
            ConfigError: one cannot be listened on.
        """
        for name, each in self.by_name.items():
            with ListenerOwner(self._settings, name):
                await each.ports.start()

    async def open(
        self, nodes: set[int], *, is_retry: bool = False
    ) -> list[tuple[ClusterListener, int]]:
        """Give brokers an address at each listener; return the brokers that are new to one.

        Args:
            nodes: the brokers.
            is_retry: whether to try again for those that have no address.
        """
        return [
            (each, node_id)
            for each in self
            for node_id in await each.ports.open(nodes, is_retry=is_retry)
        ]

    async def refresh_security(self) -> None:
        """Use changed certificates and users, for the next connections and logins.

        Raises:
            ConfigError: some of them cannot be used; the previous ones stay.
            Unavailable: the keys of tokens cannot be read.
        """
        problems: list[ConfigError | Unavailable] = []
        for each in self:
            steps = [each.ports.reload_certificate]
            if each.logins is not None:
                steps.append(each.logins.refresh)
            for step in steps:
                try:
                    await step()
                except (ConfigError, Unavailable) as error:
                    problems.append(error)
        if problems:
            raise problems[0]

    def release(self) -> None:
        """Hand all ports over; the connections stay until the stop."""
        for each in self:
            each.ports.release()

    async def stop(self, grace_ms: int) -> None:
        """Close all ports, and all connections when their requests are answered."""
        await asyncio.gather(*(each.ports.stop(grace_ms) for each in self))
        for each in self:
            if each.logins is not None:
                each.logins.close()


def _make_logins(
    config: ClusterListenerSettings,
    cluster: ListenerCluster,
    versions: UpstreamVersions | NodeVersions,
    random: Random,
) -> ClientLogins | None:
    """Return what logs the clients of a listener in; None if their logins pass to the upstream.

    They cannot pass where a client has several connections to the upstream, or where the proxy
    logs in itself.

    Raises:
        ConfigError: a setting cannot be used, or there are no users.
    """
    has_login = config.protocol.has_sasl or cluster.brokers.access.has_login
    if not has_login and cluster.broker_nodes is None:
        return None
    cluster.brokers.ends_logins = True
    users_file = cluster.settings.users_file
    return ClientLogins(config, users_file, cluster.passages, versions, cluster.clock, random)


def _join(problems: Iterable[str]) -> str:
    """Return different problems as one text: listeners can share a certificate."""
    return "; ".join(dict.fromkeys(filter(None, problems)))
