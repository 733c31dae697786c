"""Segments on their way into the log: named, written, and put in the place of the rows read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from rookery.clock import Clock
from rookery.cluster.events.log import (
    ObjectsCondemned,
    Replaced,
    SegmentsStaged,
    StagedSegment,
)
from rookery.errors import Conflict
from rookery.formats.segmentkeys import index_key, times_key
from rookery.log.assemble import Birth, Captured, segment
from rookery.log.objects import key_of
from rookery.log.plan import Range
from rookery.log.rewriter import Proposer
from rookery.log.settings import RewriteSettings
from rookery.store.port import Store


@dataclass(kw_only=True, slots=True)
class Output:
    """Writes segments for one process."""

    replica: Proposer
    store: Store
    clock: Clock
    next_id: Callable[[], int]
    namespace: str
    settings: RewriteSettings
    _orphans: set[int] = field(default_factory=set)

    async def publish(self, source: Captured, cleaned_to: int) -> int | None:
        """Write a segment in the place of a range; return its size, None if that had changed.

        Raises:
            Unavailable: the store or the cluster log is out of reach.
            Conflict: this process counts no longer, or a key is taken that nobody should have.
        """
        object_id = self.next_id()
        birth = Birth(object_id, self.clock.now_ms(), self.replica.state.applied)
        files, made = await asyncio.to_thread(segment, birth, source, self.namespace, self.settings)
        key = await self._stage(object_id, source.range)
        if key is None:
            return None
        try:
            # The segment comes last: whoever finds one finds what belongs to it, too.
            await self.store.create(index_key(key), [files.index])
            await self.store.create(times_key(key), [files.times])
            await self.store.create(key, files.parts)
        except Conflict:
            # It is not ours, so it is not for us to delete. The next try gets another name.
            self._orphans.discard(object_id)
            raise
        made.ranges[0].cleaned_to = cleaned_to
        [outcome] = await self.replica.propose([Replaced(object_id=object_id, ranges=made.ranges)])
        if outcome.value == [True]:
            self._orphans.discard(object_id)
            return files.size
        await self.condemn_orphans()
        return None

    async def condemn_orphans(self) -> None:
        """Give up objects of ours that no row names; one that a row does name stays."""
        if self._orphans:
            await self.replica.propose([ObjectsCondemned(object_ids=sorted(self._orphans))])
            self._orphans.clear()

    async def _stage(self, object_id: int, one: Range) -> str | None:
        """Have the segment's name settled; None if its topic is gone."""
        staged = StagedSegment(
            object_id=object_id,
            topic_id=one.topic_id,
            partition=one.partition,
            base_offset=one.base_offset,
        )
        self._orphans.add(object_id)
        await self.replica.propose([SegmentsStaged(segments=[staged])])
        if object_id in self.replica.state.objects.segments:
            return key_of(self.replica.state, self.namespace, object_id)
        self._orphans.discard(object_id)
        return None
