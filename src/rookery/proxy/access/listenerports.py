"""The ports of one listener: one to begin with, and one for each broker of the upstream.

If brokers have names, there is only the first port: the name in a client's TLS handshake chooses
the broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.net.connection import Connection
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.requestqueue import Handler
from rookery.net.settings import ConnectionSettings
from rookery.proxy.access.nodenames import NodeNames, ServerNames
from rookery.proxy.nodeports import NodePorts
from rookery.proxy.processshare import ProcessShare
from rookery.proxy.settings import ClusterListenerSettings, ProxySettings
from rookery.security.certificatewatch import CertificateWatch
from rookery.service.listen.listeners import ListenerIdentity, tls_settings

log = logging.getLogger(__name__)

# A connection that drains may take as long as a stop.
_LINGER_MS: Final = ConnectionSettings().linger_ms


class ListenerClients(Protocol):
    """The clients of one listener."""

    @property
    def label(self) -> str:
        """The name of the listener in log lines, with that of its virtual cluster."""

    @property
    def start(self) -> Handler[Connection]:
        """Starts a request of a client."""

    def add(self, node_id: int | None, connection: Connection) -> None:
        """Add a client that has connected to a broker, or to any of them if the id is None."""


class ListenerPorts:
    """The listening sockets of one listener of a virtual cluster."""

    def __init__(
        self,
        identity: ListenerIdentity,
        config: ClusterListenerSettings,
        limits: ProxySettings,
        share: ProcessShare,
        clients: ListenerClients,
        *,
        has_brokers: bool,
    ) -> None:
        """Read the certificates; `start` listens.

        Args:
            identity: identifies the clients.
            config: the settings of the listener.
            limits: what all clusters of the process have in common.
            share: shared with other clusters.
            clients: those that connect.
            has_brokers: whether clients see the upstream's brokers, each at an address of its own.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self.listeners: list[Listener] = []
        """The started listeners; the bootstrap port is the first."""
        self.advertised: dict[int, Address] = {}
        """The proxy's address of each broker."""
        self.certificate_trouble = ""
        """Why changed certificates are not in use; empty if they are."""
        self.missing: dict[int, str] = {}
        """Why a broker has no address, by its node id."""
        self.is_open = False
        """Whether clients can connect."""
        self._bootstrap: Listener | None = None
        self._limits = limits
        self._share = share
        self._clients = clients
        self._config = config
        self._identity = identity
        tls = tls_settings(config)
        self._watch = CertificateWatch(tls) if tls is not None else None
        self._names = NodeNames(config.node_names) if config.node_names else None
        if self._names is not None and self._watch is None:
            raise ConfigError(
                f"needs a listener with TLS, but `listen` is {config.listen}", name="node_names"
            )
        self._server_names = ServerNames(self._names)
        self._has_node_ports = self._names is None and has_brokers
        self._ports: NodePorts | None = None
        self._opening = asyncio.Lock()

    @property
    def bootstrap_address(self) -> Address:
        """The address that clients connect to first."""
        return self._config.choose_address(self.listeners[0].port)

    def expiry_trouble(self, now_ms: int) -> str:
        """Return a text if the certificate has expired at a given time."""
        if self._watch is None or now_ms < self._watch.expires_ms:
            return ""
        moment = datetime.fromtimestamp(self._watch.expires_ms / 1000, UTC)
        return f"the certificate has expired at {moment:%Y-%m-%d %H:%M:%S} UTC; replace its file"

    async def reserve(self, released: Collection[Address]) -> None:
        """Listen on the bootstrap port; clients wait until the start.

        Args:
            released: the addresses that other clusters hand over before the start.

        Raises:
            ConfigError: it cannot be listened on.
        """
        address = self._config.address
        self._bootstrap = self._make(address.port, None)
        self._check_range(address.port)
        if address not in released:
            self._check_unused(address.port)
            await self._bootstrap.bind()

    async def start(self) -> None:
        """Accept clients at the bootstrap port, which is reserved.

        Raises:
            ConfigError: it cannot be listened on.
        """
        assert self._bootstrap is not None  # noqa: S101 (reserved by now)
        self.is_open = True
        await self._begin(self._bootstrap, self._config.address.port)
        if self._has_node_ports:
            self._ports = NodePorts(
                self._config.ports(self._bootstrap.port), is_shared=self._limits.is_shared
            )

    async def open(self, nodes: set[int], *, is_retry: bool = False) -> list[int]:
        """Give an address to each broker; return those that are new.

        A broker that can have none is in `missing`; the others are served.

        Args:
            nodes: the brokers.
            is_retry: whether to try again for those that are missing.
        """
        if nodes <= self.advertised.keys():
            return []
        async with self._opening:
            wanted = nodes - self.advertised.keys()
            new = sorted(wanted if is_retry else wanted - self.missing.keys())
            return [node_id for node_id in new if await self._try_open(node_id)]

    async def _try_open(self, node_id: int) -> bool:
        try:
            self.advertised[node_id] = await self._open(node_id)
        except ConfigError as error:
            if self.missing.get(node_id) != str(error):
                log.warning("cluster %s: %s", self._clients.label, error)
            self.missing[node_id] = str(error)
            return False
        self.missing.pop(node_id, None)
        return True

    async def _open(self, node_id: int) -> Address:
        if self._names is not None:
            return Address(self._names.add(node_id), self.listeners[0].port)
        assert self._ports is not None  # noqa: S101 (brokers get theirs after the start)
        port = self._ports.assign(node_id)
        return self._config.choose_address((await self._listen(port, node_id)).port)

    async def reload_certificate(self) -> None:
        """Use a certificate whose files have changed, for the next connections.

        Raises:
            ConfigError: it cannot be used; the previous one stays.
        """
        if self._watch is None:
            return
        try:
            is_new = self._watch.look()
        except ConfigError as error:
            self.certificate_trouble = str(error)
            raise
        self.certificate_trouble = ""
        if is_new:
            context = self._server_names.watch(self._watch.context)
            for listener in self.listeners:
                listener.tls = context
            log.info("the listener %s uses a new certificate", self._clients.label)

    def addresses(self) -> list[Address]:
        """Return what is listened on."""
        return [each.address for each in self.listeners if each.is_bound]

    def release(self) -> None:
        """Hand all ports over; the connections stay until the stop."""
        self.is_open = False
        for each in self.listeners:
            if each.is_bound:
                self._share.held.take_from(each)

    async def stop(self, grace_ms: int) -> None:
        """Close all ports, and all connections when their requests are answered."""
        self.is_open = False
        started = [*self.listeners]
        if self._bootstrap is not None and self._bootstrap not in started:
            await self._bootstrap.stop(0)
        await asyncio.gather(*(listener.stop(grace_ms) for listener in started))
        for listener in started:
            self._share.listeners.remove(listener)
            self._share.past.add(listener)
        self.listeners.clear()

    async def _listen(self, port: int, node_id: int) -> Listener:
        listener = self._make(port, node_id)
        await self._begin(listener, port)
        return listener

    async def _begin(self, listener: Listener, port: int) -> None:
        """Accept clients, at a port that another cluster has handed over if there is one."""
        held = self._share.held.give(Address(self._config.address.host, port))
        if not held and not listener.is_bound:
            self._check_unused(port)
        await listener.start(held)
        if not self.is_open:
            await listener.stop(0)
            raise ConfigError("the virtual cluster closes", name="listen")
        self.listeners.append(listener)
        self._share.listeners.append(listener)

    def _check_unused(self, port: int) -> None:
        """Refuse a port of another listener: shared ports would mix the clients of both.

        Raises:
            ConfigError: another one of this process has it.
        """
        address = Address(self._config.address.host, port)
        if port and any(
            each.is_bound and each.address == address for each in self._share.listeners
        ):
            raise ConfigError(
                f"{address.text} belongs to another listener of the proxy; set other ports",
                name="listen" if port == self._config.address.port else "node_ports",
            )

    def _check_range(self, port: int) -> None:
        """Check the ports of brokers before the start, where the bootstrap port is known.

        Raises:
            ConfigError: they cannot be used.
        """
        if port and self._has_node_ports:
            self._config.ports(port)

    def _make(self, port: int, node_id: int | None) -> Listener:
        """Prepare the port of a broker; that to begin with has no node id."""
        has_sasl = self._config.protocol.has_sasl
        return Listener(
            self._clients.start,
            ListenerSettings(
                host=self._config.address.host,
                port=port,
                reuse_port=self._limits.is_shared,
                max_connections=self._limits.max_connections,
                connection=ConnectionSettings(
                    requires_authentication=has_sasl,
                    linger_ms=max(_LINGER_MS, self._limits.drain_timeout_ms),
                ),
            ),
            budget=self._share.requests,
            answers=self._share.answers,
            tls=self._server_names.watch(self._watch.context) if self._watch else None,
            admit=partial(self._admit, node_id),
        )

    def _admit(self, node_id: int | None, connection: Connection) -> None:
        name = self._server_names.of(connection.transport_info("ssl_object"))
        connection.session.server_name = name
        if self._names is not None:
            node_id = self._names.find(name)
        self._clients.add(node_id, connection)
        self._identity.admit(connection)
