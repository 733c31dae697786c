"""Aborts transactions that are open for too long, and expires unused transactional ids.

The broker that the hash selects is responsible for an id. The age of a transaction is timed on this
broker's monotonic clock from when it was first seen here. A proposal contains the state that was
seen, and it is void if that has changed. So a broker that was suspended, or has just taken over,
ends nothing too early.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.events.txnevents import TransactionalIdExpired, TransactionExpired
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import coordinator_of
from rookery.cluster.state.txns import Transaction
from rookery.errors import ErrorCode
from rookery.wire.message import Message

log = logging.getLogger(__name__)

# Other proposals need room in the entry too; the rest follows in the next run.
_AT_ONCE: Final = 200
# Ids expire after days, so this interval is sufficient.
_IDLE_EVERY_MS: Final = 60_000


class Overdue:
    """Tracks open transactions, timed by this broker's clock."""

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        settings: BrokerSettings,
        is_clock_sound: Callable[[], bool],
    ) -> None:
        """Start without knowledge of transactions.

        Args:
            replica: read for transactions, and receives the proposals.
            clock: its monotonic time is used for transactions, its wall-clock time for idle ids.
            settings: contains the expiration time of ids.
            is_clock_sound: returns whether this process's clock can be trusted.
        """
        self._replica = replica
        self._clock = clock
        self._settings = settings
        self._is_clock_sound = is_clock_sound
        self._seen: dict[str, tuple[int, int]] = {}
        self._looked_ms = clock.monotonic_ms()

    async def look(self) -> list[str]:
        """Abort transactions that are open for too long; return their transactional ids."""
        due = self._due()
        if not due:
            return []
        # They may have ended in entries that were not read here yet.
        await self._replica.barrier()
        due = self._due()[:_AT_ONCE]
        events = [
            TransactionExpired(transactional_id=transaction.id, started=transaction.started)
            for transaction in due
        ]
        outcomes = await self._replica.propose_all(events)
        aborted = [
            transaction.id
            for transaction, outcome in zip(due, outcomes, strict=True)
            if outcome.error is ErrorCode.NONE
        ]
        for transactional_id in aborted:
            log.warning(
                "a transaction was open for too long and is aborted",
                extra={"transactional_id": transactional_id},
            )
        return aborted

    async def forget(self) -> int:
        """Expire ids that were unused for too long; return their number."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms < _IDLE_EVERY_MS or not self._is_clock_sound():
            return 0
        self._looked_ms = now_ms
        if not self._idle():
            return 0
        await self._replica.barrier()
        events: list[Message] = [
            TransactionalIdExpired(transactional_id=transaction.id, changed=transaction.changed)
            for transaction in self._idle()[:_AT_ONCE]
        ]
        outcomes = await self._replica.propose_all(events)
        return sum(outcome.error is ErrorCode.NONE for outcome in outcomes)

    def _due(self) -> list[Transaction]:
        """Return the transactions open for too long; record when others were first seen."""
        now_ms = self._clock.monotonic_ms()
        seen, self._seen = self._seen, {}
        due = []
        for transaction in self._replica.state.transactions.open.values():
            started, since_ms = seen.get(transaction.id, (-1, now_ms))
            since_ms = since_ms if started == transaction.started else now_ms
            self._seen[transaction.id] = transaction.started, since_ms
            if now_ms - since_ms >= transaction.timeout_ms:
                due.append(transaction)
        return list(self._ours(due))

    def _idle(self) -> list[Transaction]:
        before_ms = self._clock.now_ms() - self._settings.transactional_id_expiration_ms
        return list(
            self._ours(
                transaction
                for transaction in self._replica.state.transactions
                if not transaction.is_open and transaction.changed_ms < before_ms
            )
        )

    def _ours(self, transactions: Iterable[Transaction]) -> Iterator[Transaction]:
        brokers = self._replica.state.brokers
        own = brokers.of(self._replica.incarnation)
        nodes = brokers.nodes
        for transaction in transactions:
            if own is not None and coordinator_of(transaction.id, nodes) == own.node_id:
                yield transaction
