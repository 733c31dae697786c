"""Ends transactions that are open for too long, and forgets transactional ids that nobody uses.

The broker that the hash gives an id looks after it. How long a transaction has been open is timed
on this broker's own monotonic clock from when it was first seen here, and what is proposed names
what was seen: it is void if that has changed. So a broker that slept, or has taken over just now,
ends nothing too early.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.events.txns import TransactionalIdExpired, TransactionExpired
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import coordinator_of
from rookery.cluster.state.txns import Transaction
from rookery.errors import ErrorCode
from rookery.wire.message import Message

log = logging.getLogger(__name__)

# Others want room in the entry too; what is left comes next time.
_AT_ONCE: Final = 200
# Ids are forgotten after days: looking for them this often is enough.
_IDLE_EVERY_MS: Final = 60_000


class Overdue:
    """What this broker knows of open transactions, by its own clock."""

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        settings: BrokerSettings,
        is_clock_sound: Callable[[], bool],
    ) -> None:
        """Know nothing yet.

        Args:
            replica: what is looked at and proposed to.
            clock: the monotonic one times transactions, the other one idle ids.
            settings: how long ids are kept.
            is_clock_sound: whether this process's clock may decide on anything.
        """
        self._replica = replica
        self._clock = clock
        self._settings = settings
        self._is_clock_sound = is_clock_sound
        self._seen: dict[str, tuple[int, int]] = {}
        self._looked_ms = clock.monotonic_ms()

    async def look(self) -> list[str]:
        """Abort what is open for too long; return which transactional ids it was."""
        due = self._due()
        if not due:
            return []
        # It may have ended without our having read of it.
        await self._replica.barrier()
        due = self._due()[:_AT_ONCE]
        events = [TransactionExpired(transactional_id=one.id, started=one.started) for one in due]
        outcomes = await self._replica.propose_all(events)
        aborted = [
            one.id
            for one, outcome in zip(due, outcomes, strict=True)
            if outcome.error is ErrorCode.NONE
        ]
        for transactional_id in aborted:
            log.warning(
                "a transaction was open for too long and is aborted",
                extra={"transactional_id": transactional_id},
            )
        return aborted

    async def forget(self) -> int:
        """Forget ids that nobody has used for long; return how many."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms < _IDLE_EVERY_MS or not self._is_clock_sound():
            return 0
        self._looked_ms = now_ms
        if not self._idle():
            return 0
        await self._replica.barrier()
        events: list[Message] = [
            TransactionalIdExpired(transactional_id=one.id, changed=one.changed)
            for one in self._idle()[:_AT_ONCE]
        ]
        outcomes = await self._replica.propose_all(events)
        return sum(outcome.error is ErrorCode.NONE for outcome in outcomes)

    def _due(self) -> list[Transaction]:
        """Find what is open for too long, and note since when we know of the others."""
        now_ms = self._clock.monotonic_ms()
        seen, self._seen = self._seen, {}
        due = []
        for one in self._replica.state.transactions.open.values():
            started, since_ms = seen.get(one.id, (-1, now_ms))
            since_ms = since_ms if started == one.started else now_ms
            self._seen[one.id] = one.started, since_ms
            if now_ms - since_ms >= one.timeout_ms:
                due.append(one)
        return list(self._ours(due))

    def _idle(self) -> list[Transaction]:
        before_ms = self._clock.now_ms() - self._settings.transactional_id_expiration_ms
        return list(
            self._ours(
                one
                for one in self._replica.state.transactions
                if not one.is_open and one.changed_ms < before_ms
            )
        )

    def _ours(self, found: Iterable[Transaction]) -> Iterator[Transaction]:
        brokers = self._replica.state.brokers
        own = brokers.of(self._replica.incarnation)
        nodes = brokers.nodes
        for one in found:
            if own is not None and coordinator_of(one.id, nodes) == own.node_id:
                yield one
