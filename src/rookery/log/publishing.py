"""New objects on their way into the log: whose names are settled, and which became orphans.

Both who rewrite (merges, segments) and who compact write objects that an event may refuse: someone
was faster, or the topic is gone. Until an event has counted, an object is an orphan of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rookery.clock import Clock
from rookery.cluster.events.log import ObjectsCondemned, SegmentsStaged, StagedSegment
from rookery.cluster.state.state import Outcome, State
from rookery.errors import Conflict
from rookery.formats.segmentkeys import index_key, times_key
from rookery.formats.segmentwriter import SegmentFiles
from rookery.log.assemble import Birth
from rookery.log.objects import key_of
from rookery.log.plan import Range
from rookery.store.port import Store
from rookery.wire.message import Message

_AT_ONCE: Final = 1000


class Proposer(Protocol):
    """What is needed of a replica."""

    @property
    def state(self) -> State:
        """The state as of the last entry applied."""

    def propose(self, events: Sequence[Message]) -> asyncio.Future[list[Outcome]]:
        """Put events into the next entry."""

    async def barrier(self) -> None:
        """Return when all is applied that was in the log before."""


@dataclass(kw_only=True, slots=True)
class Publisher:
    """Names and writes the objects of one process, and gives up those that did not count."""

    replica: Proposer
    store: Store
    clock: Clock
    next_id: Callable[[], int]
    """Returns the id of a new object in the store, of this process's incarnation."""
    namespace: str
    """Begins the keys of segments."""
    _orphans: set[int] = field(default_factory=set)

    def birth(self) -> Birth:
        """Return what a new object says of itself."""
        return Birth(self.next_id(), self.clock.now_ms(), self.replica.state.applied)

    async def write(self, object_id: int, files: SegmentFiles, one: Range) -> bool:
        """Write a segment under a name that is settled first; return False if its topic is gone.

        Raises:
            Unavailable: the store or the cluster log is out of reach.
            Conflict: a key is taken that nobody should have.
        """
        key = await self._stage(object_id, one)
        if key is None:
            return False
        try:
            # The segment comes last: whoever finds one finds what belongs to it, too.
            await self.store.create(index_key(key), [files.index])
            await self.store.create(times_key(key), [files.times])
            await self.store.create(key, files.parts)
        except Conflict:
            # It is not ours, so it is not for us to delete. The next try gets another name.
            self.adopt(object_id)
            raise
        return True

    def doubt(self, object_id: int) -> None:
        """Take an object for an orphan until it is known to count."""
        self._orphans.add(object_id)

    def adopt(self, object_id: int) -> None:
        """Take an object for an orphan no longer."""
        self._orphans.discard(object_id)

    async def condemn_orphans(self) -> None:
        """Give up objects of ours that no row names; one that a row does name stays."""
        while some := sorted(self._orphans)[:_AT_ONCE]:
            await self.replica.propose([ObjectsCondemned(object_ids=some)])
            self._orphans.difference_update(some)

    async def _stage(self, object_id: int, one: Range) -> str | None:
        """Have a segment's name settled; None if its topic is gone.

        From here on the state knows the names, so whatever a crash leaves is found by them.
        """
        staged = StagedSegment(
            object_id=object_id,
            topic_id=one.topic_id,
            partition=one.partition,
            base_offset=one.base_offset,
        )
        self.doubt(object_id)
        await self.replica.propose([SegmentsStaged(segments=[staged])])
        if object_id in self.replica.state.objects.segments:
            return key_of(self.replica.state, self.namespace, object_id)
        self.adopt(object_id)
        return None
