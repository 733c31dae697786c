"""Writes flushes as objects in a store: one object for each flush, for all partitions.

Names contain the incarnation and are never reused. A PUT whose response was lost therefore does no
harm: at worst it leaves an orphan. Each object also records the offsets that batches of earlier
objects were given, and the ends of transactions. Nothing else in the store records them (see
`formats.manifest`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rookery.clock import Clock
from rookery.cluster.entry import Entry
from rookery.cluster.events.logevents import ObjectsCondemned
from rookery.cluster.numbers import Numbers
from rookery.cluster.replica import Replica
from rookery.cluster.state.outcome import AppendOutcome, EntryOutcome
from rookery.cluster.state.state import State
from rookery.errors import ErrorCode
from rookery.formats.keys import object_key
from rookery.formats.manifest import (
    EarlierObject,
    Manifest,
    ManifestExtent,
    ManifestTopic,
    write_head,
)
from rookery.log.write.ends import TransactionEnds, UnrecordedEnd
from rookery.log.write.flushtarget import CheckedBatch
from rookery.log.write.journal import FlushPosition
from rookery.store.port import Store

log = logging.getLogger(__name__)

# Unrecorded offsets and ends get an object of their own after this long without a flush. On a busy
# broker the next flush carries them at no cost, and a quiet broker has time.
_QUIET_MS: Final = 5_000
# The number of objects that one event condemns.
_AT_ONCE: Final = 1000


class Uploads:
    """Writes the flushes of one incarnation."""

    journal = None

    def __init__(self, store: Store, replica: Replica, clock: Clock, numbers: Numbers) -> None:
        self._store = store
        self._replica = replica
        self._clock = clock
        self._numbers = numbers
        self._earlier: list[EarlierObject] = []
        self._ends = TransactionEnds()
        self._failed: list[int] = []
        self._unrecorded_ms = 0
        self.failure: str | None = None
        """Why the last upload failed; None while uploading works."""
        replica.listen(self._on_applied)

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Store batches as a new object; return their location in it.

        Raises:
            Unavailable: the store did not accept it; nothing references an object that may exist.
        """
        identity = self._numbers()
        earlier, self._earlier = self._earlier, []
        ends = self._ends.take()
        head = write_head(self._manifest(identity, batches, earlier, ends))
        parts = [batch.data for batch in batches]
        try:
            await self._store.create(object_key(identity), [head, *parts])
        except BaseException as error:
            self._earlier = earlier + self._earlier
            self._ends.give_back(ends)
            self._failed.append(identity)
            self.failure = str(error)
            raise
        self.failure = None
        return FlushPosition(identity, len(head), sum(map(len, parts)))

    def on_committed(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Record which offsets the batches of an object were given, for later objects."""
        if not identity:
            return  # they are stored in an entry and have no object
        bases = [
            -1
            if outcome.is_duplicate or outcome.error is not ErrorCode.NONE
            else outcome.base_offset
            for outcome in outcomes
        ]
        if not any(base >= 0 for base in bases):
            # No row references it. A snapshot contains its manifest's facts before it is deleted.
            self._failed.append(identity)
        times = [outcome.append_time_ms for outcome in outcomes]
        self._note_unrecorded()
        self._earlier.append(
            EarlierObject(object_id=identity, base_offsets=bases, append_times=times)
        )

    def on_uncertain(self, identity: int) -> None:
        """Give up an object whose commit failed; if the commit took effect, this has no effect."""
        if identity:
            self._failed.append(identity)

    async def maintain(self) -> None:
        """Condemn failed uploads, and write pending offsets if no other object will do so soon."""
        if failed := self._failed[:_AT_ONCE]:
            await self._replica.propose([ObjectsCondemned(object_ids=failed)])
            del self._failed[: len(failed)]  # only now: the log may be unreachable
        if self._clock.monotonic_ms() - self._unrecorded_ms >= _QUIET_MS:
            await self.flush_notes()

    async def flush_notes(self) -> None:
        """Write an object with offsets and ends that no object records yet, if there are any."""
        while self._has_unrecorded:
            written = await self.write([])
            # The sweeper deletes it as soon as a snapshot contains these facts, and not before.
            await self._replica.propose([ObjectsCondemned(object_ids=[written.object_id])])

    async def close(self) -> None:
        """Stop listening; unrecorded facts remain only in the cluster log."""
        self._replica.unlisten(self._on_applied)

    @property
    def _has_unrecorded(self) -> bool:
        return bool(self._earlier or self._ends)

    def _note_unrecorded(self) -> None:
        """Record the time of the first pending fact."""
        if not self._has_unrecorded:
            self._unrecorded_ms = self._clock.monotonic_ms()

    def _on_applied(self, applied: EntryOutcome, entry: Entry) -> None:
        """Keep the transaction ends of this incarnation; other brokers record their own."""
        if applied.ended and entry.incarnation == self._numbers.incarnation:
            self._note_unrecorded()
            for ended in applied.ended:
                self._ends.add(applied.number, ended)

    def _manifest(
        self,
        identity: int,
        batches: Sequence[CheckedBatch],
        earlier: list[EarlierObject],
        ends: list[UnrecordedEnd],
    ) -> Manifest:
        state = self._replica.state
        places: dict[bytes, int] = {}

        def number_of(topic_id: bytes) -> int:
            return places.setdefault(topic_id, len(places))

        extents = [_extent(number_of(batch.topic_id), batch) for batch in batches]
        messages = [end.message(number_of) for end in ends]
        return Manifest(
            object_id=identity,
            created_ms=self._clock.now_ms(),
            seen=state.applied,
            topics=[_topic(state, topic_id) for topic_id in places],
            extents=extents,
            earlier=earlier,
            ends=messages,
        )


def _topic(state: State, topic_id: bytes) -> ManifestTopic:
    topic = state.topics.by_id.get(topic_id)
    name = topic.name if topic is not None else ""
    partitions = len(topic.partitions) if topic is not None else 0
    return ManifestTopic(topic_id=topic_id, name=name, partitions=partitions)


def _extent(topic: int, batch: CheckedBatch) -> ManifestExtent:
    header = batch.header
    return ManifestExtent(
        topic=topic,
        partition=batch.partition,
        size=len(batch.data),
        kind=0,
        base_offset=-1,
        records=header.last_offset_delta + 1,
        attributes=header.attributes,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
