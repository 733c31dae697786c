"""Appends proposed events to the cluster log, one entry at a time.

A proposal is events that go into the same entry. At most one append is in flight, and it carries
all queued proposals. If the log's response to an append is lost, the entry is found by reading,
because entries identify their writer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from rookery import metrics
from rookery.clock import Clock, stopwatch
from rookery.cluster.entry import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_PAYLOAD_BYTES,
    Entry,
    EntryAuthor,
    extents_of,
    size_of,
    write_entry,
)
from rookery.cluster.events.logevents import BatchesCommitted
from rookery.cluster.follower import LogFollower
from rookery.cluster.state.state import EntryOutcome, Outcome
from rookery.errors import Conflict, Corrupt, Unavailable
from rookery.wire.buffer import Buffer
from rookery.wire.message import Message

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = (0.01, 0.05, 0.2, 0.5, 1.0)
# After this many attempts the waiters get an error. The append is still retried, because the entry
# may be in the log.
_PATIENT_TRIES: Final = 5

APPEND_SECONDS: Final = metrics.histogram(
    "rookery_cluster_append_seconds", "How long an append to the cluster log took."
)


class IncarnationFenced(Conflict):
    """This incarnation is no longer valid: another process replaced it, or it was too slow."""


class Proposal:
    """Events that go into the same entry, and the future that receives their outcomes.

    Raises:
        ValueError: they do not fit into an entry.
    """

    __slots__ = ("event_bytes", "events", "extents", "future", "payload", "payload_bytes")

    def __init__(self, events: Sequence[Message], payload: Sequence[Buffer] = ()) -> None:
        self.events = events
        self.payload = payload
        self.payload_bytes = sum(map(len, payload))
        self.extents = sum(map(extents_of, events))
        self.event_bytes = sum(map(size_of, events))
        if self.event_bytes > MAX_EVENT_BYTES or self.payload_bytes > MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"{self.event_bytes} bytes of events and {self.payload_bytes} of payload "
                "do not fit into an entry; propose them in parts"
            )
        self.future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        """Report an error, unless the future is already done or cancelled."""
        if not self.future.done():
            self.future.set_exception(error)


def take_next(queue: deque[Proposal]) -> list[Proposal]:
    """Take proposals from the front of a queue, as many as one entry holds and at least one."""
    taken = [queue.popleft()]
    extents, payload = taken[0].extents, taken[0].payload_bytes
    size = taken[0].event_bytes
    while queue:
        extents += queue[0].extents
        payload += queue[0].payload_bytes
        size += queue[0].event_bytes
        if extents > MAX_EVENTS or payload > MAX_PAYLOAD_BYTES or size > MAX_EVENT_BYTES:
            break
        taken.append(queue.popleft())
    return taken


def merge(proposals: Sequence[Proposal]) -> tuple[list[Message], list[Buffer]]:
    """Concatenate events and payloads, adjusting positions in the payload."""
    events: list[Message] = []
    payload: list[Buffer] = []
    size = 0
    for proposal in proposals:
        if size and proposal.payload:
            for event in proposal.events:
                if isinstance(event, BatchesCommitted) and not event.object_id:
                    for extent in event.extents:
                        extent.position += size
        events += proposal.events
        payload += proposal.payload
        size += proposal.payload_bytes
    return events, payload


class EntryAppender:
    """The proposals of this process on their way into entries, and from entries to outcomes."""

    def __init__(self, follower: LogFollower, clock: Clock) -> None:
        """Start without an incarnation; `register` obtains one.

        Args:
            follower: has the log and the state; it applies the entries.
            clock: stamps the entries.
        """
        self._follower = follower
        self._clock = clock
        self._sequence = 0
        self._queue: deque[Proposal] = deque()
        self._in_flight: dict[int, list[Proposal]] = {}
        self._task: asyncio.Task[None] | None = None
        self.began_ms = clock.monotonic_ms()
        """When the last entry was made, on the monotonic clock; its append may have taken long."""
        follower.when_own_applied = self._settle

    @property
    def waiting(self) -> int:
        """The number of proposals that are not in an entry yet."""
        return len(self._queue)

    def add(self, proposal: Proposal) -> None:
        """Put a proposal into the next entry that has room for it."""
        self._queue.append(proposal)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._append_all())

    async def close(self) -> None:
        """Stop appending; the proposals remain unsettled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def register(self, event: Message) -> int:
        """Join or rejoin the cluster; return the new incarnation."""
        self._follower.incarnation = 0
        self._sequence = 0
        # Entries in flight belong to a dead incarnation: they are void, and not recognised as ours.
        self.fail_all(IncarnationFenced("this broker joins the cluster again"))
        number = await self.append_as_stranger([event])
        self._follower.incarnation = number
        return number

    async def append_as_stranger(self, events: list[Message]) -> int:
        """Append events before this process has an incarnation; return the entry's number."""
        author = _author(self._entry(0, 0))
        number = await self._follower.log.append(write_entry(author, events))
        await self._follower.catch_up(number)
        return number

    def fail_all(self, error: Exception) -> None:
        """Fail all proposals, and abandon those in flight."""
        self._tell_all(error)
        self._in_flight.clear()

    def _tell_all(self, error: Exception) -> None:
        """Drop queued proposals and fail those in flight, whose outcome is unknown."""
        waiting = [
            *self._queue,
            *(proposal for many in self._in_flight.values() for proposal in many),
        ]
        self._queue.clear()
        for proposal in waiting:
            proposal.fail(error)

    def _settle(self, applied: EntryOutcome, entry: Entry) -> None:
        """Give the outcomes of an entry of ours to its proposals."""
        if applied.is_void and not self._is_alive:
            self.fail_all(IncarnationFenced("another process took this broker's place"))
            return
        proposals = self._in_flight.pop(entry.sequence, None)
        if proposals is None:
            return  # a second copy, or a proposal that was given up by a jump
        if applied.is_void:
            sequences = self._follower.state.brokers.sequences
            raise Corrupt(
                f"entry {applied.number} does not count although incarnation {entry.incarnation} "
                f"is alive: it has sequence {entry.sequence} after {sequences[entry.incarnation]}"
            )
        outcomes = iter(applied.outcomes)
        for proposal in proposals:
            result = [next(outcomes) for _ in proposal.events]
            if not proposal.future.done():
                proposal.future.set_result(result)

    async def _append_all(self) -> None:
        try:
            while self._queue:
                await self._append(take_next(self._queue))
        except IncarnationFenced as error:
            self.fail_all(error)
        except Exception as error:  # noqa: BLE001 (a task's root: the process must stop)
            self._follower.stop(error)

    async def _append(self, proposals: list[Proposal]) -> None:
        if not self._is_alive:
            error = IncarnationFenced("this process is no longer registered")
            for proposal in proposals:
                proposal.fail(error)
            raise error
        self._sequence += 1
        events, payload = merge(proposals)
        entry = self._entry(self._follower.incarnation, self._sequence)
        data = write_entry(_author(entry), events, payload)
        self._in_flight[entry.sequence] = proposals
        await self._push(data, entry, events)

    async def _push(self, data: bytes, entry: Entry, events: list[Message]) -> None:
        """Append until the entry is known to be in the log, then apply up to it."""
        follower = self._follower
        attempt = 0
        while True:
            started = stopwatch()
            try:
                number = await follower.log.append(data)
            except Unavailable as error:
                follower.outage.fail(error)
                await self._wait_after(error, attempt)
                attempt += 1
                if await self._is_settled(entry):
                    return
                continue
            APPEND_SECONDS.observe(stopwatch() - started)
            follower.trouble = ""
            follower.outage.end()
            follower.log_bytes += len(data)
            if not follower.apply_own(number, entry, events):
                await self._reach(number)
            return

    async def _reach(self, number: int) -> None:
        """Apply up to an entry that is known to be in the log, retrying indefinitely."""
        attempt = 0
        while self._follower.state.applied < number:
            try:
                await self._follower.catch_up(number)
            except Unavailable as error:
                log.warning("an entry that was appended cannot be read yet: %s", error)
                await self._wait_after(error, attempt)
                attempt += 1

    async def _wait_after(self, error: Unavailable, attempt: int) -> None:
        """Wait before the next attempt; after a few attempts, report the error to the waiters."""
        self._follower.trouble = str(error)
        await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
        if attempt + 1 >= _PATIENT_TRIES:
            self._tell_all(Unavailable(f"the cluster log cannot be reached: {error}"))

    async def _is_settled(self, entry: Entry) -> bool:
        """Look for our own entry in the log after its append failed.

        The state decides, not the proposals in flight. A jump to a snapshot abandons the waiters,
        but the next entry must not be written before this one has counted; otherwise all later
        entries are void.

        Raises:
            IncarnationFenced: the entry has not counted and never will.
        """
        try:
            await self._follower.catch_up()
        except Unavailable:
            return False
        last = self._follower.state.brokers.sequences.get(entry.incarnation)
        if last is None and entry.incarnation == self._follower.incarnation:
            raise IncarnationFenced("this process is no longer registered")
        return last is None or last >= entry.sequence

    def _entry(self, incarnation: int, sequence: int) -> Entry:
        state = self._follower.state
        self.began_ms = self._clock.monotonic_ms()
        return Entry(
            incarnation=incarnation,
            sequence=sequence,
            stamp_ms=self._clock.now_ms(),
            seen=state.applied,
            digest=state.digest,
            events=[],
            payload=b"",
            cluster=state.cluster_id,
        )

    @property
    def _is_alive(self) -> bool:
        return self._follower.incarnation in self._follower.state.brokers.sequences


def _author(entry: Entry) -> EntryAuthor:
    return EntryAuthor(
        entry.incarnation,
        entry.sequence,
        entry.stamp_ms,
        entry.seen,
        entry.digest,
        entry.cluster,
    )
