"""The node id and the address that a broker registers with."""

from __future__ import annotations

import logging

from rookery.broker.process.nodeclaim import NodeClaim
from rookery.broker.process.nodelock import NodeLock
from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.events.brokers import BrokerRegistered
from rookery.cluster.replica import Replica
from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address

log = logging.getLogger(__name__)


class NodeIdentity:
    """Chooses and claims a node id, and makes the registrations of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        replica: Replica,
        clock: Clock,
        lock: NodeLock,
        configured_id: int,
    ) -> None:
        """Have no node id yet.

        Args:
            settings: the address, and how long the owner of a node id may be silent.
            replica: knows the other brokers.
            clock: times their silence.
            lock: the locks of this host's brokers.
            configured_id: the node id that this broker must have; -1 if any will do.
        """
        self._settings = settings
        self._replica = replica
        self._lock = lock
        self._claims = NodeClaim(replica, clock, lock, settings)
        self._configured_id = configured_id
        self._claimed_id: int | None = None
        self.port = 0
        """The port that the broker listens on; 0 until it does."""

    @property
    def address(self) -> Address:
        """The address for clients."""
        name = "advertise" if self._settings.advertise else "listen"
        address = parse_address(getattr(self._settings, name), name, lowest_port=0)
        if self._settings.advertise or not self.port:
            return address
        return Address(address.host, self.port)

    async def claim(self) -> None:
        """Claim a node id for the next registration; without one the cluster chooses.

        Raises:
            ConfigError: a live broker has it.
        """
        node_id = self._choose()
        if node_id >= 0:
            await self._claims.claim(node_id)
        self._claimed_id = node_id

    async def registration(self) -> BrokerRegistered:
        """Return the next registration, each with a claim of its own.

        Raises:
            ConfigError: a live broker has the node id.
        """
        if self._claimed_id is None:
            await self.claim()
        node_id, self._claimed_id = self._claimed_id, None
        address = self.address
        return BrokerRegistered(
            process_id=self._lock.new_process_id(),
            node_id=-1 if node_id is None else node_id,
            host=address.host,
            port=address.port,
            rack=self._settings.rack or None,
        )

    def check_free(self, node_id: int) -> None:
        """Refuse to rejoin where another process has this broker's place: they would fight for it.

        Raises:
            ConfigError: another process has joined in its place.
        """
        other = self._replica.state.brokers.by_node.get(node_id)
        if other is None or other.incarnation == self._replica.incarnation:
            return
        # An id that was given to us may have been given away after we were expired.
        if self._configured_id >= 0 or (other.host, other.port) == self.address:
            raise ConfigError(
                f"another process has joined as node id {node_id}; give each broker its own"
            )

    def hold(self, node_id: int) -> None:
        """Lock the node id that this broker has."""
        # A paused process of this host can still hold the lock of a node id that it has lost.
        if not self._lock.hold(node_id):
            log.debug("the lock of node id %d is held", node_id)

    def _choose(self) -> int:
        """Return the node id of the broker that had our address, if none is configured.

        So node ids stay over a restart. Only where the address says which host it is: on several,
        all may listen on 0.0.0.0.
        """
        address = self.address
        is_anywhere = address.host in {"0.0.0.0", "::", ""}  # noqa: S104 (compared, not used)
        if self._configured_id >= 0 or is_anywhere:
            return self._configured_id
        brokers = self._replica.state.brokers.by_node.values()
        return next((b.node_id for b in brokers if (b.host, b.port) == address), -1)
