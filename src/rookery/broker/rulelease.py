"""Stops decisions by access rules and users that may be out of date.

A change of rules or users is answered when no broker decides without it any more. For a broker that
is silent, that is when its lease has ended (`cluster/agreement.py`). A broker that is cut off from
the cluster log, or was suspended, decides by the rules that it has applied until then, and nothing
later (`cluster/member.py`). It closes the connections of clients that the rules are for, and
accepts no password. Clients retry both. Bearer tokens and certificates are accepted: nothing about
them is in the cluster log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from rookery import metrics
from rookery.broker.process.liveness import has_ended
from rookery.broker.process.nodelock import NodeLock
from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.agreement import SecurityAgreement
from rookery.cluster.member import ClusterMember
from rookery.cluster.replica import Replica
from rookery.cluster.state.brokers import LiveBroker
from rookery.errors import Unavailable
from rookery.outage import Outage

log = logging.getLogger(__name__)

OUTDATED: Final = metrics.counter(
    "rookery_access_outdated_total",
    "Requests and logins that were refused because the access rules and users may be out of date.",
)


def new_agreement(
    settings: BrokerSettings, replica: Replica, clock: Clock, lock: Callable[[], NodeLock]
) -> SecurityAgreement:
    """Return the agreement of a broker about changes, before its replica opens.

    Args:
        settings: the settings of the broker.
        replica: the replica of the broker.
        clock: times the leases.
        lock: returns the lock of its node id, which shows whether others of this host have ended.
    """

    def is_over(broker: LiveBroker) -> bool:
        return has_ended(lock(), broker, replica.state.brokers)

    return SecurityAgreement(replica, clock, settings.member().lease_ms, is_over)


class RuleLease:
    """Whether this broker may decide by the rules and users that it has applied."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self._outage = Outage(log, "access control")

    def require(self) -> None:
        """Return if the rules and users are up to date.

        Raises:
            Unavailable: they may be out of date; nothing must be decided by them.
        """
        if self._member.has_lease:
            if self._outage.failures:
                self._outage.end()
            return
        OUTDATED.inc()
        error = Unavailable(self.problem() or "the access rules were out of date until now")
        self._outage.fail(error)
        raise error

    def problem(self) -> str:
        """Return why nothing can be decided; empty if everything can."""
        if self._member.has_lease:
            return ""
        return (
            "access rules and users may be out of date, because this broker has written nothing to "
            f"the cluster log {self._since()}; only super users and connections without access "
            "rules are served until it can"
        )

    def _since(self) -> str:
        silent_ms = self._member.silent_ms
        return "yet" if silent_ms is None else f"for {silent_ms / 1000:.1f} s"
