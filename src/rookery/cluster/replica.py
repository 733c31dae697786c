"""This process's copy of the state: it follows the log, applies it, and proposes entries.

At most one append is in flight, and it carries all queued proposals. The outcome of an entry is
known only when the entry is applied. If the log's response to an append is lost, the replica finds
the entry by reading, because entries identify their writer.

    propose ──► queue ──► one entry ──► log.append ──┐
                                                     ▼
    other processes ──► log.wait, log.read ──► apply, in order ──► outcomes, listeners
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rookery import metrics
from rookery.clock import Clock, stopwatch
from rookery.cluster.entry import (
    Entry,
    EntryAuthor,
    read_entry,
    read_events,
    write_entry,
)
from rookery.cluster.port import ClusterLog, EntriesTrimmed
from rookery.cluster.proposal import Proposal, divide, merge, take_next
from rookery.cluster.recomputation import LoadSnapshot, recompute
from rookery.cluster.state.state import EntryOutcome, Outcome, State
from rookery.errors import Conflict, Corrupt, Unavailable
from rookery.outage import Outage
from rookery.wire.buffer import Buffer
from rookery.wire.message import Message

log = logging.getLogger(__name__)

# The digests of this many entries are kept, to compare them with other writers' digests.
_DIGESTS: Final = 4096
_RETRY_SECONDS: Final = (0.01, 0.05, 0.2, 0.5, 1.0)
# After this many attempts the waiters get an error. The append is still retried, because the entry
# may be in the log.
_PATIENT_TRIES: Final = 5

APPEND_SECONDS: Final = metrics.histogram(
    "rookery_cluster_append_seconds", "How long an append to the cluster log took."
)

Listener = Callable[[EntryOutcome, Entry], None]


class IncarnationFenced(Conflict):
    """This incarnation is no longer valid: another process replaced it, or it was too slow."""


class _Dispute:
    """A writer whose state differs from ours, although ours matches the log."""

    __slots__ = ("_answer", "_seen")

    def __init__(self, seen: int) -> None:
        self._seen = seen
        self._answer: int | None = None

    def answer(self, number: int, entry: Entry) -> None:
        """Record the first entry of ours that lets the writer detect the difference."""
        if self._answer is None and entry.seen >= self._seen:
            self._answer = number

    def is_upheld(self, entry: Entry) -> bool:
        """Whether the writer continues although it has read our entry."""
        return self._answer is not None and entry.seen >= self._answer


class Replica:
    """The state as of the last entry applied here."""

    def __init__(
        self,
        cluster_log: ClusterLog,
        clock: Clock,
        load_snapshot: LoadSnapshot | None = None,
    ) -> None:
        """Start with an empty state; `open` brings it up to date.

        Args:
            cluster_log: the log to follow.
            clock: stamps the entries.
            load_snapshot: loads the newest snapshot, at start and after the log was trimmed. Its
                argument is the lowest entry that the snapshot must cover.
        """
        self.state = State()
        self.incarnation = self._sequence = 0
        self._log = cluster_log
        self._clock = clock
        self._queue: deque[Proposal] = deque()
        self._in_flight: dict[int, list[Proposal]] = {}
        self._appender: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._barrier: asyncio.Task[None] | None = None
        self._listeners: list[Listener] = []
        self._digests: dict[int, int] = {}
        self._load_snapshot = load_snapshot
        self._is_open = False
        self._disputes: dict[int, _Dispute] = {}
        self.failure: Exception | None = None
        """Why this replica has stopped permanently; None while it works."""
        self.log_bytes = 0
        """The size of the entries that were applied here, which a restart would have to read."""
        self.opened_at = 0
        """The entry of the snapshot that `open` started from: all later entries had to be read."""
        self._outage = Outage(log, "the cluster log")
        self.trouble = ""
        """Why the cluster log was last unreachable; empty while it is reachable."""
        self.when_jumped: Callable[[], None] = lambda: None
        """Called when a snapshot replaced the state: outcomes of entries in flight are unknown."""
        self.when_failed: Callable[[Exception], None] = lambda _: None
        """Called once if the replica stops; the process must exit."""
        # Called with events before they are proposed; it may propose events that they depend on.
        self.before_propose: Callable[[Sequence[Message]], None] = lambda _: None

    async def open(self, *, follow: bool = True) -> None:
        """Start from the newest snapshot, apply the log after it, then follow the log.

        Without `follow`, the replica advances only on `barrier` and with its own proposals.
        """
        found = await self._load_snapshot(0) if self._load_snapshot else None
        self._use(found or self.state)
        self.opened_at = self.state.applied
        await self._catch_up()
        self._is_open = True
        if follow:
            self._follower = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop following; pending proposals fail with `Unavailable`."""
        for task in (self._follower, self._appender, self._barrier):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._fail_all(Unavailable("the broker stops"))

    def listen(self, listener: Listener) -> None:
        """Register a listener that is called after every applied entry."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Remove a listener."""
        self._listeners = [one for one in self._listeners if one != listener]

    @property
    def waiting(self) -> int:
        """The number of proposals that are not in an entry yet."""
        return len(self._queue)

    def digest_at(self, number: int) -> int | None:
        """Return this process's digest after a recent entry; None if the entry is too old."""
        return self._digests.get(number)

    async def lag(self) -> int:
        """Return the number of log entries that are not applied here yet.

        Raises:
            Unavailable: the log is unreachable.
        """
        return max(0, await self._log.head() - self.state.applied)

    async def register(self, event: Message) -> int:
        """Join or rejoin the cluster; return the new incarnation."""
        self.incarnation = self._sequence = 0
        # Entries in flight belong to a dead incarnation: they are void, and not recognised as ours.
        self._fail_all(IncarnationFenced("this broker joins the cluster again"))
        number = await self._append_as_stranger([event])
        self.incarnation = number
        return number

    async def create_cluster(self, event: Message) -> None:
        """Write the log's first entry, if there is none."""
        await self._append_as_stranger([event])

    def propose(
        self, events: Sequence[Message], payload: Sequence[Buffer] = ()
    ) -> asyncio.Future[list[Outcome]]:
        """Put events into the next entry; the future returns their outcomes once it is applied.

        Positions of a `BatchesCommitted` without an object are positions in the payload given here.

        The future fails with IncarnationFenced, or with Unavailable if the outcome is unknown.

        Raises:
            ValueError: they do not fit into an entry; `propose_all` divides a list of events.
        """
        self.before_propose(events)
        proposal = Proposal(events, payload)
        if self.failure is not None:
            proposal.future.set_exception(self.failure)
            return proposal.future
        self._queue.append(proposal)
        if self._appender is None or self._appender.done():
            self._appender = asyncio.create_task(self._append_all())
        return proposal.future

    def propose_all(self, events: Sequence[Message]) -> asyncio.Future[list[Outcome]]:
        """Propose a list of any length, divided by size; the future returns all outcomes in order.

        Each part goes into one entry. The order is preserved, also relative to proposals made
        before and after this call. The list is NOT atomic: one part may count while another does
        not. If a part fails, the future fails with the first error once every part is settled.

        Raises:
            ValueError: a single event is larger than an entry; nothing was proposed.
        """
        return asyncio.ensure_future(_join([self.propose(part) for part in [*divide(events)]]))

    async def barrier(self) -> None:
        """Return when every entry that was in the log at the time of the call is applied.

        One request for the log's head serves all callers that arrived before it started.
        """
        running = self._barrier
        if running is not None and not running.done():
            # The running request may have read the head before this call: wait for the next one.
            await asyncio.wait([running])
        if self._barrier is None or self._barrier.done():
            self._barrier = asyncio.create_task(self._reach_head())
        await asyncio.shield(self._barrier)

    async def _reach_head(self) -> None:
        with self._stops_on_error():
            head = await self._log.head()
        if head > self.state.applied or self.failure is not None:
            await self._catch_up(head)

    # Reading and applying.

    async def _follow(self) -> None:
        while self.failure is None:
            try:
                head = await self._log.wait(self.state.applied)
                # Our own appends also wake this task; they are applied from memory.
                if head > self.state.applied:
                    await self._catch_up()
            except Unavailable as error:
                self.trouble = str(error)
                self._outage.fail(error)
                await asyncio.sleep(_RETRY_SECONDS[-1])
            except Exception as error:  # noqa: BLE001 (a task's root: the process must stop)
                self._stop(error)
                return

    async def _catch_up(self, until: int | None = None) -> None:
        """Read and apply to the end of the log, or up to a given entry.

        Any error except Unavailable stops the replica, whichever task encounters it.
        """
        async with self._reading:
            with self._stops_on_error():
                await self._read_on(until)

    async def _read_on(self, until: int | None) -> None:
        while until is None or self.state.applied < until:
            try:
                entries = await self._log.read(self.state.applied)
            except EntriesTrimmed as trimmed:
                await self._jump(trimmed)
                continue
            if not entries:
                return
            for number, data in entries:
                # Our own entries may have been applied from memory in the meantime.
                if number != self.state.applied + 1:
                    continue
                self.log_bytes += len(data)
                entry = read_entry(number, data)
                if self._differs(entry):
                    await self._look_into(number, entry)
                if number == self.state.applied + 1:
                    self._apply(number, entry, read_events(number, entry))

    @contextmanager
    def _stops_on_error(self) -> Iterator[None]:
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:
            self._stop(error)
            raise

    async def _jump(self, trimmed: EntriesTrimmed) -> None:
        """Continue from a snapshot: the log was trimmed beyond the last applied entry."""
        found = await self._load_snapshot(trimmed.floor) if self._load_snapshot else None
        if found is None or found.applied < trimmed.floor:
            raise Corrupt(f"{trimmed}, but there is none; run `rookery recover`")
        self._go_on_from(found)

    def _go_on_from(self, snapshot: State) -> None:
        self._use(snapshot)
        # The entry in flight keeps its sequence: see `_is_settled`.
        self._fail_all(Unavailable("this broker had fallen behind the cluster's log"))
        self.when_jumped()

    def _use(self, state: State) -> None:
        self.state = state
        self._digests = {state.applied: state.digest}

    def _apply(self, number: int, entry: Entry, events: list[Message]) -> None:
        applied = self.state.apply(number, entry, events)
        self._digests[number] = self.state.digest
        self._digests.pop(number - _DIGESTS, None)
        if entry.incarnation == self.incarnation and entry.incarnation:
            for dispute in self._disputes.values():
                dispute.answer(number, entry)
            self._settle(applied, entry)
        for listener in self._listeners:
            listener(applied, entry)

    # Digest comparison: docs/designs/0010-digests-and-upgrades.md explains why it is sufficient.

    def _differs(self, entry: Entry) -> bool:
        """Whether the entry's writer had a different state than ours after the same entry."""
        own = self._digests.get(entry.seen)
        if own is None or self.state.is_foreign(entry):
            return False
        if own == entry.digest:
            self._disputes.pop(entry.incarnation, None)
        return own != entry.digest

    async def _look_into(self, number: int, entry: Entry) -> None:
        """Find out which of the two states is wrong; stop if it is ours.

        The log decides: the state is recomputed from it. A writer whose state is wrong detects
        that in the same way and stops. A writer that continues after reading an entry of ours
        applies the log by different rules; then the younger of the two processes stops.

        Raises:
            Corrupt: this process must stop.
        """
        writer = entry.incarnation
        if (dispute := self._disputes.get(writer)) is None:
            # A replica that is opening has just computed its state from the log.
            if self._is_open:
                logged = await recompute(self._log, self._load_snapshot, entry.seen)
                if logged.applied > self.state.applied:
                    self._go_on_from(logged)
                    return
                if self._digests.get(logged.applied) != logged.digest:
                    raise Corrupt(
                        "the state of this process is not the one that the cluster log gives: "
                        f"entry {number} of incarnation {writer} shows it. Its memory was damaged, "
                        "or there is a fault in Rookery; start the process again, which reads the "
                        "log anew"
                    )
            log.error(
                "incarnation %d wrote entry %d with a state that is not the one that the cluster "
                "log gives after entry %d; that process has to be started again",
                writer, number, entry.seen,
            )  # fmt: skip
            if writer:  # else a process that registers: it is known by its next entry
                self._disputes[writer] = _Dispute(entry.seen)
        elif dispute.is_upheld(entry) and writer < self.incarnation:
            raise Corrupt(
                f"incarnation {writer}, which is older than this process, applies the cluster log "
                f"by other rules: their states differ after entry {entry.seen}. Start all brokers "
                "with the same release of Rookery"
            )

    def _settle(self, applied: EntryOutcome, entry: Entry) -> None:
        if applied.is_void and not self._is_alive:
            self._fail_all(IncarnationFenced("another process took this broker's place"))
            return
        proposals = self._in_flight.pop(entry.sequence, None)
        if proposals is None:
            return  # a second copy, or a proposal that was given up by a jump
        if applied.is_void:
            raise Corrupt(
                f"entry {applied.number} does not count although incarnation {self.incarnation} "
                f"is alive: it has sequence {entry.sequence} after "
                f"{self.state.brokers.sequences[self.incarnation]}"
            )
        outcomes = iter(applied.outcomes)
        for proposal in proposals:
            result = [next(outcomes) for _ in proposal.events]
            if not proposal.future.done():
                proposal.future.set_result(result)

    # Appending.

    async def _append_all(self) -> None:
        try:
            while self._queue:
                await self._append(take_next(self._queue))
        except IncarnationFenced as error:
            self._fail_all(error)
        except Exception as error:  # noqa: BLE001 (a task's root: the process must stop)
            self._stop(error)

    async def _append(self, proposals: list[Proposal]) -> None:
        if not self._is_alive:
            error = IncarnationFenced("this broker is not registered any more")
            for proposal in proposals:
                proposal.fail(error)
            raise error
        self._sequence += 1
        events, payload = merge(proposals)
        entry = self._entry(self.incarnation, self._sequence)
        data = write_entry(_writer(entry), events, payload)
        self._in_flight[entry.sequence] = proposals
        await self._push(data, entry, events)

    async def _push(self, data: bytes, entry: Entry, events: list[Message]) -> None:
        """Append until the entry is known to be in the log, then apply up to it."""
        attempt = 0
        while True:
            started = stopwatch()
            try:
                number = await self._log.append(data)
            except Unavailable as error:
                self._outage.fail(error)
                await self._wait_after(error, attempt)
                attempt += 1
                if await self._is_settled(entry):
                    return
                continue
            APPEND_SECONDS.observe(stopwatch() - started)
            self.trouble = ""
            self._outage.end()
            self.log_bytes += len(data)
            if number == self.state.applied + 1 and not self._reading.locked():
                with self._stops_on_error():
                    self._apply(number, entry, events)
            else:
                await self._reach(number)
            return

    async def _reach(self, number: int) -> None:
        """Apply up to an entry that is known to be in the log, retrying indefinitely."""
        attempt = 0
        while self.state.applied < number:
            try:
                await self._catch_up(number)
            except Unavailable as error:
                log.warning("an entry that was appended cannot be read yet: %s", error)
                await self._wait_after(error, attempt)
                attempt += 1

    async def _wait_after(self, error: Unavailable, attempt: int) -> None:
        """Wait before the next attempt; after a few attempts, report the error to the waiters."""
        self.trouble = str(error)
        await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
        if attempt + 1 >= _PATIENT_TRIES:
            self._tell_all(Unavailable(f"the cluster log is out of reach: {error}"))

    async def _is_settled(self, entry: Entry) -> bool:
        """Look for our own entry in the log after its append failed.

        The state decides, not the proposals in flight. A jump to a snapshot abandons the waiters,
        but the next entry must not be written before this one has counted; otherwise all later
        entries are void.

        Raises:
            IncarnationFenced: the entry has not counted and never will.
        """
        try:
            await self._catch_up()
        except Unavailable:
            return False
        last = self.state.brokers.sequences.get(entry.incarnation)
        if last is None and entry.incarnation == self.incarnation:
            raise IncarnationFenced("this broker is not registered any more")
        return last is None or last >= entry.sequence

    async def _append_as_stranger(self, events: list[Message]) -> int:
        """Append events before this process has an incarnation."""
        number = await self._log.append(write_entry(_writer(self._entry(0, 0)), events))
        await self._catch_up(number)
        return number

    def _entry(self, incarnation: int, sequence: int) -> Entry:
        return Entry(
            incarnation=incarnation,
            sequence=sequence,
            stamp_ms=self._clock.now_ms(),
            seen=self.state.applied,
            digest=self.state.digest,
            events=[],
            payload=b"",
            cluster=self.state.cluster_id,
        )

    @property
    def _is_alive(self) -> bool:
        return self.incarnation in self.state.brokers.sequences

    def _stop(self, error: Exception) -> None:
        if self.failure is not None:
            return
        log.error("the replica of the cluster's state stops: %s", error, exc_info=error)
        self.failure = error
        self._fail_all(error)
        self.when_failed(error)

    def _fail_all(self, error: Exception) -> None:
        self._tell_all(error)
        self._in_flight.clear()

    def _tell_all(self, error: Exception) -> None:
        """Drop queued proposals and fail those in flight, whose outcome is unknown."""
        waiting = [*self._queue, *(one for many in self._in_flight.values() for one in many)]
        self._queue.clear()
        for proposal in waiting:
            proposal.fail(error)


async def _join(parts: Sequence[asyncio.Future[list[Outcome]]]) -> list[Outcome]:
    """Return the outcomes of all parts, or raise the first error."""
    joined: list[Outcome] = []
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        joined += result
    return joined


def _writer(entry: Entry) -> EntryAuthor:
    return EntryAuthor(
        entry.incarnation,
        entry.sequence,
        entry.stamp_ms,
        entry.seen,
        entry.digest,
        entry.cluster,
    )
