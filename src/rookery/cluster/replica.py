"""This process's copy of the state: it follows the log, applies it, and proposes entries.

One append is in flight at a time and carries everything that waits. An entry's outcome is known
when it is applied, never before; an answer of the log that gets lost is found again by reading,
since entries know their writer.

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

# Digests of so many entries are kept for comparing with what other writers had seen.
_DIGESTS: Final = 4096
_RETRY_SECONDS: Final = (0.01, 0.05, 0.2, 0.5, 1.0)
# After this many tries waiters get an error; the entry is tried on, since it may be in the log.
_PATIENT_TRIES: Final = 5

APPEND_SECONDS: Final = metrics.histogram(
    "rookery_cluster_append_seconds", "How long an append to the cluster log took."
)

Listener = Callable[[EntryOutcome, Entry], None]


class IncarnationFenced(Conflict):
    """This incarnation counts no longer: another process took its place, or it was too slow."""


class _Dispute:
    """A writer whose state differs from ours, although ours is the one that the log gives."""

    __slots__ = ("_answer", "_seen")

    def __init__(self, seen: int) -> None:
        self._seen = seen
        self._answer: int | None = None

    def answer(self, number: int, entry: Entry) -> None:
        """Note an entry of ours that shows the writer that it differs from us."""
        if self._answer is None and entry.seen >= self._seen:
            self._answer = number

    def is_upheld(self, entry: Entry) -> bool:
        """Whether the writer goes on although it has read our answer."""
        return self._answer is not None and entry.seen >= self._answer


class Replica:
    """The state as of the last entry applied here."""

    def __init__(
        self,
        cluster_log: ClusterLog,
        clock: Clock,
        load_snapshot: LoadSnapshot | None = None,
    ) -> None:
        """Begin with an empty state; `open` brings it up to date.

        Args:
            cluster_log: what is followed.
            clock: stamps the entries.
            load_snapshot: finds the newest snapshot, for a start and for catching up with a log
                that was trimmed: then it is told the entry that it must stand after, at least.
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
        """Why this replica has stopped for good; None while it works."""
        self.log_bytes = 0
        """Bytes of the entries that were applied here: what a restart would have to read."""
        self.opened_at = 0
        """The entry of the snapshot that `open` began with: all behind it had to be read."""
        self._outage = Outage(log, "the cluster log")
        self.trouble = ""
        """Why the cluster log was out of reach the last time; empty while it is not."""
        self.when_jumped: Callable[[], None] = lambda: None
        """Called when the state was replaced by a snapshot's: what was in flight is not known."""
        self.when_failed: Callable[[Exception], None] = lambda _: None
        """Called once if the replica has stopped; the process must end."""
        # Called with events before they are proposed; it may propose what they need.
        self.before_propose: Callable[[Sequence[Message]], None] = lambda _: None

    async def open(self, *, follow: bool = True) -> None:
        """Start from the newest snapshot, apply what the log has beyond it, then follow it.

        Who does not follow reads on by `barrier`, and with what it proposes itself.
        """
        found = await self._load_snapshot(0) if self._load_snapshot else None
        self._use(found or self.state)
        self.opened_at = self.state.applied
        await self._catch_up()
        self._is_open = True
        if follow:
            self._follower = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop following; what waits is told that it is not known."""
        for task in (self._follower, self._appender, self._barrier):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._fail_all(Unavailable("the broker stops"))

    def listen(self, listener: Listener) -> None:
        """Have a listener called after every entry that was applied."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Have it called no more."""
        self._listeners = [one for one in self._listeners if one != listener]

    @property
    def waiting(self) -> int:
        """How many proposals are not in an entry yet."""
        return len(self._queue)

    def digest_at(self, number: int) -> int | None:
        """Return this process's digest of the state after a recent entry; None if it is older."""
        return self._digests.get(number)

    async def lag(self) -> int:
        """Return how many entries of the log are not applied here yet.

        Raises:
            Unavailable: the log is out of reach.
        """
        return max(0, await self._log.head() - self.state.applied)

    async def register(self, event: Message) -> int:
        """Join the cluster, or join it again; return the new incarnation."""
        self.incarnation = self._sequence = 0
        # What is in flight is of a dead incarnation: void, and not known as ours when applied.
        self._fail_all(IncarnationFenced("this broker joins the cluster again"))
        number = await self._append_as_stranger([event])
        self.incarnation = number
        return number

    async def create_cluster(self, event: Message) -> None:
        """Write the log's first entry, if nobody has."""
        await self._append_as_stranger([event])

    def propose(
        self, events: Sequence[Message], payload: Sequence[Buffer] = ()
    ) -> asyncio.Future[list[Outcome]]:
        """Put events into the next entry; the future has their outcomes once it is applied.

        Positions of a `Committed` without object are positions in the payload given here.

        The future fails with Fenced if this incarnation counts no longer, and with Unavailable if
        it is not known what became of the entry.

        Raises:
            ValueError: no entry can hold them; `propose_all` divides a list of events.
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
        """Propose a list of any length, divided by bytes; the future has all outcomes in order.

        Each part goes into one entry. The order is kept, also against proposals made before and
        after this call. The list is NOT atomic: a part may count while another one does not. If
        one part fails, the future fails with the first error once every part is settled.

        Raises:
            ValueError: one event alone is larger than an entry; nothing was proposed.
        """
        return asyncio.ensure_future(_join([self.propose(part) for part in [*divide(events)]]))

    async def barrier(self) -> None:
        """Return when all is applied that was in the log when this was called.

        One look at the log's head serves all who came before it began.
        """
        running = self._barrier
        if running is not None and not running.done():
            # That one may have looked before we were called: wait for the next.
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
                # Our own appends wake us too; they are applied from memory.
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
        """Read and apply until there is no more, or up to an entry.

        Any error but Unavailable stops the replica, whichever task has met it.
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
                # Our own entries are applied from memory meanwhile.
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
        """Go on from a snapshot: the log was trimmed beyond what we have applied."""
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

    # Comparing digests: docs/designs/0011-digests-and-upgrades.md says why this is enough.

    def _differs(self, entry: Entry) -> bool:
        """Whether an entry's writer had another state than we had after the same entry."""
        own = self._digests.get(entry.seen)
        if own is None or self.state.is_foreign(entry):
            return False
        if own == entry.digest:
            self._disputes.pop(entry.incarnation, None)
        return own != entry.digest

    async def _look_into(self, number: int, entry: Entry) -> None:
        """Find out which of the two is wrong; stop if it is this process.

        The log decides: the state is computed from it anew. A writer that is wrong finds that out
        in the same way, and stops. One that goes on although it has read an entry of ours applies
        the log by other rules; the younger of the two processes stops then.

        Raises:
            Corrupt: this process must stop.
        """
        writer = entry.incarnation
        if (dispute := self._disputes.get(writer)) is None:
            # A replica that opens computes its state from the log anyway.
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
        """Apply up to an entry that is known to be in the log, however long that takes."""
        attempt = 0
        while self.state.applied < number:
            try:
                await self._catch_up(number)
            except Unavailable as error:
                log.warning("an entry that was appended cannot be read yet: %s", error)
                await self._wait_after(error, attempt)
                attempt += 1

    async def _wait_after(self, error: Unavailable, attempt: int) -> None:
        """Wait before the next try; after a few, waiters get the error while we go on."""
        self.trouble = str(error)
        await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
        if attempt + 1 >= _PATIENT_TRIES:
            self._tell_all(Unavailable(f"the cluster log is out of reach: {error}"))

    async def _is_settled(self, entry: Entry) -> bool:
        """Look for our own entry in the log, after its append failed.

        The state decides, not what is in flight: a jump by snapshot gives up waiters, but the next
        entry must not be written before this one has counted, or all that follow are void.

        Raises:
            Fenced: it has not counted, and will not.
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
        """Append what a process says before it has an incarnation."""
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
        """Give up what waits, and tell those in flight that it is not known what becomes of it."""
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
