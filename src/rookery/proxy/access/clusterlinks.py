"""The links of the clients of one virtual cluster: how their requests reach the upstream.

A client of mirror nodes has one connection to one broker. A client of broker nodes has a connection
to each broker that it needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.proxy.access.clientlogins import ClientLogins
from rookery.proxy.clientlink import ClientLink, LinkTarget
from rookery.proxy.nodes.brokernodes import BrokerNodes
from rookery.proxy.nodes.nodelink import NodeLink
from rookery.wire.codec import peek
from rookery.wire.frame import Frame


class ClusterLinks:
    """Starts the requests of clients, each on the link of its connection."""

    def __init__(
        self, target: LinkTarget, broker_nodes: BrokerNodes | None, logins: ClientLogins | None
    ) -> None:
        """Know no client yet.

        Args:
            target: the virtual cluster.
            broker_nodes: the instances that clients see; None if they see the upstream's brokers.
            logins: logs clients in; None if their logins pass to the upstream.
        """
        self.open: dict[Connection, ClientLink | NodeLink] = {}
        """The links of the clients."""
        self.start = self._start if logins is None else self._start_guarded
        """Starts a request of a client."""
        self._target = target
        self._broker_nodes = broker_nodes
        self._logins = logins

    def drain(self) -> None:
        """Take no more requests; close the connections when those in flight are answered."""
        for link in list(self.open.values()):
            link.drain()

    def keep_brokers(self, brokers: Collection[int]) -> None:
        """Close the connections of broker nodes to all other brokers."""
        for link in list(self.open.values()):
            if isinstance(link, NodeLink):
                link.keep_brokers(brokers)

    def add(self, node_id: int | None, connection: Connection) -> None:
        """Open the link of a client that has connected.

        Args:
            node_id: the broker whose port it has connected to; None for the bootstrap port.
            connection: the connection of the client.
        """
        link: ClientLink | NodeLink
        if self._broker_nodes is not None:
            link = self._broker_nodes.open_link(connection, self._target)
        else:
            link = ClientLink(connection, self._target, node_id)
        self.open[connection] = link
        connection.when_lost(lambda: self._forget(connection))

    def _start(self, connection: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        return self.open[connection].start(frame)

    def _start_guarded(self, connection: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        """Start a request, unless it belongs to a login that ends here."""
        assert self._logins is not None  # noqa: S101 (only used with logins)
        link = self.open[connection]
        answer = self._logins.intercept(link.node_id, connection, frame)
        if answer is None:
            return link.start(frame)
        link.state.note_request(peek(frame)[0])
        return answer

    def _forget(self, connection: Connection) -> None:
        del self.open[connection]
