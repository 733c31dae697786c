"""The reader on rewritten data: merged objects, segments, gaps, and their faults."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rookery.cluster.open import open_log
from rookery.cluster.state.partition import Row, RowKind
from rookery.errors import Corrupt, Unavailable
from rookery.formats.keys import index_key, times_key
from rookery.log.read.objects import RemovedObject
from rookery.log.read.reader import LogReader
from rookery.log.read.tail import Tail
from rookery.log.settings import CacheSettings
from rookery.records import batches, recordcodec
from tests.log.stored import KEY, StoredWorld, Watched, batch


async def test_merged_rows_are_served_unchanged() -> None:
    world = StoredWorld()
    some = [batch(0, 3, 10), batch(3, 1, 20), batch(4, 4, 30)]
    world.merged([some[:2], some[2:]], [4, 8])
    piece = await world.read(0)
    assert b"".join(piece.parts) == b"".join(some)
    assert await world.offsets(3) == [3, 4, 5, 6, 7]
    assert await world.offsets(6) == [4, 5, 6, 7]
    assert len(world.store.reads) == 1


async def test_final_bytes_are_not_copied() -> None:
    world = StoredWorld()
    world.merged([[batch(0, 2, 1000)]], [2])
    world.segment([batch(2, 2, 1000)], 4)
    parts = (await world.read(0)).parts
    assert len(parts) == 2
    held = [world.cache._blocks.get(key) for key in world.cache._blocks._probation]
    data = [block.data for block in held if block]
    assert all(isinstance(part, memoryview) and part.obj in data for part in parts)


@pytest.mark.parametrize("is_plain", [True, False])
async def test_a_segment_is_read_from_any_offset(is_plain: bool) -> None:
    world = StoredWorld()
    some = [batch(base, 4, 50) for base in range(0, 400, 4)]
    world.segment(some, 400, is_plain=is_plain, interval=20)
    for offset in range(400):
        first = offset - offset % 4
        offsets = await world.offsets(offset, 700)
        assert offsets == list(range(first, first + len(offsets)))
        assert len(offsets) >= 4
    assert await world.bytes(0, 1000) == b"".join(some)


async def test_reads_stay_near_the_requested_offset() -> None:
    world = StoredWorld(CacheSettings(stored_block_bytes=64 * 1024))
    some = [batch(base, 1, 10_000) for base in range(1000)]
    identity = world.segment(some, 1000)
    assert await world.offsets(700, 50_000) == list(range(700, 704))
    ranges = [(start, size) for key, start, size in world.store.reads if key == world.key(identity)]
    assert len(ranges) <= 3
    at = 700 * len(some[0])
    assert all(at - 130_000 <= start <= at + 100_000 for start, _ in ranges)


async def test_offset_in_a_gap_returns_the_next_batch() -> None:
    world = StoredWorld()
    some = [batch(base, 2, 40) for base in (10, 20, 30, 40)]
    world.merged([some[:2], some[2:]], [28, 50])
    world.segment([batch(60, 2, 40), batch(70, 2, 40)], 80, interval=1)
    world.segment([batch(90, 1, 40)], 100)
    world.partition.cleaned_to = 100
    starts = [10, 20, 30, 40, 60, 70, 90]
    for offset in range(90):
        first = next(base for base in starts if base + 1 >= offset)
        assert (await world.offsets(offset))[0] == first, offset
        # The same with little room: then a batch without records may lead on to the next row.
        world.forget()
        piece = await world.read(offset, 1)
        headers = batches.verify(b"".join(piece.parts))
        assert headers[0].base_offset == first or not headers[0].record_count
        assert piece.next_offset <= next(base for base in starts if base + 1 >= offset) + 2


async def test_gap_at_the_end_returns_an_empty_batch_or_the_next_row() -> None:
    world = StoredWorld()
    world.segment([batch(0, 2, 40)], 10)
    world.merged([[batch(10, 2, 40)]], [20])
    world.partition.cleaned_to = 20
    piece = await world.read(15)
    (header,) = batches.verify(b"".join(piece.parts))
    assert (header.base_offset, header.last_offset, header.record_count) == (15, 19, 0)
    assert piece.next_offset == 20
    # From the segment's end on the next row is read at once.
    assert await world.offsets(0) == [0, 1, 10, 11]
    assert await world.offsets(5) == [10, 11]


async def test_segment_without_batches_is_skipped() -> None:
    world = StoredWorld()
    world.segment([], 10)
    world.merged([[batch(10, 2, 40)]], [12])
    world.partition.cleaned_to = 10
    assert await world.offsets(3) == [10, 11]


async def test_gap_in_an_uncompacted_range_is_damage() -> None:
    world = StoredWorld()
    world.merged([[batch(0, 2, 40), batch(3, 2, 40)]], [5])
    assert await world.offsets(0) == [0, 1]
    with pytest.raises(Corrupt, match="offset 3 where 2 comes next"):
        await world.read(2)


async def test_a_batch_of_another_epoch_is_damage() -> None:
    world = StoredWorld()
    world.merged([[batch(0, 2, 40, epoch=4)]], [2])
    with pytest.raises(Corrupt, match="leader epoch 4"):
        await world.read(0)


async def test_rows_of_all_kinds_are_joined() -> None:
    world = StoredWorld()
    world.segment([batch(0, 2, 40), batch(2, 2, 40)], 4)
    world.segment([batch(4, 2, 40)], 6)
    world.merged([[batch(6, 2, 40)], [batch(8, 2, 40)]], [8, 10])
    sent = world.new_id()
    data = batch(0, 2, 40, epoch=77)
    world.store.objects[world.key(sent)] = b"head" + data
    world.add_row(Row(10, 12, sent, 4, len(data), 5, 0))
    assert await world.offsets(0) == list(range(12))
    assert await world.offsets(5) == list(range(4, 12))


async def flipped(world: StoredWorld, key: str, whole: bytes) -> None:
    """Flip every byte in turn: what is served is right, or nothing is."""
    clean = world.store.objects[key]
    for at in range(len(clean)):
        world.flip(key, at)
        world.forget()
        for offset in (0, 7, 14):
            try:
                piece = await world.read(offset, 300)
            except Corrupt:
                continue
            served = b"".join(piece.parts)
            headers = batches.verify(served)
            if headers[0].record_count:
                assert served in whole, (key, at, offset)
                assert headers[0].base_offset <= offset <= headers[0].last_offset, (at, offset)
            else:
                raise AssertionError(f"records at {offset} were taken for a gap ({at})")
        world.store.objects[key] = clean


@pytest.mark.parametrize("are_gone", [[times_key], [times_key, index_key]])
async def test_flipped_byte_is_not_served_without_index_and_times_files(
    are_gone: list[type[str]],
) -> None:
    world = StoredWorld()
    some = [batch(base, 3, 10) for base in range(0, 15, 3)]
    key = world.key(world.segment(some, 15, interval=6))
    for beside in are_gone:
        del world.store.objects[beside(key)]
    await flipped(world, key, b"".join(some))


async def test_flipped_byte_of_a_compacted_segment_is_not_served_without_its_times_file() -> None:
    world = StoredWorld()
    some = [batch(base, 3, 10) for base in range(0, 30, 9)]
    key = world.key(world.segment(some, 30, interval=6))
    world.partition.cleaned_to = 30
    del world.store.objects[times_key(key)]
    whole = b"".join(some)
    clean = world.store.objects[key]
    assert await world.bytes() == whole
    for at in range(len(clean)):
        world.flip(key, at)
        world.forget()
        try:
            served = await world.bytes()
        except Corrupt:
            pass
        else:
            assert served == whole, at
        world.store.objects[key] = clean


async def test_batches_before_damage_are_served() -> None:
    world = StoredWorld()
    some = [batch(base, 1, 1000) for base in range(50)]
    identity = world.segment(some, 50, interval=10)
    world.flip(world.key(identity), 32 + 25 * len(some[0]) + 3)
    assert await world.offsets(0) == list(range(20))
    assert await world.offsets(13) == list(range(13, 20))
    with pytest.raises(Corrupt, match=r"segment-0{20}\.kfs"):
        await world.read(22)
    assert await world.offsets(30) == list(range(30, 50))


async def test_damage_in_transit_is_not_cached() -> None:
    world = StoredWorld()
    key = world.key(world.segment([batch(0, 3, 100)], 3))
    clean = world.store.objects[key]
    world.flip(key, 60)
    with pytest.raises(Corrupt):
        await world.read(0)
    world.store.objects[key] = clean
    assert await world.offsets(0) == [0, 1, 2]


async def test_rows_replaced_during_a_read_are_read_as_planned() -> None:
    world = StoredWorld()
    some = [batch(base, 1, 1000) for base in range(40)]
    world.merged([some[:20], some[20:]], [20, 40])
    world.store.gate.clear()
    reading = asyncio.ensure_future(world.read(5))
    await world.store.has_begun.wait()
    world.partition.replace(range(2), [])
    world.partition.next_offset = 0
    world.segment(some, 40)
    world.store.gate.set()
    before = await reading
    after = await world.read(5)
    assert b"".join(before.parts) == b"".join(after.parts) == b"".join(some[5:])


async def test_a_missing_object_is_named() -> None:
    world = StoredWorld()
    merged = world.key(world.merged([[batch(0, 2, 40)]], [2]))
    segment = world.key(world.segment([batch(2, 2, 40)], 4))
    for key in list(world.store.objects):
        del world.store.objects[key]
    for offset, key in ((0, merged), (2, segment)):
        with pytest.raises(RemovedObject, match="run rookery fsck") as caught:
            await world.read(offset)
        assert key in str(caught.value)


async def test_segment_without_a_store_is_unreachable() -> None:
    world = StoredWorld()
    world.segment([batch(0, 2, 40)], 2)
    reader = LogReader(open_log("memory:"), world.cache, Tail())
    with pytest.raises(Unavailable, match="is in a store"):
        await reader.read(KEY, world.partition, 0, 1000)


async def test_batches_above_the_limit_are_not_served() -> None:
    world = StoredWorld()
    world.segment([batch(0, 2, 4000), batch(2, 2, 4000)], 4)
    nothing = await world.read(0, 100, whole_first=False)
    assert (nothing.parts, nothing.size, nothing.next_offset) == ([], 0, 0)
    assert await world.offsets(0, 100) == [0, 1]
    assert await world.offsets(2, 100) == [2, 3]


BLOCKS = CacheSettings(
    max_bytes=640_000, stored_block_bytes=10_000, probation_percent=50, ahead_blocks=8
)


async def test_one_read_continues_after_a_cached_block() -> None:
    world = StoredWorld(BLOCKS)
    some = [batch(base, 1, 900) for base in range(300)]
    world.segment(some, 300, interval=5)
    piece = await world.read(0, 45_000)
    assert b"".join(piece.parts) == b"".join(some[: piece.next_offset])
    assert 40_000 < piece.size <= 45_000


@pytest.mark.parametrize("at", [9, 10, 11, 25, 47])
async def test_continued_read_never_passes_damage(at: int) -> None:
    world = StoredWorld(BLOCKS)
    some = [batch(base, 1, 900) for base in range(50)]
    identity = world.segment(some, 50, interval=1)
    world.flip(world.key(identity), 32 + at * len(some[0]) + 500)
    assert await world.offsets(0) == list(range(at))
    with pytest.raises(Corrupt, match=r"segment-0{20}\.kfs"):
        await world.read(at)
    assert await world.offsets(at + 1) == list(range(at + 1, 50))


async def test_sequential_reader_gets_read_ahead() -> None:
    world = StoredWorld(BLOCKS)
    some = [batch(base, 1, 900) for base in range(300)]
    world.segment(some, 300, interval=5)
    offset, depths = 0, []
    while offset < 250:
        piece = await world.read(offset, 5000)
        offset = piece.next_offset
        depths.append(len(world.cache._loads))
        await world.cache.close()
    # Not at once, then more and more; a block was never read twice.
    assert depths[0] == 0
    assert depths[1] == 2
    assert 4 <= max(depths) <= 8
    assert world.cache.misses <= 2
    reads = [read for read in world.store.reads if read[0].endswith(".kfs")]
    assert len(set(reads)) == len(reads)


class Rounds(Watched):
    """A store in which every read takes one round, however many there are at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[asyncio.Future[None]] = []

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]
        return await super().read(key, start, size)

    async def run(self, work: Coroutine[Any, Any, bytes]) -> tuple[bytes, int]:
        """Do the work; return what comes of it, and the rounds it took."""
        task, rounds = asyncio.ensure_future(work), 0
        while not task.done():
            for _ in range(20):
                await asyncio.sleep(0)
            waiting, self.waiting = self.waiting, []
            rounds += bool(waiting)
            for each in waiting:
                each.set_result(None)
        return task.result(), rounds


WIDE = CacheSettings(
    max_bytes=6_400_000, stored_block_bytes=100_000, probation_percent=50, ahead_blocks=8
)


@pytest.mark.parametrize("kind", ["one segment", "segments", "merged"])
async def test_cold_scan_keeps_the_store_busy(kind: str) -> None:
    world = StoredWorld(WIDE, Rounds())
    assert isinstance(world.store, Rounds)
    some = [batch(base, 1, 9000) for base in range(1600)]
    if kind == "one segment":
        world.segment(some, 1600)
    for at in range(0, 1600, 200) if kind == "segments" else ():
        world.segment(some[at : at + 200], at + 200)
    for at in range(0, 1600, 200) if kind == "merged" else ():
        rows = range(at, at + 200, 10)
        world.merged([some[row : row + 10] for row in rows], [row + 10 for row in rows])
    data, rounds = await world.store.run(world.bytes(0, 100_000))
    assert data == b"".join(some)
    # With eight reads at once, no reader could do it in fewer rounds than an eighth of all blocks.
    least = len(data) / WIDE.stored_block_bytes / WIDE.ahead_blocks
    assert least <= rounds <= least / 0.7
    # Nor does one scan make anything hot.
    assert not world.cache._blocks.protected


async def test_read_ahead_stays_within_the_rows() -> None:
    world = StoredWorld(BLOCKS)
    some = [batch(base, 1, 900) for base in range(60)]
    keys = [
        world.key(world.segment(some[:20], 20, interval=5)),
        world.key(world.merged([some[20:30], some[30:40]], [30, 40])),
        world.key(world.segment(some[40:], 60, interval=5)),
    ]
    world.store.objects[keys[1]] += bytes(100_000)
    assert await world.bytes(0, 3000) == b"".join(some)
    await world.cache.close()
    for key in keys:
        ranges = [start for name, start, _ in world.store.reads if name == key]
        assert len(ranges) == len(set(ranges)) <= 3, key


async def test_next_object_is_prefetched_before_the_current_one_ends() -> None:
    world = StoredWorld(BLOCKS)
    some = [batch(base, 1, 900) for base in range(200)]
    world.segment(some[:100], 100, interval=5)
    following = world.key(world.segment(some[100:], 200))
    offset = 0
    while offset < 80:
        offset = (await world.read(offset, 5000)).next_offset
        await world.cache.close()
    await world.layouts.close()
    names = {name for name, _, _ in world.store.reads}
    assert {following, times_key(following)} <= names


async def test_tail_in_memory_is_read_before_the_store() -> None:
    world = StoredWorld()
    world.segment([batch(0, 1, 10)], 1)
    world.reader._tail.add(KEY, 0, 1, memoryview(batch(0, 1, 10)))
    assert await world.offsets(0) == [0]
    assert world.store.reads == []


async def test_final_rows_contain_their_timestamps() -> None:
    world = StoredWorld()
    world.merged([[batch(0, 2, 10, time_ms=77)]], [2])
    assert world.partition.row(0).kind == RowKind.FINAL
    piece = await world.read(0)
    assert [record.timestamp for record in recordcodec.read_all(b"".join(piece.parts))] == [77, 78]
