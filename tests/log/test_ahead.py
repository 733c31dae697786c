"""Concurrent sequential readers share the memory for read-ahead."""

from __future__ import annotations

from collections import Counter

from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.cluster.state.topics import Topic
from rookery.formats.keys import STORED, object_id
from rookery.log.read.cache import BlockCache
from rookery.log.read.opener import ReadAhead
from rookery.log.settings import CacheSettings

STEP = 10_000
READERS = 4
# Room for sixteen blocks that no reader has asked for yet.
SETTINGS = CacheSettings(
    max_bytes=64 * STEP, stored_block_bytes=STEP, probation_percent=50, ahead_blocks=16
)
FAR = 16


class World:
    """Partitions with one long row each, in an object of its own, and a cache before them."""

    def __init__(self) -> None:
        topic = Topic(b"t" * 16, "birds", 1)
        topic.grow(READERS, [1] * READERS)
        self.partitions: list[Partition] = list(topic.partitions)
        self.rows = [
            Row(0, 1000, object_id(3, STORED + number), 0, 100 * STEP, 1, RowKind.FINAL)
            for number in range(READERS)
        ]
        for partition, row in zip(self.partitions, self.rows, strict=True):
            partition.replace(range(0), [row])
            partition.next_offset = row.end_offset
        self.reads: Counter[int] = Counter()
        self.cache = BlockCache(self.read, SETTINGS)
        self.ahead = ReadAhead(self.cache, None)

    async def read(self, identity: int, position: int, size: int) -> bytes:
        self.reads[identity] += 1
        return bytes(size)

    async def go_on(self, reader: int, position: int) -> None:
        """Let a reader come to a position, after sequential reads."""
        self.ahead.read(self.partitions[reader], self.rows[reader], position, FAR)
        await self.cache.close()


async def test_single_reader_gets_the_whole_read_ahead_budget() -> None:
    world = World()
    await world.go_on(0, 0)
    assert world.reads == {world.rows[0].object_id: 16}


async def test_readers_share_the_read_ahead_budget() -> None:
    # Given readers of whom the first came early and had all the room
    world = World()
    for reader in range(READERS):
        await world.go_on(reader, 0)
    assert len(world.reads) == 1
    # When that one has read all of it, and all of them read on
    await world.cache.read(world.rows[0].object_id, 0, 16 * STEP)
    world.reads.clear()
    for reader, position in enumerate((16 * STEP, 0, 0, 0)):
        await world.go_on(reader, position)
    # Then each has the same part of the room
    assert world.reads == {row.object_id: 4 for row in world.rows}


async def test_more_readers_than_budget_use_all_of_it() -> None:
    # Given less room than readers
    world = World()
    world.cache._max_unasked = READERS - 1
    # When all of them read on
    for reader in range(READERS):
        await world.go_on(reader, 0)
    # Then the room is used up
    assert sum(world.reads.values()) == READERS - 1
