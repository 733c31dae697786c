"""Waits until no broker decides by older access rules, users, quotas or tokens than the newest.

    this broker:  change in entry 7 ──────────────► waits ──────────► answers its client
    another one:             applies 7 ──► beat, which has seen 7 ──┘

Each entry states the last entry that its writer had applied, so an entry of a broker that has seen
the change proves that the change is in force there. Brokers send a heartbeat for each change that
they apply. A broker of an earlier release proves the same with its next heartbeat.

A broker that is silent may be cut off from the cluster log or suspended, and still serve clients.
It is awaited until its lease has ended (`has_lease` in `cluster/member.py`), whether or not it was
expired in the meantime: an expiry moves its partitions and groups, and proves nothing about its
process. The lease begins when an entry is made, and is awaited from when the entry is read, which
is later. So it has ended by then, unless a clock runs at another speed.

Not awaited are brokers that have left, and those whose process has provably ended. A broker that
starts knows of the brokers in the snapshot and in the entries that it reads. It does not know of
one whose expiry the snapshot covers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rookery.clock import Clock
from rookery.cluster.entry import Entry
from rookery.cluster.events.brokerevents import BrokerBeat
from rookery.cluster.replica import Replica
from rookery.cluster.state.brokers import LiveBroker
from rookery.cluster.state.outcome import EntryOutcome, Outcome
from rookery.errors import Error

log = logging.getLogger(__name__)


class SecurityAgreement:
    """Tracks which changes the other brokers have applied, and reports those applied here."""

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        lease_ms: int,
        has_ended: Callable[[LiveBroker], bool] = lambda _: False,
    ) -> None:
        """Listen to the replica, before it opens.

        Args:
            replica: the changes, and the entries of the other brokers.
            clock: times the leases.
            lease_ms: how long a broker decides by what it has applied, after an entry of its own.
            has_ended: whether the process of a broker that is not live any more has ended.
        """
        self._replica = replica
        self._clock = clock
        self._lease_ms = lease_ms
        self._has_ended = has_ended
        self._state = replica.state
        self._known: dict[int, LiveBroker] = {}
        """The other brokers that may decide, by incarnation."""
        self._heard: dict[int, int] = {}
        """When the last entry of each of them was read, on the monotonic clock."""
        self._seen: dict[int, int] = {}
        """The last entry that each of them is known to have applied."""
        self._stamp = self._current_stamp
        self._changed_at = 0
        self._moved: asyncio.Future[None] | None = None
        self._note_live()
        replica.listen(self._on_applied)

    async def wait(self, timeout_ms: int) -> bool:
        """Wait until no other broker decides by a state without the last change applied here.

        Returns:
            Whether none does, before the timeout.
        """
        number = self._changed_at
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._behind(number):
                    await self._wait_for_entry()
        except TimeoutError:
            brokers = ", ".join(str(broker.node_id) for broker in self._behind(number))
            log.warning("a change of access rules or users may not be in force on %s", brokers)
            return False
        return True

    def _behind(self, number: int) -> list[LiveBroker]:
        """Return the other brokers that may decide, and may not have applied an entry."""
        self._note_live()
        return [
            broker
            for broker in self._known.values()
            # Its registration proves nothing: it may have been written before it was applied there.
            if self._seen.get(broker.incarnation, 0) < number and self._may_decide(broker)
        ]

    def _may_decide(self, broker: LiveBroker) -> bool:
        if broker.incarnation == self._replica.incarnation:
            return False
        if broker.incarnation in self._replica.state.brokers.sequences:
            return True
        return self._lease_left_ms(broker) > 0 and not self._has_ended(broker)

    def _lease_left_ms(self, broker: LiveBroker) -> int:
        return self._heard[broker.incarnation] + self._lease_ms - self._clock.monotonic_ms()

    async def _wait_for_entry(self) -> None:
        """Return at the next entry, or when a lease ends."""
        if self._moved is None or self._moved.done():
            self._moved = asyncio.get_running_loop().create_future()
        left_ms = [self._lease_left_ms(broker) for broker in self._known.values()]
        nearest_ms = min((each for each in left_ms if each > 0), default=self._lease_ms)
        await asyncio.wait([self._moved], timeout=nearest_ms / 1000)

    def _on_applied(self, applied: EntryOutcome, entry: Entry) -> None:
        if self._state is not self._replica.state or not entry.incarnation:
            # A snapshot has replaced the state, or a broker has registered.
            self._note_live()
        is_own = entry.incarnation == self._replica.incarnation != 0
        if is_own:
            self._forget(entry.incarnation)
        elif entry.incarnation in self._known and not applied.is_void:
            self._note_entry(entry)
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)
        stamp = self._current_stamp
        if stamp == self._stamp:
            return
        self._stamp, self._changed_at = stamp, applied.number
        for broker in [each for each in self._known.values() if not self._may_decide(each)]:
            self._forget(broker.incarnation)
        if not is_own and self._replica.incarnation in self._replica.state.brokers.sequences:
            self._replica.propose([BrokerBeat()]).add_done_callback(_note)

    def _note_live(self) -> None:
        """Take up brokers that are new here; their leases have begun before."""
        self._state = self._replica.state
        for broker in self._state.brokers.by_node.values():
            incarnation = broker.incarnation
            if incarnation not in self._known and incarnation != self._replica.incarnation:
                self._known[incarnation] = broker
                self._heard[incarnation] = self._clock.monotonic_ms()

    def _note_entry(self, entry: Entry) -> None:
        """Note an entry of another broker, which may be its last one."""
        if entry.incarnation in self._replica.state.brokers.sequences:
            self._seen[entry.incarnation] = entry.seen
            self._heard[entry.incarnation] = self._clock.monotonic_ms()
        else:
            self._forget(entry.incarnation)  # it has left

    def _forget(self, incarnation: int) -> None:
        for notes in (self._known, self._heard, self._seen):
            notes.pop(incarnation, None)

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
