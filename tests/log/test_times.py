"""Times to offsets, in rows, merged rows and segments."""

from __future__ import annotations

import pytest

from rookery.errors import Corrupt
from rookery.formats.keys import index_key, times_key
from rookery.log.read import times
from rookery.log.read.times import TimedRecord
from rookery.log.settings import CacheSettings
from rookery.records import batches
from tests.log.stored import KEY, StoredWorld, batch

SMALL = CacheSettings(stored_block_bytes=16 * 1024)


async def first_at(world: StoredWorld, time_ms: int) -> TimedRecord | None:
    return await times.first_at(world.reader, KEY, world.partition, time_ms)


async def highest(world: StoredWorld) -> TimedRecord | None:
    return await times.highest(world.reader, KEY, world.partition)


def long_segment(world: StoredWorld) -> str:
    """Times 0, 10, 20, …: two in a batch, whose times are one apart; 4000 records."""
    some = [batch(base, 2, 500, time_ms=base * 10) for base in range(0, 4000, 2)]
    return world.key(world.segment(some, 4000))


@pytest.mark.parametrize(
    ("time_ms", "offset"), [(-5, 0), (0, 0), (1, 1), (2, 2), (20_000, 2000), (39_981, 3999)]
)
async def test_a_time_is_found_in_a_segment(time_ms: int, offset: int) -> None:
    world = StoredWorld(SMALL)
    key = long_segment(world)
    record = await first_at(world, time_ms)
    assert record is not None
    assert record.offset == offset
    # A block of the index and its neighbours are read, not the segment.
    read = [start for name, start, _ in world.store.reads if name == key]
    assert len(read) <= 9 < len(world.store.objects[key]) // SMALL.stored_block_bytes / 10


async def test_time_after_all_records_is_not_found() -> None:
    world = StoredWorld(SMALL)
    key = long_segment(world)
    assert await first_at(world, 39_982) is None
    assert key not in [name for name, _, _ in world.store.reads]


@pytest.mark.parametrize("gone", [[times_key], [times_key, index_key]])
async def test_time_is_found_without_index_and_times_files(gone: list[type[str]]) -> None:
    world = StoredWorld(SMALL)
    key = long_segment(world)
    for beside in gone:
        del world.store.objects[beside(key)]
    assert await first_at(world, 20_001) == TimedRecord(2001, 20_001)
    assert await highest(world) == TimedRecord(3999, 39_981)


async def test_the_highest_time_of_a_segment_is_found() -> None:
    world = StoredWorld(SMALL)
    some = [batch(base, 1, 500, time_ms=9000 if base in {700, 900} else 5) for base in range(1000)]
    key = world.key(world.segment(some, 1000))
    assert await highest(world) == TimedRecord(700, 9000)
    assert len([1 for name, _, _ in world.store.reads if name == key]) <= 9


async def test_records_before_the_log_start_do_not_count() -> None:
    world = StoredWorld(SMALL)
    highs = {3: 9000, 5: 8000, 800: 7000, 900: 7000}
    some = [batch(base, 1, 500, time_ms=highs.get(base, base)) for base in range(1000)]
    world.segment(some, 1000)
    world.merged([[batch(1000, 2, 10, time_ms=50)]], [1002])
    world.partition.log_start = 4
    assert await highest(world) == TimedRecord(5, 8000)
    assert await first_at(world, 7500) == TimedRecord(5, 8000)
    world.partition.log_start = 6
    assert await highest(world) == TimedRecord(800, 7000)
    assert await first_at(world, 7001) is None
    world.partition.log_start = 801
    assert await highest(world) == TimedRecord(900, 7000)
    world.partition.log_start = 1000
    assert await highest(world) == TimedRecord(1001, 51)


async def test_time_of_a_compacted_record_is_skipped() -> None:
    world = StoredWorld()
    world.merged([[batch(0, 1, 10, time_ms=30)], [batch(5, 1, 10, time_ms=40)]], [5, 10])
    world.partition.cleaned_to = 10
    assert max(world.partition.times) == 100
    assert await highest(world) == TimedRecord(5, 40)
    assert await first_at(world, 35) == TimedRecord(5, 40)
    assert await first_at(world, 41) is None


async def test_time_is_found_after_a_gap() -> None:
    world = StoredWorld()
    world.segment([batch(0, 1, 10, time_ms=30)], 50)
    world.segment([batch(70, 1, 10, time_ms=90)], 80)
    world.partition.cleaned_to = 80
    assert await first_at(world, 31) == TimedRecord(70, 90)
    assert await highest(world) == TimedRecord(70, 90)


async def test_no_time_is_reported_from_damaged_bytes() -> None:
    world = StoredWorld()
    key = world.key(world.segment([batch(0, 2, 100, time_ms=30)], 2))
    world.flip(key, 32 + 61 + 3)
    with pytest.raises(Corrupt):
        await first_at(world, 30)


async def test_empty_partition_has_no_time() -> None:
    world = StoredWorld()
    assert await highest(world) is None
    assert await first_at(world, 0) is None
    world.segment([], 5)
    assert await highest(world) is None


async def test_batch_with_unreadable_records_is_found_by_its_header() -> None:
    world = StoredWorld(SMALL)
    packed = b"\x1f\x8b\x08" + bytes(40)
    header = batches.parse(batch(2, 3, 10, time_ms=50))._replace(attributes=1)
    bad = batches.seal(header, packed) + packed
    world.merged([[batch(0, 2, 10, time_ms=1), bad, batch(5, 1, 10, time_ms=90)]], [6])

    assert await first_at(world, 1) == TimedRecord(0, 1)
    assert await first_at(world, 40) == TimedRecord(2, header.max_timestamp)
    assert await first_at(world, 60) == TimedRecord(5, 90)
    assert await highest(world) == TimedRecord(5, 90)
    world.partition.log_start = 3
    assert await first_at(world, 40) == TimedRecord(3, header.max_timestamp)
