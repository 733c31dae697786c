"""A virtual cluster: its ports, the brokers that they stand for, and the links of its clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from rookery.client.connect.versions import negotiate
from rookery.clock import Clock, SystemClock
from rookery.errors import Error, Unavailable
from rookery.model.address import Address
from rookery.net.answers import AnswerBudget
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.outbox import Answer, Budget
from rookery.net.settings import UpstreamSettings
from rookery.net.upstream import Upstream, connect
from rookery.proxy.addresses import read_addresses, replace_addresses
from rookery.proxy.clientlink import ClientLink
from rookery.proxy.filterapi import Filter
from rookery.proxy.nodeports import NodePorts
from rookery.proxy.passage import mirror_passages
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.wire.frame import Chunks, Frame
from rookery.wire.message import Message
from rookery.wire.messages.metadata import METADATA, MetadataRequest

log = logging.getLogger(__name__)

_CLIENT_ID: Final = "rookery-proxy"


@dataclass(frozen=True, slots=True)
class ProcessShare:
    """What all virtual clusters of a process share."""

    requests: Budget
    answers: AnswerBudget
    chunks: Chunks
    listeners: list[Listener]
    """The started listeners of all clusters."""

    @classmethod
    def of(cls, settings: ProxySettings) -> ProcessShare:
        """Create the limits that the settings give."""
        answers = AnswerBudget(settings.answer_bytes, settings.unread_timeout_ms)
        return cls(Budget(settings.request_bytes), answers, Chunks(), [])


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
        self.listeners: list[Listener] = []
        """The started listeners; the bootstrap port is the first."""
        self.links: dict[Connection, ClientLink] = {}
        """The clients that have sent a request."""
        self.trouble = ""
        """Why the upstream cannot be asked for its brokers; empty if it can."""
        self._settings = settings
        self._limits = limits
        self._share = share
        self._bootstrap = settings.bootstrap()
        self._next_bootstrap = count()
        self._upstream_of: dict[int, Address] = {}
        self._ports: NodePorts | None = None
        self._advertised: dict[int, Address] = {}
        self._opening = asyncio.Lock()
        self._filters = tuple(filters)

    @property
    def bootstrap_address(self) -> Address:
        """The address where clients begin."""
        return self._public(self.listeners[0].port)

    @property
    def nodes(self) -> dict[int, Address]:
        """The proxy's address of each broker."""
        return dict(self._advertised)

    async def start(self) -> None:
        """Open the bootstrap port, and the ports of the brokers if the upstream can be asked.

        Raises:
            ConfigError: a port cannot be listened on.
        """
        for each in self._filters:
            await each.start()
        listener = await self._listen(self._settings.address.port, None)
        self._ports = NodePorts(
            self._settings.ports(listener.port), is_shared=self._limits.is_shared
        )
        try:
            await self.refresh()
        except Error as error:
            log.warning("cluster %s: the upstream does not answer: %s", self.name, error)

    async def refresh(self) -> None:
        """Ask the upstream for its brokers, and open ports for new ones.

        Raises:
            Unavailable: no broker can be reached.
            ApiError: the upstream does not answer the request.
        """
        try:
            upstream = await self.open_upstream(None)
            try:
                timeout_ms = self._limits.connect_timeout_ms
                versions = await negotiate(upstream, _CLIENT_ID, {}, timeout_ms)
                version = versions.choose(METADATA, lowest=1)
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                response = await upstream.call(METADATA, version, request, timeout_ms)
            finally:
                upstream.close()
            await self._learn(read_addresses(response))
        except Error as error:
            self.trouble = str(error)
            raise
        self.trouble = ""

    async def stop(self, grace_ms: int) -> None:
        """Close all ports, and all connections when their requests are answered."""
        await asyncio.gather(*(listener.stop(grace_ms) for listener in self.listeners))
        for each in self._filters:
            await each.close()

    # What links need.

    async def open_upstream(self, node_id: int | None) -> Upstream:
        """Connect to a broker; to any of the bootstrap servers if there is no node id.

        Raises:
            Unavailable: it cannot be reached.
        """
        if node_id is not None:
            return await self._connect(self._upstream_of[node_id])
        start = next(self._next_bootstrap)
        problems: list[str] = []
        for step in range(len(self._bootstrap)):
            try:
                return await self._connect(self._bootstrap[(start + step) % len(self._bootstrap)])
            except Unavailable as error:
                problems.append(str(error))
        raise Unavailable("; ".join(problems))

    async def rewrite(self, response: Message) -> None:
        """Replace the addresses in a response, after ports were opened for new brokers.

        Raises:
            ConfigError: there is no port for a new broker.
        """
        await self._learn(read_addresses(response))
        replace_addresses(response, self._advertised.get)

    def advertised(self, node_id: int) -> Address | None:
        """Return the proxy's address of a broker; None if it has none."""
        return self._advertised.get(node_id)

    async def _connect(self, address: Address) -> Upstream:
        settings = UpstreamSettings(
            client_id=_CLIENT_ID, connect_timeout_ms=self._limits.connect_timeout_ms
        )
        return await connect(address.host, address.port, settings, chunks=self._share.chunks)

    async def _learn(self, addresses: dict[int, Address]) -> None:
        """Record the upstream's brokers; open a port for each new one."""
        self._upstream_of.update(addresses)
        if addresses.keys() <= self._advertised.keys():
            return
        async with self._opening:
            for node_id in sorted(addresses.keys() - self._advertised.keys()):
                await self._open_port(node_id)

    async def _open_port(self, node_id: int) -> None:
        assert self._ports is not None  # noqa: S101 (ports are opened after the start)
        listener = await self._listen(self._ports.assign(node_id), node_id)
        self._advertised[node_id] = self._public(listener.port)
        log.info(
            "cluster %s: broker %d at %s is served at %s",
            self.name,
            node_id,
            self._upstream_of[node_id].text,
            self._advertised[node_id].text,
        )

    async def _listen(self, port: int, node_id: int | None) -> Listener:
        listener = Listener(
            partial(self._start_request, node_id),
            ListenerSettings(
                host=self._settings.address.host,
                port=port,
                reuse_port=self._limits.is_shared,
                max_connections=self._limits.max_connections,
            ),
            budget=self._share.requests,
            answers=self._share.answers,
        )
        await listener.start()
        self.listeners.append(listener)
        self._share.listeners.append(listener)
        return listener

    def _public(self, port: int) -> Address:
        return Address(self._settings.advertise or self._settings.address.host, port)

    def _start_request(
        self, node_id: int | None, connection: Connection, frame: Frame
    ) -> Answer | Awaitable[Answer]:
        link = self.links.get(connection)
        if link is None:
            link = self.links[connection] = ClientLink(connection, self, node_id)
            connection.when_lost(lambda: self._forget(connection))
        return link.start(frame)

    def _forget(self, connection: Connection) -> None:
        del self.links[connection]
