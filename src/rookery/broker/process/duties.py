"""The periodic work on the state of the cluster that every broker shares.

Each broker works on its part: the members that it finds silent, and the transactional ids and
groups that the hash gives to it.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.groups.claims import GroupClaims
from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.groups.removal import OffsetRetention
from rookery.broker.overdue import Overdue
from rookery.broker.process.membership import Membership
from rookery.broker.settings import BrokerSettings
from rookery.broker.tokens.tokenexpiry import TokenExpiry
from rookery.clock import Clock
from rookery.cluster.replica import Replica
from rookery.service.periodic import PeriodicTasks

_TRANSACTIONS_INTERVAL_MS: Final = 1_000
_CLAIMS_INTERVAL_MS: Final = 1_000
# The interval of the check for expired offsets (Kafka's offsets.retention.check.interval.ms).
_OFFSETS_INTERVAL_MS: Final = 600_000
_TOKENS_INTERVAL_MS: Final = 60_000


class ClusterDuties:
    """Expires members, transactions, ids, offsets and tokens, and claims groups."""

    def __init__(
        self,
        settings: BrokerSettings,
        replica: Replica,
        clock: Clock,
        membership: Membership,
        groups: GroupCoordinator,
    ) -> None:
        """Prepare the work; `start` begins it.

        Args:
            settings: the intervals and retention times.
            replica: read for the state, and receives the proposals.
            clock: measures the age of transactions, ids and offsets.
            membership: finds silent members, and checks this process's clock.
            groups: coordinates the groups of this broker.
        """
        self._settings = settings
        self._membership = membership
        self._overdue = Overdue(replica, clock, settings, lambda: membership.is_clock_sound)
        self._tokens = TokenExpiry(replica, clock, lambda: membership.keeps_caretaker)
        self._claims = GroupClaims(groups, replica, clock)
        self._offsets = OffsetRetention(
            groups,
            replica,
            clock,
            settings.offsets_retention_ms,
            lambda: membership.is_clock_sound,
        )

    def start(self, tasks: PeriodicTasks, *, expires_offsets: bool) -> None:
        """Begin the work; a read-only broker only expires members."""
        settings = self._settings
        membership = self._membership
        tasks.every(membership.look_ms, "expiry of silent brokers", membership.look)
        if settings.read_only:
            return
        tasks.every(_TRANSACTIONS_INTERVAL_MS, "expiry of transactions", self._overdue.look)
        tasks.every(_TRANSACTIONS_INTERVAL_MS, "expiry of transactional ids", self._overdue.forget)
        tasks.every(_TOKENS_INTERVAL_MS, "expiry of delegation tokens", self._tokens.run)
        tasks.every(_CLAIMS_INTERVAL_MS, "claims of groups", self._claims.run)
        if expires_offsets:
            tasks.every(_OFFSETS_INTERVAL_MS, "expiry of offsets", self._offsets.run)
