"""Waits until all brokers have applied a change of access rules, users or quotas.

    this broker:  change in entry 7 ──────────────► waits ──────────► answers its client
    another one:             applies 7 ──► beat, which has seen 7 ──┘

Each entry states the last entry that its writer had applied, so an entry of a broker that has seen
the change proves that the change is in force there. Brokers send a heartbeat for each change that
they apply. A broker of an earlier release proves the same with its next heartbeat.

Only live brokers count: those that are registered, and neither left nor expired. A silent broker is
expired after its session timeout. If it is not dead but cut off from the cluster log, it decides by
the rules that it knows until it can read the log again. So does a broker that starts, in the moment
before it registers.
"""

from __future__ import annotations

import asyncio
import logging

from rookery.cluster.entry import Entry
from rookery.cluster.events.brokerevents import BrokerBeat
from rookery.cluster.replica import Replica
from rookery.cluster.state.outcome import EntryOutcome, Outcome
from rookery.errors import Error

log = logging.getLogger(__name__)


class SecurityAgreement:
    """Tracks which changes the other brokers have applied, and reports those applied here."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._seen: dict[int, int] = {}
        """The last entry that each other incarnation is known to have applied."""
        self._stamp = self._current_stamp
        self._changed_at = 0
        self._moved: asyncio.Future[None] | None = None
        replica.listen(self._applied)

    async def wait(self, timeout_ms: int) -> bool:
        """Wait until all live brokers have applied the last change that is applied here.

        Returns:
            Whether they have, before the timeout.
        """
        number = self._changed_at
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._behind(number):
                    await self._wait_for_entry()
        except TimeoutError:
            brokers = ", ".join(str(node) for node in self._behind(number))
            log.warning("a change of access rules or users may not be in force on %s", brokers)
            return False
        return True

    def _behind(self, number: int) -> list[int]:
        """Return the other live brokers that may not have applied an entry."""
        brokers = self._replica.state.brokers.by_node.values()
        return [
            broker.node_id
            for broker in brokers
            # Its registration is no proof: it may have been written before it was applied there.
            if self._seen.get(broker.incarnation, 0) < number
            and broker.incarnation != self._replica.incarnation
        ]

    async def _wait_for_entry(self) -> None:
        if self._moved is None or self._moved.done():
            self._moved = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._moved)

    def _applied(self, applied: EntryOutcome, entry: Entry) -> None:
        is_own = entry.incarnation == self._replica.incarnation
        if not is_own and not applied.is_void and entry.incarnation:
            self._seen[entry.incarnation] = entry.seen
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)
        stamp = self._current_stamp
        if stamp == self._stamp:
            return
        self._stamp, self._changed_at = stamp, applied.number
        live = self._replica.state.brokers.sequences
        self._seen = {one: seen for one, seen in self._seen.items() if one in live}
        if not is_own and self._replica.incarnation in live:
            self._replica.propose([BrokerBeat()]).add_done_callback(_note)

    @property
    def _current_stamp(self) -> tuple[object, ...]:
        security = self._replica.state.security
        return security, *security.version


def _note(beat: asyncio.Future[list[Outcome]]) -> None:
    """Report a beat that failed; a later heartbeat proves the same."""
    error = None if beat.cancelled() else beat.exception()
    if isinstance(error, Error):
        log.debug("a change of access rules or users could not be acknowledged: %s", error)
    elif error is not None:
        log.error("a change of access rules or users was not acknowledged", exc_info=error)
