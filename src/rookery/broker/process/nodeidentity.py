"""The node id and the address that a broker registers with."""

from __future__ import annotations

import logging

from rookery.broker.process.nodeclaim import NodeClaim
from rookery.broker.process.nodelock import NodeLock
from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.events.brokerevents import BrokerRegistered, EndpointRow
from rookery.cluster.replica import Replica
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.errors import ConfigError
from rookery.model.address import Address

log = logging.getLogger(__name__)


class NodeIdentity:
    """Chooses and claims a node id, and creates the registrations of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        replica: Replica,
        clock: Clock,
        lock: NodeLock,
        configured_id: int,
    ) -> None:
        """Start without a node id.

        Args:
            settings: the address, and how long the owner of a node id can be silent.
            replica: knows the other brokers.
            clock: times their silence.
            lock: the locks of this host's brokers.
            configured_id: the node id that this broker must use; -1 if any is allowed.
        """
        self._settings = settings
        self._replica = replica
        self._lock = lock
        self._claims = NodeClaim(replica, clock, lock, settings)
        self._configured_id = configured_id
        self._claimed_id: int | None = None
        self.endpoints: list[EndpointRow] = []
        """The advertised addresses; empty before the broker listens."""

    @property
    def address(self) -> Address:
        """The advertised address."""
        if self.endpoints:
            return Address(self.endpoints[0].host, self.endpoints[0].port)
        config = next(iter(self._settings.client_listeners().values()))
        return config.choose_address(config.address.port)

    async def claim(self) -> None:
        """Claim a node id for the next registration; without one the cluster chooses.

        Raises:
            ConfigError: a live broker owns it.
        """
        node_id = self._choose()
        if node_id >= 0:
            await self._claims.claim(node_id)
        self._claimed_id = node_id

    async def registration(self) -> BrokerRegistered:
        """Return the next registration; each has its own claim.

        Raises:
            ConfigError: a live broker owns the node id.
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
            endpoints=self.endpoints if self._has_endpoints() else [],
        )

    def _has_endpoints(self) -> bool:
        """Whether listeners are registered by name: programs of lower levels cannot read them."""
        is_plain = len(self.endpoints) == 1 and self.endpoints[0].protocol == 0
        return self._replica.state.feature_level >= SECURITY and not is_plain

    def check_free(self, node_id: int) -> None:
        """Refuse to rejoin if another process has this broker's node id: both would compete for it.

        Raises:
            ConfigError: another process has joined with its node id.
        """
        other = self._replica.state.brokers.by_node.get(node_id)
        if other is None or other.incarnation == self._replica.incarnation:
            return
        # An automatically assigned id may have been reassigned after we were expired.
        if self._configured_id >= 0 or (other.host, other.port) == self.address:
            raise ConfigError(
                f"another process has joined as node id {node_id}; give each broker its own"
            )

    def hold(self, node_id: int) -> None:
        """Lock the node id of this broker."""
        # A suspended process of this host can still hold the lock of a node id that it has lost.
        if not self._lock.hold(node_id):
            log.debug("another process holds the lock of node id %d", node_id)

    def _choose(self) -> int:
        """Return the node id last used at our address, if none is configured.

        So node ids are stable across restarts. This applies only if the address identifies the
        host: on several hosts, all may listen on 0.0.0.0.
        """
        address = self.address
        is_anywhere = address.host in {"0.0.0.0", "::", ""}  # noqa: S104 (compared, not used)
        if self._configured_id >= 0 or is_anywhere:
            return self._configured_id
        brokers = self._replica.state.brokers.by_node.values()
        return next((b.node_id for b in brokers if (b.host, b.port) == address), -1)
