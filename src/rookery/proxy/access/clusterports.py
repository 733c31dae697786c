"""The ports of a virtual cluster: one to begin with, and one for each broker of the upstream.

If brokers have names, there is only the first port: the name in a client's TLS handshake chooses
the broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.net.connection import Connection
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.outbox import Answer
from rookery.net.requestqueue import Handler
from rookery.net.settings import ConnectionSettings
from rookery.proxy.access.nodenames import NodeNames, ServerNames
from rookery.proxy.nodeports import NodePorts
from rookery.proxy.processshare import ProcessShare
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.security.certificatewatch import CertificateWatch
from rookery.service.listen.listeners import ListenerIdentity, tls_settings
from rookery.wire.frame import Frame

log = logging.getLogger(__name__)

RequestStart = Callable[[int | None, Connection, Frame], Answer | Awaitable[Answer]]
"""Starts a request to a broker, or to any of them if the node id is None."""


class ClusterPorts:
    """The listeners of one virtual cluster."""

    def __init__(
        self,
        name: str,
        settings: VirtualClusterSettings,
        limits: ProxySettings,
        share: ProcessShare,
        start: RequestStart,
    ) -> None:
        """Read the certificates; `start` listens.

        Args:
            name: of the virtual cluster.
            settings: of the virtual cluster.
            limits: what all clusters of the process have in common.
            share: shared with other clusters.
            start: starts the requests of clients.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self.listeners: list[Listener] = []
        """The started listeners; the bootstrap port is the first."""
        self.advertised: dict[int, Address] = {}
        """The proxy's address of each broker."""
        self.certificate_trouble = ""
        """Why changed certificates are not in use; empty if they are."""
        self._settings = settings
        self._limits = limits
        self._share = share
        self._start_request = start
        self._config = settings.listener()
        self._identity = ListenerIdentity(name, self._config)
        tls = tls_settings(self._config)
        self._watch = CertificateWatch(tls) if tls is not None else None
        self._names = NodeNames(settings.node_names) if settings.node_names else None
        if self._names is not None and self._watch is None:
            raise ConfigError(
                f"needs a listener with TLS, but `listen` is {settings.listen}", name="node_names"
            )
        self._server_names = ServerNames(self._names)
        self._ports: NodePorts | None = None
        self._opening = asyncio.Lock()

    @property
    def bootstrap_address(self) -> Address:
        """The address where clients begin."""
        return self._public(self.listeners[0].port)

    async def start(self) -> None:
        """Open the bootstrap port.

        Raises:
            ConfigError: it cannot be listened on.
        """
        names = self._names
        if names is not None:
            listener = await self._listen(self._config.address.port, self._start_by_name)
        else:
            handler = partial(self._start_request, None)
            listener = await self._listen(self._config.address.port, handler)
            self._ports = NodePorts(
                self._settings.ports(listener.port), is_shared=self._limits.is_shared
            )

    async def open(self, nodes: set[int]) -> list[int]:
        """Give an address to each broker; return those that are new.

        Raises:
            ConfigError: there is no port for one of them.
        """
        if nodes <= self.advertised.keys():
            return []
        async with self._opening:
            new = sorted(nodes - self.advertised.keys())
            for node_id in new:
                self.advertised[node_id] = await self._open(node_id)
        return new

    async def _open(self, node_id: int) -> Address:
        if self._names is not None:
            return Address(self._names.add(node_id), self.listeners[0].port)
        assert self._ports is not None  # noqa: S101 (brokers get theirs after the start)
        port = self._ports.assign(node_id)
        return self._public((await self._listen(port, partial(self._start_request, node_id))).port)

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
            log.info("the listener %s uses a new certificate", self._identity.name)

    async def stop(self, grace_ms: int) -> None:
        """Close all ports, and all connections when their requests are answered."""
        await asyncio.gather(*(listener.stop(grace_ms) for listener in self.listeners))

    async def _listen(self, port: int, handler: Handler[Connection]) -> Listener:
        has_sasl = self._config.protocol.has_sasl
        listener = Listener(
            handler,
            ListenerSettings(
                host=self._config.address.host,
                port=port,
                reuse_port=self._limits.is_shared,
                max_connections=self._limits.max_connections,
                connection=ConnectionSettings(requires_authentication=has_sasl),
            ),
            budget=self._share.requests,
            answers=self._share.answers,
            tls=self._server_names.watch(self._watch.context) if self._watch else None,
            admit=self._admit,
        )
        await listener.start()
        self.listeners.append(listener)
        self._share.listeners.append(listener)
        return listener

    def _admit(self, connection: Connection) -> None:
        connection.session.server_name = self._server_names.of(
            connection.transport_info("ssl_object")
        )
        self._identity.admit(connection)

    def _start_by_name(self, connection: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        assert self._names is not None  # noqa: S101 (only used with names)
        node_id = self._names.find(connection.session.server_name)
        return self._start_request(node_id, connection, frame)

    def _public(self, port: int) -> Address:
        return Address(self._settings.advertise or self._config.address.host, port)
