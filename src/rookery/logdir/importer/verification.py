"""Verifies an import: reads every batch back from the store and compares it with the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from rookery.errors import Corrupt
from rookery.log.read.objects import key_of
from rookery.log.read.runs import batches_of, expect_body
from rookery.logdir.importer.report import Progress
from rookery.logdir.importer.target import ImportTarget
from rookery.logdir.partition import PartitionLog
from rookery.records.batches import BatchHeader
from rookery.records.expectation import OffsetRule
from rookery.records.scan import corrupt

_STEP_BYTES: Final = 8 * 1024 * 1024


async def verify(
    target: ImportTarget, log: PartitionLog, topic_id: bytes, progress: Progress
) -> int:
    """Compare a partition with its import; return the number of equal batches.

    Raises:
        Corrupt: a batch differs or is missing; the text names its offset.
        Unavailable: the store cannot be reached.
    """
    partition = target.state.topics.partition(topic_id, log.name.partition)
    if partition is None:
        raise Corrupt(f"{log.name.text}: the partition is not in the cluster")
    # Retention may already be active: its limits apply where they were not enforced before.
    start = max(log.log_start, partition.log_start)
    disk = log.batches(start) if start < log.high_watermark else iter(())
    count = 0
    async for stored in _read_stored(target, log, topic_id):
        if stored.last_offset < start:
            continue
        local = await asyncio.to_thread(next, disk, None)
        if local is None or local.header[:13] != stored[:13]:
            wanted = local.header.base_offset if local else log.high_watermark
            raise Corrupt(
                f"{log.name.text}: offset {wanted} on the disk, but {stored.base_offset} in the "
                "store: they differ; delete the topic and import it again"
            )
        progress(stored.size, stored.record_count)
        count += 1
    missing = await asyncio.to_thread(next, disk, None)
    if missing is not None:
        raise Corrupt(f"{log.name.text}: offset {missing.header.base_offset} was not imported")
    return count


async def _read_stored(
    target: ImportTarget, log: PartitionLog, topic_id: bytes
) -> AsyncIterator[BatchHeader]:
    """Yield the batch headers of the imported segments, each checked."""
    partition = target.state.topics.partition(topic_id, log.name.partition)
    rows = (
        [partition.row(index) for index in range(len(partition.base_offsets))] if partition else []
    )
    for row in rows:
        if not row.is_segment or row.base_offset >= log.high_watermark:
            continue
        key = key_of(target.state, target.namespace, row.object_id)
        expected = expect_body(row, OffsetRule.SPARSE)
        async for scanned in batches_of(partial(target.store.read, key), expected, _STEP_BYTES):
            for header in scanned.headers:
                yield header
            if scanned.damage is not None:
                raise corrupt(scanned.damage, key)
