"""Layouts of segments: bounded, read once, and derived if the index files are missing."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rookery.cluster.state.partition import Row
from rookery.errors import Corrupt
from rookery.formats.keys import index_key, times_key
from rookery.formats.layout import SegmentLayout
from rookery.formats.segment import Index, IndexEntry
from rookery.log.read import segmentindex, segmentwalk
from rookery.log.read.objects import RemovedObject
from rookery.log.read.segmentindex import Layouts
from tests.log.stored import StoredWorld, batch

BESIDE = (times_key, index_key)


def world_of(count: int = 40) -> tuple[StoredWorld, str, Row]:
    world = StoredWorld()
    some = [batch(base, 2, 100, time_ms=base) for base in range(0, count, 2)]
    identity = world.segment(some, count, interval=4)
    return world, world.key(identity), world.partition.row(0)


def blocks(layout: SegmentLayout) -> list[tuple[int, ...]]:
    return [block[:3] for block in layout.blocks]


async def test_concurrent_readers_share_one_fetch() -> None:
    world, key, row = world_of()
    layouts = await asyncio.gather(*(world.layouts.get(row) for _ in range(5)))
    assert all(layout is layouts[0] for layout in layouts)
    assert await world.layouts.get(row) is layouts[0]
    assert [name for name, _, _ in world.store.reads] == [times_key(key)]


async def test_cancelled_reader_does_not_cancel_the_fetch_for_others() -> None:
    world, _, row = world_of()
    world.store.gate.clear()
    reader, other = (asyncio.ensure_future(world.layouts.get(row)) for _ in range(2))
    await world.store.has_begun.wait()
    reader.cancel()
    world.store.gate.set()
    assert (await other).blocks
    assert reader.cancelled()
    assert len(world.store.reads) == 1


async def test_memory_is_bounded() -> None:
    world = StoredWorld()
    for base in range(0, 60, 4):
        world.segment([batch(base, 2, 10), batch(base + 2, 2, 10)], base + 4, interval=1)
    rows = [world.partition.row(index) for index in range(15)]
    each = 3 * segmentindex._BLOCK_COST
    layouts = Layouts(world.places, world.cache.read, max_bytes=4 * each)
    for row in rows:
        await layouts.get(row)
        assert layouts.held_bytes <= 4 * each
    reads = len(world.store.reads)
    for row in rows[-4:]:
        await layouts.get(row)
    assert len(world.store.reads) == reads
    await layouts.get(rows[0])
    assert len(world.store.reads) == reads + 1


async def test_newest_layout_is_cached_whatever_its_size() -> None:
    world, _, row = world_of()
    layouts = Layouts(world.places, world.cache.read, max_bytes=1)
    assert await layouts.get(row) is await layouts.get(row)


@pytest.mark.parametrize("is_damaged", [True, False])
@pytest.mark.parametrize("count", [1, 2])
async def test_reads_continue_without_index_and_times_files(
    count: int, is_damaged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world, key, row = world_of()
    expected = blocks(await world.layouts.get(row))
    world.forget()
    for beside in BESIDE[:count]:
        if is_damaged:
            world.flip(beside(key), 9)
        else:
            del world.store.objects[beside(key)]
    before = [segmentindex._FAILED.labels(name).value for name in ("times", "index")]
    with caplog.at_level(logging.WARNING):
        layout = await world.layouts.get(row)
    after = [segmentindex._FAILED.labels(name).value for name in ("times", "index")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, count - 1]
    assert times_key(key) in caplog.text
    # A walk makes entries of its own, which need not lie where the index has them.
    assert blocks(layout) == expected if count == 1 else layout.find(20, 1) is not None
    assert layout.blocks[0].offset == 0
    assert sum(block.size for block in layout.blocks) == row.size - 48


async def test_walk_of_a_segment_gives_the_layout_of_its_companion_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segmentwalk, "_STEP_BYTES", 700)
    world = StoredWorld()
    some = [batch(0, 3, 100, time_ms=9), batch(3, 1, 5000, time_ms=4), batch(9, 150, 10, time_ms=2)]
    key = world.key(world.segment([*some, batch(200, 1, 1)], 300))
    row = world.partition.row(0)
    by_times = await world.layouts.get(row)
    for beside in BESIDE:
        del world.store.objects[beside(key)]
    world.forget()
    assert list((await world.layouts.get(row)).blocks) == list(by_times.blocks)


async def test_walk_ends_at_the_damage() -> None:
    world, key, row = world_of()
    for beside in BESIDE:
        del world.store.objects[beside(key)]
    length = len(batch(0, 2, 100))
    world.flip(key, 32 + 10 * length + 9)  # the length of a batch
    layout = await world.layouts.get(row)
    assert all(block.crc is None for block in layout.blocks)
    assert layout.blocks[-1].offset == 20
    assert await world.offsets(0) == list(range(20))
    with pytest.raises(Corrupt):
        await world.read(20)


async def test_index_that_is_too_sparse_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segmentindex, "_MAX_BLOCK_BYTES", 3000)
    world, key, row = world_of()
    del world.store.objects[times_key(key)]
    world.store.objects[index_key(key)] = Index(100, [IndexEntry(0, 32)]).pack()
    layout = await world.layouts.get(row)
    assert layout.blocks[0].crc is not None, "it was walked"


async def test_times_file_of_another_segment_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    world, key, row = world_of()
    other = world.key(world.segment([batch(40, 2, 100)], 42))
    world.store.objects[times_key(key)] = world.store.objects[times_key(other)]
    assert (await world.layouts.get(row)).header.base_offset == 0
    assert "copied or renamed" in caplog.text


async def test_missing_segment_is_reported_and_looked_up_again() -> None:
    world, key, row = world_of()
    kept = dict(world.store.objects)
    world.store.objects.clear()
    with pytest.raises(RemovedObject) as caught:
        await world.layouts.get(row)
    assert caught.value.key == key
    world.store.objects.update(kept)
    assert (await world.layouts.get(row)).blocks


async def test_wanted_layout_is_prefetched_once() -> None:
    world, _, row = world_of()
    world.layouts.want(row)
    world.layouts.want(row)
    await world.layouts.close()
    assert len(world.store.reads) == 1
    await world.layouts.get(row)
    world.layouts.want(row)
    await world.layouts.close()
    assert len(world.store.reads) == 1


async def test_failed_prefetch_fails_no_reader() -> None:
    world, _, row = world_of()
    world.store.objects.clear()
    world.layouts.want(row)
    await world.layouts.close()
    with pytest.raises(RemovedObject):
        await world.layouts.get(row)
