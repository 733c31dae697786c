"""Writes compacted segments to the log in place of the rows that were read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rookery.cluster.events.logevents import RowsReplaced
from rookery.log.maintain.newobjects import CapturedRange, Publisher, segment
from rookery.log.settings import RewriteSettings


@dataclass(frozen=True, slots=True)
class Output:
    """Writes segments for one process."""

    publisher: Publisher
    settings: RewriteSettings

    async def publish(
        self, source: CapturedRange, cleaned_to: int, compacted_to: int
    ) -> int | None:
        """Replace a range by a segment; return its size, or None if the range had changed.

        Args:
            source: the records of the range that are kept.
            cleaned_to: the offset up to which the partition is compacted with this segment.
            compacted_to: the offset up to which it will be compacted.

        Raises:
            Unavailable: the store or the cluster log cannot be reached.
            Conflict: this process was expired, or another process has written under one of our
                keys.
        """
        publisher = self.publisher
        birth = publisher.birth()
        files, made = await asyncio.to_thread(
            segment, birth, source, publisher.namespace, self.settings, compacted_to
        )
        if not await publisher.write(birth.object_id, files, source.range):
            return None
        made.ranges[0].cleaned_to = cleaned_to
        replaced = RowsReplaced(object_id=birth.object_id, ranges=made.ranges)
        [outcome] = await publisher.replica.propose([replaced])
        if outcome.value == [True]:
            publisher.adopt(birth.object_id)
            return files.size
        await publisher.condemn_orphans()
        return None
