"""Reads by a broker that lags: moved bytes are found, and lost ones are reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.logevents import (
    BatchesCommitted,
    Extent,
    ReplacedRange,
    RowPiece,
    RowsReplaced,
)
from rookery.cluster.events.topicevents import LogStartMoved, TopicCreated, TopicDeleted
from rookery.cluster.open import open_log
from rookery.cluster.port import ClusterLog
from rookery.cluster.replica import Replica
from rookery.cluster.state.partition import RowKind
from rookery.errors import Corrupt, ErrorCode
from rookery.formats.keys import STORED, object_id, object_key
from rookery.log.read import reader
from rookery.log.read.cache import BlockCache
from rookery.log.read.objects import Places
from rookery.log.read.reader import LogReader, SureReader
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Tail, TailSlice
from rookery.records import recordcodec
from rookery.store.backends.memory import MemoryStore
from rookery.testing.clock import ManualClock
from tests.log.stored import KEY, TOPIC, batch


class Behind:
    """Two processes: one writes and moves, the other reads and does not know of it."""

    def __init__(self, log: ClusterLog, writer: Replica, replica: Replica) -> None:
        self.store = MemoryStore({})
        self.writer, self.replica = writer, replica
        self.first, self.second = (object_id(writer.incarnation, STORED + at) for at in (0, 1))
        places = Places(None, self.store, lambda: replica.state, "ns")
        self.cache = cache = BlockCache(places.read, name=places.name)
        layouts = Layouts(places, cache.read)
        reader = LogReader(log, cache, Tail(), layouts=layouts)
        self.reader = SureReader(reader, replica)
        self.data = batch(0, 3, 100)

    async def write(self) -> None:
        await self.store.create(object_key(self.first), [self.data])
        extent = Extent(
            topic_id=TOPIC, partition=0, position=0, size=len(self.data), records=3, attributes=0,
            max_timestamp=5, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        )  # fmt: skip
        await self.writer.propose([BatchesCommitted(object_id=self.first, extents=[extent])])
        await self.replica.barrier()

    async def move(self) -> None:
        """Rewrite the row and delete where it was."""
        await self.store.create(object_key(self.second), [b"head", self.data])
        partition = self.writer.state.topics.by_name["birds"].partitions[0]
        piece = RowPiece(base_offset=0, position=4, size=len(self.data), max_timestamp=5)
        replaced = ReplacedRange(
            topic_id=TOPIC, partition=0, base_offset=0, end_offset=3,
            fingerprint=partition.fingerprint(range(1)), kind=RowKind.FINAL, cleaned_to=-1,
            pieces=[piece],
        )  # fmt: skip
        await self.writer.propose([RowsReplaced(object_id=self.second, ranges=[replaced])])
        assert partition.row(0).object_id == self.second
        await self.store.delete(object_key(self.first))

    async def read(self) -> TailSlice | None:
        partition = self.replica.state.topics.by_name["birds"].partitions[0]
        return await self.reader.read(KEY, partition, 0, 1000)


@asynccontextmanager
async def two() -> AsyncIterator[Behind]:
    log = open_log("memory:")
    writer, replica = Replica(log, ManualClock()), Replica(log, ManualClock())
    await writer.open()
    await writer.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
    await writer.register(BrokerRegistered(process_id=TOPIC, node_id=1, host="h", port=1))
    topic = TopicCreated(
        topic_id=TOPIC, name="birds", partitions=1, replication_factor=1, configs=[]
    )
    await writer.propose([topic])
    await replica.open(follow=False)
    try:
        behind = Behind(log, writer, replica)
        await behind.write()
        yield behind
    finally:
        await writer.close()
        await replica.close()


async def test_moved_rows_are_found() -> None:
    async with two() as behind:
        before = await behind.read()
        await behind.move()
        # The cache still has what was deleted, as it may; another broker does not.
        behind.cache.drop(behind.first, 0, 1000)
        after = await behind.read()
        assert before is not None
        assert after is not None
        assert b"".join(before.parts) == b"".join(after.parts)
        offsets = [record.offset for record in recordcodec.read_all(b"".join(after.parts))]
        assert offsets == [0, 1, 2]


async def test_object_deleted_by_others_is_named() -> None:
    async with two() as behind:
        await behind.move()
        await behind.store.delete(object_key(behind.second))
        before = reader._LOST.labels("missing").value
        with pytest.raises(Corrupt) as caught:
            await behind.read()
        for part in ("topic birds", "partition 0", "offset 0", object_key(behind.second), "fsck"):
            assert part in str(caught.value)
        assert reader._LOST.labels("missing").value == before + 1


async def test_damaged_object_is_named() -> None:
    async with two() as behind:
        await behind.store.delete(object_key(behind.first))
        damaged = bytearray(behind.data)
        damaged[80] ^= 1
        await behind.store.create(object_key(behind.first), [damaged])
        before = reader._LOST.labels("damaged").value
        with pytest.raises(Corrupt, match=r"topic birds partition 0 offset 0: .*CRC"):
            await behind.read()
        assert reader._LOST.labels("damaged").value == before + 1


@pytest.mark.parametrize("is_topic", [True, False])
async def test_rows_no_longer_in_the_log_are_not_a_failure(is_topic: bool) -> None:
    async with two() as behind:
        moved = LogStartMoved(topic_id=TOPIC, partition=0, offset=3)
        event = TopicDeleted(topic_id=TOPIC) if is_topic else moved
        (outcome,) = await behind.writer.propose([event])
        assert outcome.error is ErrorCode.NONE
        await behind.store.delete(object_key(behind.first))
        assert await behind.read() is None
