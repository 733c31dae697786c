"""The reader: rows to bytes, checked and stamped, with few reads."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rookery.cluster.entry import EntryAuthor, write_entry
from rookery.cluster.open import open_log
from rookery.cluster.state.partition import BatchPosition, Partition
from rookery.errors import Corrupt
from rookery.log.read.reader import LogReader
from rookery.log.read.tail import Key, Tail, TailSlice
from rookery.records import batches, recordcodec
from rookery.records.recordcodec import Record, build

KEY: Key = (b"t" * 16, 3)


class Objects:
    """Objects in memory, cut into blocks as a cache does, that count what is read."""

    def __init__(self, block: int = 2**30) -> None:
        self.data: dict[int, bytearray] = {}
        self.block = block
        self.reads: list[tuple[int, int, int]] = []
        self.dropped: list[tuple[int, int, int]] = []

    async def views(self, object_id: int, position: int, size: int) -> list[memoryview]:
        self.reads.append((object_id, position, size))
        data = memoryview(bytes(self.data[object_id]))[: position + size]
        if len(data) < position + size:
            raise Corrupt("the object is too short")
        ends = range(position - position % self.block + self.block, position + size, self.block)
        edges = [position, *ends, position + size]
        return [data[a:b] for a, b in pairwise(edges)]

    def name(self, object_id: int) -> str:
        return f"file {object_id:03}"

    def want(self, object_id: int, position: int, size: int) -> None:
        raise AssertionError("the system reads ahead in journals")

    def drop(self, object_id: int, position: int, size: int) -> None:
        self.dropped.append((object_id, position, size))

    @property
    def ahead_bytes(self) -> int:
        return 0

    @property
    def all_ahead_bytes(self) -> int:
        return 0

    @property
    def stored_block_bytes(self) -> int:
        return self.block


class World:
    """A partition, its bytes, and a reader with nothing in memory."""

    def __init__(self, block: int = 2**30) -> None:
        self.objects = Objects(block)
        self.log = open_log("memory:")
        self.partition = Partition(3)
        self.partition.lead(1)
        self.reader = LogReader(self.log, self.objects, Tail())

    def write(self, object_id: int, count: int, size: int, *, append_time: int = -1) -> None:
        """Append a batch to an object, and to the partition."""
        data = build([Record(b"k", b"v" * size, (), 5) for _ in range(count)])
        store = self.objects.data.setdefault(object_id, bytearray())
        place = BatchPosition(object_id, len(store), len(data))
        store += data
        is_append_time = append_time >= 0
        self.partition.append(place, count, append_time, is_append_time=is_append_time)

    async def write_entry(self, count: int) -> None:
        """Append a batch that rides in an entry."""
        data = build([Record(b"k", b"v") for _ in range(count)])
        number = await self.log.append(write_entry(EntryAuthor(0, 0, 0, 0, 0), [], [data]))
        self.partition.append(BatchPosition(-number, 0, len(data)), count, 5, is_append_time=False)

    async def read(self, offset: int, max_bytes: int = 2**20, **options: bool) -> TailSlice:
        return await self.reader.read(KEY, self.partition, offset, max_bytes, **options)

    async def offsets(self, offset: int, max_bytes: int = 2**20) -> list[int]:
        piece = await self.read(offset, max_bytes)
        data = b"".join(piece.parts)
        assert len(data) == piece.size
        result = [record.offset for record in recordcodec.read_all(data)]
        assert piece.next_offset == (result[-1] + 1 if result else offset)
        return result


@pytest.mark.parametrize("block", [2**30, 1000])
@pytest.mark.parametrize("size", [10, 20_000])
async def test_batches_get_their_offsets(block: int, size: int) -> None:
    world = World(block)
    for count in (3, 1, 4):
        world.write(7, count, size)
    assert await world.offsets(0) == list(range(8))
    assert await world.offsets(2) == list(range(8))
    assert await world.offsets(3) == list(range(3, 8))
    assert await world.offsets(7) == list(range(4, 8))
    piece = await world.read(0)
    headers = batches.verify(b"".join(piece.parts))
    assert [header.partition_leader_epoch for header in headers] == [0, 0, 0]


async def test_adjacent_rows_are_read_in_one_request() -> None:
    world = World()
    for _ in range(50):
        world.write(7, 1, 100_000)
    assert len(world.partition.base_offsets) > 1
    assert len(await world.offsets(0, 50 * 2**20)) == 50
    assert len(world.objects.reads) == 1


async def test_sequential_reads_fetch_nothing_twice() -> None:
    world = World()
    for _ in range(100):
        world.write(7, 1, 30_000)
    offset, size = 0, 0
    while offset < 100:
        piece = await world.read(offset, 100_000)
        offset, size = piece.next_offset, size + piece.size
    assert size == len(world.objects.data[7])
    # Only what did not fit was read in vain.
    assert sum(read[2] for read in world.objects.reads) < 1.35 * size


async def test_a_first_batch_above_the_limit_is_read_whole() -> None:
    world = World()
    world.write(7, 1, 10)
    world.write(7, 1, 700_000)
    world.write(7, 1, 10)
    assert await world.offsets(1, 1) == [1]
    assert await world.offsets(0, 1) == [0]
    nothing = await world.read(1, 1000, whole_first=False)
    assert (nothing.size, nothing.next_offset) == (0, 1)


async def test_several_objects_are_joined() -> None:
    world = World()
    for object_id in (7, 9, 8, 7, 20, 21, 22):
        world.write(object_id, 2, 50)
    await world.write_entry(3)
    await world.write_entry(1)
    world.write(30, 1, 50)
    assert await world.offsets(0) == list(range(19))
    assert await world.offsets(15) == list(range(14, 19))
    assert await world.offsets(0, 300) == [0, 1]


async def test_append_time_replaces_the_time_of_the_producer() -> None:
    world = World()
    world.write(7, 2, 10, append_time=77)
    world.write(7, 2, 50_000, append_time=88)
    world.write(7, 1, 10)
    piece = await world.read(0)
    times = [record.timestamp for record in recordcodec.read_all(b"".join(piece.parts))]
    assert times == [77, 77, 88, 88, 5]


async def test_leader_epochs_are_those_of_each_batch() -> None:
    world = World()
    world.write(7, 2, 10)
    world.partition.lead(2)
    world.write(7, 2, 10)
    headers = batches.verify(b"".join((await world.read(0)).parts))
    assert [header.partition_leader_epoch for header in headers] == [0, 1]


async def test_reading_does_not_modify_the_bytes_on_disk() -> None:
    world = World()
    world.write(7, 2, 50_000)
    world.write(7, 2, 10)
    before = bytes(world.objects.data[7])
    await world.read(0)
    assert bytes(world.objects.data[7]) == before


@pytest.mark.parametrize("at", [0, 8, 20, 61, 5000])
async def test_a_flipped_byte_is_never_served(at: int) -> None:
    world = World()
    for _ in range(3):
        world.write(7, 2, 4000)
    size = len(world.objects.data[7]) // 3
    world.objects.data[7][size + at] ^= 0x40
    if at == 0:
        # The base offset on disk is the producer's, and is replaced.
        assert await world.offsets(0) == list(range(6))
        return
    # The rows before the damage are served, and so are those after it, if they can be found.
    assert await world.offsets(0) == [0, 1]
    with pytest.raises(Corrupt) as caught:
        await world.offsets(2)
    assert caught.value.object_id == 7
    assert world.reader.describe(caught.value) == f"{caught.value} (in file 007)"
    # It may have been damaged on the way into the cache.
    assert world.objects.dropped
    if at != 8:  # where the batch ends
        assert await world.offsets(4) == [4, 5]


async def test_damaged_count_before_the_wanted_batch_does_not_shift_offsets() -> None:
    world = World()
    for _ in range(10):
        world.write(7, 10, 4000)
    world.objects.data[7][26] ^= 2  # ten offsets become twelve
    # Not more is read than the first four batches: their counts alone do not tell.
    with pytest.raises(Corrupt, match="CRC"):
        await world.read(15, 170_000)
    # The whole row is read, and they do not lead to its end.
    with pytest.raises(Corrupt, match=r"byte 0, offset 0: .*CRC"):
        await world.read(15, 2**20)


async def test_bytes_of_another_position_are_not_served() -> None:
    world = World()
    world.write(7, 2, 100)
    # The batch is whole, but has more records than were committed.
    other = build([Record(b"k", b"v" * 96) for _ in range(2)] + [Record(None, b"")])
    world.objects.data[7][:] = other.ljust(len(world.objects.data[7]), b"\0")
    with pytest.raises(Corrupt):
        await world.read(0)


async def test_moved_rows_are_found() -> None:
    world = World()
    for _ in range(4):
        await world.write_entry(2)
    assert await world.offsets(2) == list(range(2, 8))
    rows = [world.partition.row(index) for index in range(len(world.partition.objects))]
    for row in rows:
        data = build([Record(b"k", b"v") for _ in range(2)])
        store = world.objects.data.setdefault(50, bytearray())
        span = world.partition.span(row.base_offset, row.end_offset)
        assert span is not None
        world.partition.replace(span, [row._replace(object_id=50, position=len(store))])
        store += data
    for offset in range(0, 8, 2):
        assert await world.offsets(offset) == list(range(offset, 8))
    assert world.objects.reads


async def test_tail_in_memory_is_read_first() -> None:
    world = World()
    world.write(7, 1, 10)
    data = bytearray(world.objects.data.pop(7))
    batches.stamp_into(data, 0, 0)
    world.reader._tail.add(KEY, 0, 1, memoryview(data))
    assert await world.offsets(0) == [0]
