"""Cluster membership of this process: it registers, sends heartbeats, detects expiry and leaves.

    join ──► alive ──► leave
      ▲        │
      └────────┘  expired by another member, replaced, or nearly out of object ids

A member has a sequence of incarnations, and only entries of a live incarnation count. A member
learns of its expiry by reading the cluster log, also after the log was unreachable. An eager
member then rejoins automatically; any other member rejoins with its next `join`.

A member that cannot reach the log cannot learn of its expiry, nor of changes of access rules. It
has a lease instead, which each of its entries extends. The lease begins when the entry is made. The
others read the entry later, and report no change as done while it can last
(`cluster/agreement.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rookery.clock import Clock, Random
from rookery.cluster.entry import Entry
from rookery.cluster.events.brokerevents import BrokerBeat, BrokerLeft, ProcessRegistered
from rookery.cluster.numbers import Numbers
from rookery.cluster.replica import Replica
from rookery.cluster.settings import MemberSettings
from rookery.cluster.state.outcome import EntryOutcome
from rookery.errors import ConfigError, Conflict, Error, Unavailable
from rookery.outage import Outage
from rookery.wire.message import Message

log = logging.getLogger(__name__)

Registration = Callable[[], Awaitable[Message]]


async def _do_nothing() -> None:
    pass


class ClusterMember:
    """The membership of one process, across its successive incarnations."""

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        registration: Registration,
        settings: MemberSettings | None = None,
    ) -> None:
        """Start unregistered; `join` registers.

        Args:
            replica: this process's copy of the state.
            clock: measures the time since the last entry, after which a heartbeat is due.
            registration: returns the event for a new incarnation; called before each attempt.
            settings: the settings for this member's role.
        """
        self._replica = replica
        self._clock = clock
        self._registration = registration
        self._settings = settings or MemberSettings()
        self._numbers: Numbers | None = None
        self._joining = asyncio.Lock()
        self._rejoining: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._is_closed = False
        self._last_entry_ms: int | None = None
        self._lease_ends_ms = 0
        self._outage = Outage(log, "the heartbeat")
        self.trouble = ""
        """Why the last heartbeat failed; empty while heartbeats succeed."""
        self.check: Callable[[], Awaitable[None]] = _do_nothing
        """Called before each `join` and each heartbeat; an exception from it prevents both."""
        self.when_lost: Callable[[], Awaitable[None]] = _do_nothing
        """Called once for each incarnation that is abandoned, before the next one registers."""
        self.when_joined: Callable[[Numbers], None] = lambda _: None
        """Called once for each incarnation; a `Conflict` means that it cannot be used."""
        self.when_failed: Callable[[Exception], None] = lambda _: None
        """Called if an eager member cannot rejoin for a reason other than an outage."""

    @property
    def is_alive(self) -> bool:
        """Whether the owner can write under the current incarnation, as of the last entry read."""
        return self._numbers is not None and self._is_registered

    @property
    def has_lease(self) -> bool:
        """Whether no change can have been reported as done that this member has not applied.

        A member that leaves keeps its lease, to redirect its clients.
        """
        return self._clock.monotonic_ms() < self._lease_ends_ms

    @property
    def silent_ms(self) -> int | None:
        """The time since this member made its last applied entry; None if there is none."""
        if self._last_entry_ms is None:
            return None
        return self._clock.monotonic_ms() - self._last_entry_ms

    def next_id(self) -> int:
        """Return a new object id of the current incarnation.

        Raises:
            Unavailable: there is no incarnation, or it has used up its ids.
        """
        if self._numbers is None:
            raise Unavailable("this process is not a member of the cluster; it joins (again) first")
        return self._numbers()

    async def join(self) -> Numbers:
        """Register, unless the current incarnation is alive; return its object ids.

        Raises:
            Unavailable: the cluster log is unreachable. If the registration reached the log
                anyway, that incarnation writes nothing and expires.
        """
        async with self._joining:
            await self.check()
            if self._is_lost:
                self._numbers = None
                await self.when_lost()
            if self._numbers is None:
                self._numbers = await self._register()
            if self._beating is None:
                self._beating = asyncio.create_task(self._beat_on())
            return self._numbers

    async def join_patiently(self) -> Numbers:
        """Join, retrying for as long as the cluster log is unreachable."""
        outage = Outage(log, "the registration")
        while True:
            try:
                numbers = await self.join()
            except Unavailable as error:
                outage.fail(error)
                await asyncio.sleep(self._settings.retry_ms / 1000)
            else:
                outage.end()
                return numbers

    def look(self) -> None:
        """End the lease of an expired member; start the rejoin of an eager one if it is needed."""
        if self._numbers is not None and not self._is_registered and not self._is_closed:
            self._lease_ends_ms = 0
        is_free = self._rejoining is None or self._rejoining.done()
        if self._settings.is_eager and is_free and self._is_lost and not self._is_closed:
            self._rejoining = asyncio.create_task(self._rejoin())

    async def leave(self, finish: Callable[[], Awaitable[None]] = _do_nothing) -> None:
        """Leave the cluster cleanly, if the cluster log responds in time; always stop the member.

        Args:
            finish: the last work under this incarnation.
        """
        await self.close()
        try:
            async with asyncio.timeout(self._settings.leave_ms / 1000):
                await finish()
                if self._is_registered:
                    await self._replica.propose([BrokerLeft()])
        except TimeoutError:
            log.warning("could not leave the cluster in order: no answer in time")
        except Error as error:
            log.warning("could not leave the cluster in order: %s", error)

    async def close(self) -> None:
        """Stop heartbeats and rejoining; unless this member leaves, other members expire it."""
        self._is_closed = True
        tasks = [task for task in (self._rejoining, self._beating) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _is_registered(self) -> bool:
        return self._replica.incarnation in self._replica.state.brokers.sequences

    @property
    def _is_lost(self) -> bool:
        """Whether there is an incarnation that must be abandoned."""
        numbers = self._numbers
        return numbers is not None and (not self._is_registered or numbers.is_nearly_spent)

    async def _register(self) -> Numbers:
        # Not earlier: a process that never writes follows the log without this listener.
        self._replica.unlisten(self._on_applied)
        self._replica.listen(self._on_applied)
        tries = self._settings.max_registrations
        while True:
            tries -= 1
            numbers = Numbers(await self._replica.register(await self._registration()))
            self._extend_lease()
            try:
                self.when_joined(numbers)
            except Conflict as error:
                if not tries:
                    raise
                log.warning("registering again: %s", error)
            else:
                return numbers

    async def _rejoin(self) -> None:
        try:
            await self.join_patiently()
        except Exception as error:  # noqa: BLE001 (a task's root: the owner must be notified)
            self.when_failed(error)

    def _on_applied(self, applied: EntryOutcome, entry: Entry) -> None:
        # Entries of processes that join have no incarnation, as this process while it joins again.
        is_own = entry.incarnation == self._replica.incarnation != 0
        if is_own and not applied.is_void:
            self._extend_lease()
        elif not self._is_registered:
            self.look()

    def _extend_lease(self) -> None:
        """Note that an entry of this member counts; the lease lasts from when it was made."""
        self._last_entry_ms = began_ms = self._replica.began_ms
        self._lease_ends_ms = began_ms + self._settings.lease_ms

    async def _beat_on(self) -> None:
        """Send a heartbeat whenever this member was silent for an interval, one at a time."""
        interval_ms = wait_ms = self._settings.beat_ms
        while self._replica.failure is None:
            await asyncio.sleep(wait_ms / 1000)
            self.look()
            silent_ms = self.silent_ms or 0
            wait_ms = interval_ms if silent_ms >= interval_ms else interval_ms - silent_ms
            if silent_ms < interval_ms or not self._is_registered:
                continue
            try:
                await self.check()
                await self._replica.propose([BrokerBeat()])
            except ConfigError as error:
                self._outage.fail(error)
                return  # this is not the member's log any more
            except Exception as error:  # noqa: BLE001 (the next heartbeat is still sent)
                self._outage.fail(error)
                self.trouble = str(error)
            else:
                self._outage.end()
                self.trouble = ""
                # The beat may have waited for the log longer than the lease.
                wait_ms = interval_ms if self.has_lease else 0


def process_registration(purpose: str, random: Random) -> Registration:
    """Return the registration of a process that serves no clients."""

    async def registration() -> Message:
        return ProcessRegistered(process_id=random.token(16), purpose=purpose)

    return registration
