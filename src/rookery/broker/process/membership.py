"""Expires members of the cluster that are silent.

An expiry contains the last sequence that was seen of the member. It is timed on this process's
monotonic clock and proposed only after a barrier: otherwise an observer that was suspended would
consider all others dead. A broker whose clock differs much from the others' expires no member.

A broker that has missed beats is expired before the end of its session if nothing listens at its
address. So a killed broker is replaced within seconds, and a busy one keeps its whole session.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from statistics import median_low
from typing import Final, NamedTuple

from rookery.broker.settings import UNREACHABLE_BEATS, BrokerSettings
from rookery.clock import Clock
from rookery.cluster.entry import Entry
from rookery.cluster.events.brokerevents import BrokerExpired
from rookery.cluster.replica import Replica
from rookery.cluster.state.brokers import LiveBroker
from rookery.cluster.state.state import EntryOutcome
from rookery.cluster.state.topics import leader_of
from rookery.errors import ErrorCode
from rookery.net.reach import Reach

log = logging.getLogger(__name__)

MAX_SKEW_MS: Final = 10_000
_LOOK_MS: Final = 500
SUSPECT_BEATS: Final = 2.5
"""The number of missed beats before a broker's address is tried."""
_CARETAKER: Final = b"the caretaker..."


Reacher = Callable[[LiveBroker], Awaitable[Reach]]


class _Silence(NamedTuple):
    """The last sequence of an incarnation, and the time since it was seen."""

    sequence: int
    ms: int


class Membership:
    """Tracks the other members, timed by this process's clock."""

    def __init__(
        self, replica: Replica, clock: Clock, settings: BrokerSettings, reach: Reacher
    ) -> None:
        """Start without knowledge; `reach` checks whether the process of a broker exists."""
        self._replica = replica
        self._reach = reach
        self._clock = clock
        self._settings = settings
        self._heard: dict[int, tuple[int, int]] = {}
        self._skews: dict[int, int] = {}
        replica.listen(self._on_applied)

    @property
    def look_ms(self) -> int:
        """The interval for calls of `look`."""
        return min(self._settings.beat_interval_ms, _LOOK_MS)

    @property
    def is_clock_sound(self) -> bool:
        """Whether this process's clock is close enough to the others' to expire members."""
        live = self._replica.state.brokers.sequences
        others = [skew for incarnation, skew in self._skews.items() if incarnation in live]
        return not others or abs(median_low(others)) <= MAX_SKEW_MS

    @property
    def keeps_caretaker(self) -> bool:
        """Whether this broker must keep the caretaker, and its clock can be trusted.

        It is chosen by hash, as leaders are. Two brokers that both consider themselves chosen do no
        harm: the proposals of their caretakers are checked when they are applied.
        """
        broker = self._replica.state.brokers.of(self._replica.incarnation)
        chosen = leader_of(_CARETAKER, 0, self._replica.state.brokers.nodes)
        return broker is not None and chosen == broker.node_id and self.is_clock_sound

    def _on_applied(self, applied: EntryOutcome, entry: Entry) -> None:
        writer = entry.incarnation
        if writer and writer != self._replica.incarnation and not applied.is_void:
            self._skews[writer] = self._clock.now_ms() - entry.stamp_ms

    async def look(self) -> list[int]:
        """Expire members that were silent for too long; return their incarnations."""
        suspects = self._silent()
        dead = {
            incarnation
            for incarnation, silence in suspects.items()
            if await self._is_dead(incarnation, silence.ms)
        }
        if not dead:
            return []
        # Their latest entries may not have been read here yet.
        await self._replica.barrier()
        gone = {
            incarnation: silence
            for incarnation, silence in self._silent().items()
            if incarnation in dead
        }
        if not gone:
            return []
        if not self.is_clock_sound:
            log.error("this broker's clock is off by more than %d ms", MAX_SKEW_MS)
            return []
        events = [
            BrokerExpired(incarnation=incarnation, last_sequence=silence.sequence)
            for incarnation, silence in gone.items()
        ]
        outcomes = await self._replica.propose_all(events)
        # Members that have written since, or that another broker expired first, are not included.
        expired = [
            incarnation
            for incarnation, outcome in zip(gone, outcomes, strict=True)
            if outcome.error is ErrorCode.NONE
        ]
        for incarnation in expired:
            seconds = gone[incarnation].ms / 1000
            log.warning("incarnation %d is expired after %.1f s of silence", incarnation, seconds)
        return expired

    async def _is_dead(self, incarnation: int, silent_ms: int) -> bool:
        """Decide by the silence or, before the session ends, by whether a process listens.

        A busy process can be silent for its whole session, but the kernel accepts connections for
        it all the time.
        """
        settings = self._settings
        if silent_ms >= settings.session_timeout_ms:
            return True
        broker = self._replica.state.brokers.of(incarnation)
        if broker is None:
            return False
        result = await self._reach(broker)
        if result is Reach.SILENT:
            return silent_ms >= settings.beat_interval_ms * UNREACHABLE_BEATS
        return result is Reach.REFUSED

    def _silent(self) -> dict[int, _Silence]:
        """Return the other members that have missed beats."""
        now = self._clock.monotonic_ms()
        least_ms = min(
            self._settings.session_timeout_ms,
            int(self._settings.beat_interval_ms * SUSPECT_BEATS),
        )
        live = self._replica.state.brokers.sequences
        self._heard = {
            incarnation: seen for incarnation, seen in self._heard.items() if incarnation in live
        }
        self._skews = {
            incarnation: skew for incarnation, skew in self._skews.items() if incarnation in live
        }
        silent: dict[int, _Silence] = {}
        for incarnation, sequence in live.items():
            seen = self._heard.get(incarnation)
            if seen is None or seen[0] != sequence:
                self._heard[incarnation] = (sequence, now)
            elif now - seen[1] >= least_ms and incarnation != self._replica.incarnation:
                silent[incarnation] = _Silence(sequence, now - seen[1])
        return silent
