"""Compaction: of every key the last record stays, where it was, as it was, whatever happens."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.cluster.events.brokers import BrokerRegistered
from rookery.cluster.events.log import Committed, Extent, RowsLost
from rookery.cluster.events.topics import LogStartMoved, TopicDeleted
from rookery.cluster.state.partition import Kind, Partition
from rookery.errors import Unavailable
from rookery.formats.segment import verify_segment
from rookery.log import snapshots
from rookery.log.cache import BlockCache
from rookery.log.fsck.check import check
from rookery.log.fsck.fault import Kind as FaultKind
from rookery.log.fsck.sources import Sources
from rookery.log.objects import key_of, keys_of
from rookery.log.reader import Reader
from rookery.log.retention import kept_from
from rookery.log.segmentindex import Layouts
from rookery.log.settings import RewriteSettings
from rookery.log.tail import Tail
from rookery.log.times import Stamped, first_at, highest
from rookery.records import batch as batches
from rookery.records import record as reading
from rookery.records.batch import BatchHeader
from rookery.records.compression import CODECS, GZIP
from rookery.records.record import BatchSettings, Record
from tests.log.compacting import (
    DAY,
    NEVER,
    REWRITE,
    Sent,
    Topical,
    compactor,
    latest,
    partition_of,
    seen,
    send,
    table,
)
from tests.log.rewriting import TOPIC, Process, Where, World, a_world
from tests.log.test_rewriter import Crash, Failing

WHERE: tuple[Where, ...] = ("journal", "entry", "object")


def rec(key: bytes | None, value: bytes | None, time: int = 1_000, **headers: bytes) -> Record:
    return Record(key, value, tuple(headers.items()), time)


async def fill(world: World, turns: int, keys: int = 5, size: int = 50) -> list[Sent]:
    """Send records over a few keys, each value different, from everywhere."""
    found: list[Sent] = []
    for turn in range(turns):
        records = [
            rec(b"k%d" % ((turn * 3 + n) % keys), b"%d-%d" % (turn, n) + b"x" * size, 1_000 + turn)
            for n in range(3)
        ]
        found += await send(world, records, where=WHERE[turn % 3])
    return found


async def end(world: World) -> list[Sent]:
    """Send a last record that the tail is made of: it may grow, so it is left alone."""
    return await send(world, [rec(b"end", b"end")])


async def body(world: World, process: Process, index: int = 0) -> list[tuple[BatchHeader, bytes]]:
    """Return the batches of a segment."""
    key = key_of(process.replica.state, "default", partition_of(process).objects[index])
    found = verify_segment(await world.store.read(key), key)
    data = bytes(found.body)
    return [(one, data[one.position : one.end]) for one in found.batches]


def is_clean(process: Process) -> bool:
    partition = partition_of(process)
    return partition.cleaned_to == partition.base_offsets[-1] > 0


@pytest.mark.parametrize("store", ["memory:", "file"])
async def test_the_last_record_of_every_key_stays(store: str, tmp_path: Path) -> None:
    url = store if store == "memory:" else f"file://{tmp_path}/store"
    async with a_world(tmp_path / "journals", url) as world:
        process = await world.process()
        await world.topic(1)
        sent = await fill(world, 30)
        tail = await end(world)
        assert await compactor(world, process, Topical()).run() > 0
        assert await seen(world, process) == latest(sent) + tail
        assert is_clean(process)
        partition = partition_of(process)
        assert partition.kinds[0] == Kind.FINAL | Kind.SEGMENT
        assert (await body(world, process))[-1][0].last_offset == sent[-1].offset


async def test_it_goes_on_while_producers_write(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await fill(world, 10)

        async def write(key: str) -> None:
            if key.endswith(".kfs"):
                sent.extend(await fill(world, 5, keys=7))

        work = compactor(world, process, Topical(), store=Failing(world.store, write))
        for _ in range(4):
            assert await work.run() > 0
            assert table(await seen(world, process)) == table(sent)
        assert len(await seen(world, process)) < len(sent) / 2


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
async def test_batches_keep_what_they_are(codec: Any, tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        bits = BatchSettings(codec=codec, producer_id=7, producer_epoch=2, base_sequence=40)
        headers = {"a": b"1", "b": b""}
        whole = [rec(b"whole%d" % n, b"w" * 30, 5_000 + n, **headers) for n in range(4)]
        partly = [rec(b"p%d" % (n % 2), b"v%d" % n * 10, 9_000 - n, **headers) for n in range(6)]
        await send(world, whole, bits)
        await send(world, partly, BatchSettings(**{**_fields(bits), "base_sequence": 44}))
        await send(world, [rec(b"gone", b"g")], BatchSettings(codec=codec))
        await send(world, [rec(b"gone", b"here")], BatchSettings(codec=codec))
        await end(world)
        await compactor(world, process, Topical()).run()
        [first, second, third] = await body(world, process)
        assert (first[0].base_offset, first[0].record_count, first[0].codec) == (0, 4, codec)
        header = second[0]
        assert (header.base_offset, header.last_offset_delta, header.record_count) == (4, 5, 2)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 44)
        assert header.codec is codec
        assert header.max_timestamp == 8_996
        left = [one._replace(offset=4 + n) for n, one in enumerate(partly)][4:]
        assert list(reading.read(second[1], header._replace(position=0))) == left
        assert third[0].base_offset == 11


def _fields(one: BatchSettings) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


async def test_a_batch_that_stays_whole_is_the_same_bytes(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        # A level that we would not choose, and bits that nobody knows.
        sent = [rec(b"k%d" % n, b"v" * 100) for n in range(20)]
        await send(world, sent, BatchSettings(codec=GZIP, level=1))
        before = reading.build(sent, BatchSettings(codec=GZIP, level=1))
        await send(world, [rec(b"other", b"")])
        await end(world)
        await compactor(world, process, Topical()).run()
        [(header, data), _] = await body(world, process)
        assert header.base_offset == 0
        assert data[16:] == before[16:]


async def test_a_tombstone_stays_until_its_time_is_over(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        limits = Topical(delete_retention_ms=DAY)
        work = compactor(world, process, limits)
        sent = await send(world, [rec(b"a", b"1", 10), rec(b"b", b"2", 20)])
        sent += await send(world, [rec(b"a", None, 30, why=b"gone"), rec(b"c", b"3", 5)])
        tail = await end(world)
        now = world.clock.now_ms()
        await work.run()
        assert await seen(world, process) == sent[1:] + tail
        header, data = (await body(world, process))[1]
        assert header.has_delete_horizon
        assert header.base_timestamp == now + DAY
        assert header.max_timestamp == 30
        [tombstone, _] = reading.read(data, header._replace(position=0))
        assert tombstone == Record(b"a", None, (("why", b"gone"),), 30, 2)
        # A later round, before its time: it stays, and its time stays what it was.
        world.clock.advance(DAY - 1)
        more = await end(world)
        await work.run()
        assert await seen(world, process) == sent[1:] + tail + more
        assert (await body(world, process))[1][0].base_timestamp == now + DAY
        world.clock.advance(1)
        last = await end(world)
        await work.run()
        assert await seen(world, process) == [sent[1], sent[3], *more, *last]
        assert table(await seen(world, process)) == table(sent + tail + more + last)


async def test_a_key_that_comes_back_after_its_tombstone(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        work = compactor(world, process, Topical(delete_retention_ms=0))
        sent = await send(world, [rec(b"a", b"1")])
        sent += await send(world, [rec(b"a", None)])
        sent += await end(world)
        await work.run()
        sent += await send(world, [rec(b"a", b"2")])
        for _ in range(3):
            sent += await end(world)
            await work.run()
            assert table(await seen(world, process)) == table(sent)
        assert [one for one in await seen(world, process) if one.key == b"a"] == [sent[3]]


async def test_append_times_stay(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1, message_timestamp_type="LogAppendTime")
        times = []
        for turn in range(6):
            times.append(world.clock.now_ms())
            records = [rec(b"k%d" % turn, b"v"), rec(b"k", b"%d" % turn), rec(b"d%d" % turn, None)]
            await send(world, records, where=WHERE[turn % 3])
            world.clock.advance(7)
        await end(world)
        await compactor(world, process, Topical()).run()
        found = [one for one in await seen(world, process) if one.key != b"end"]
        assert len(found) == 13
        assert [one.timestamp for one in found] == [times[one.offset // 3] for one in found]


async def test_young_records_are_left_alone(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        work = compactor(world, process, Topical(min_compaction_lag_ms=1_000))
        now = world.clock.now_ms()
        sent = await send(world, [rec(b"a", b"1", now), rec(b"a", b"2", now)])
        sent += await send(world, [rec(b"a", b"3", now + 600), rec(b"a", b"4", now + 500)])
        tail = await end(world)
        assert await work.run() == 0
        world.clock.advance(1_000)
        await work.run()
        assert await seen(world, process) == sent[1:] + tail
        world.clock.advance(599)
        assert await work.run() == 0
        world.clock.advance(1)
        await work.run()
        assert await seen(world, process) == sent[3:] + tail


async def test_the_ratio_decides_unless_a_record_has_waited_too_long(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        now = world.clock.now_ms()
        limits = Topical(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=DAY)
        work = compactor(world, process, limits)
        sent = await send(world, [rec(b"k%d" % n, b"v" * 500, now) for n in range(10)])
        sent += await end(world)
        assert await work.run() > 0
        sent += await send(world, [rec(b"k0", b"new", now)])
        sent += await end(world)
        assert await work.run() == 0
        assert work.lag() == (0, 0)
        world.clock.advance(DAY)
        sent += await send(world, [rec(b"k1", b"new", world.clock.now_ms())])
        assert await work.run() > 0
        assert [one.key for one in await seen(world, process)].count(b"k0") == 1


async def test_the_oldest_record_of_a_row_counts_for_the_longest_lag(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        now = world.clock.now_ms()
        limits = Topical(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=DAY)
        limits.segment_bytes = 1 << 30
        work = compactor(world, process, limits)
        work.settings = type(work.settings)(min_bytes=1 << 30)
        # Both batches lie in one row, whose time is that of the second.
        await send(world, [rec(b"a", b"1", now)], where="journal")
        await send(world, [rec(b"a", b"2", now + DAY)], where="journal")
        await send(world, [rec(b"a", b"3", now + DAY)])
        await process.replica.barrier()
        assert len(partition_of(process).base_offsets) == 2
        world.clock.advance(DAY - 1)
        assert await work.run() == 0
        world.clock.advance(1)
        assert await work.run() > 0


async def test_an_idle_tail_is_compacted_when_it_has_waited_too_long(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        now = world.clock.now_ms()
        work = compactor(world, process, Topical(max_compaction_lag_ms=DAY))
        sent = await send(world, [rec(b"a", b"1", now), rec(b"a", b"2", now)])
        assert await work.run() == 0
        world.clock.advance(DAY)
        assert await work.run() > 0
        assert await seen(world, process) == sent[1:]


async def test_a_trickle_waits_as_in_an_active_segment(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        limits = Topical(segment_bytes=1 << 20, segment_ms=DAY)
        work = compactor(world, process, limits)
        work.settings = type(work.settings)(min_bytes=1 << 20)
        await send(world, [rec(b"a", b"1", world.clock.now_ms())])
        await end(world)
        assert await work.run() == 0
        world.clock.advance(DAY)
        assert await work.run() > 0


async def test_topics_without_compaction_are_left_alone(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await fill(world, 10)
        assert await compactor(world, process, Topical(is_compacted=False)).run() == 0
        assert await seen(world, process) == sent


async def test_records_without_a_key_and_control_batches_stay(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await send(world, [rec(None, b"1"), rec(b"a", b"1"), rec(None, None)])
        for producer in (1, 2):
            control = BatchSettings(producer_id=producer, producer_epoch=0, is_control=True)
            sent += await send(world, [rec(b"\0\0\0\1", b"\0\0\0\0\0\0")], control)
        sent += await send(world, [rec(b"a", b"2")])
        tail = await end(world)
        await compactor(world, process, Topical()).run()
        assert await seen(world, process) == [sent[0], *sent[2:], *tail]


async def test_a_full_map_ends_the_round_and_the_next_goes_on(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = []
        for turn in range(6):
            records = [rec(b"%d" % (n % 40), b"%d" % turn) for n in range(turn, turn + 30)]
            sent += await send(world, records, where="journal")
        dirty = len(sent)
        tail = await end(world)
        sent += tail
        work = compactor(world, process, Topical(), map_bytes=50 * 24)
        ends = []
        for _ in range(20):
            await work.run()
            ends.append(partition_of(process).cleaned_to)
            assert table(await seen(world, process)) == table(sent)
            if ends[-1] == dirty:
                break
        assert ends == sorted(ends)
        assert len(ends) > 2
        below = [one.key for one in await seen(world, process)]
        assert len(below) < len(sent) / 2
        assert (await seen(world, process))[-1:] == tail


async def test_a_map_too_small_for_one_batch_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await send(world, [rec(b"%d" % n, b"") for n in range(100)])
        sent += await end(world)
        assert await compactor(world, process, Topical(), map_bytes=1).run() == 0
        assert "raise compaction.map_bytes" in caplog.text
        assert await seen(world, process) == sent


async def test_small_segments_are_packed_and_large_ones_left(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        work = compactor(world, process, Topical())
        sent: list[Sent] = []
        for turn in range(40):
            value = b"v" * 1_000
            sent += await send(world, [rec(b"k%d" % turn, value), rec(b"x", value)])
            await work.run()
        sizes = partition_of(process).sizes[:-1]
        assert len(sizes) <= 2 * sum(sizes) / REWRITE.segment_bytes + 1
        # What is large enough and does not change is not written again.
        before = partition_of(process).objects[:-1]
        sent += await send(world, [rec(b"new", b"")])
        sent += await end(world)
        await work.run()
        assert partition_of(process).objects[0] == before[0]
        assert table(await seen(world, process)) == table(sent)


async def test_nothing_of_a_range_stays_but_its_end(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        tiny = RewriteSettings(segment_bytes=300, merge_bytes=300, row_bytes=300)
        work = compactor(world, process, Topical(), rewrite=tiny)
        sent = []
        for turn in range(10):
            sent += await send(world, [rec(b"a", b"%d" % turn * 200)])
        await end(world)
        await work.run()
        first = await body(world, process)
        assert [(one.record_count, one.last_offset) for one, _ in first][-1:] != []
        counts = [one.record_count for one, _ in first]
        assert counts[:-1] == [0] * (len(counts) - 1)
        assert latest(sent)[0] in await seen(world, process)
        # Once more: an empty batch that is no longer the last of its segment goes.
        await end(world)
        before = partition_of(process).cleaned_to
        await work.run()
        assert partition_of(process).cleaned_to > before


async def test_compacted_and_deleted(tmp_path: Path) -> None:
    class Both(Topical):
        is_deleted = True
        retention_ms = DAY
        retention_bytes = -1

    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        now = world.clock.now_ms()
        await send(world, [rec(b"a", b"1", now), rec(b"b", b"2", now), rec(b"a", b"3", now)])
        await send(world, [rec(b"end", b"end", now + DAY)])
        await compactor(world, process, Both()).run()
        assert [one.offset for one in await seen(world, process)] == [1, 2, 3]
        partition = partition_of(process)
        assert kept_from(partition, Both(), now + DAY) == 0
        assert kept_from(partition, Both(), now + DAY + 1) == 3


async def test_two_at_once_do_no_harm(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        one, other = await world.process(), await world.process()
        await world.topic(1)
        works = [compactor(world, one, Topical()), compactor(world, other, Topical())]
        sent: list[Sent] = []
        for turn in range(8):
            sent += await fill(world, 6, keys=4 + turn)
            await asyncio.gather(*(work.run() for work in works))
            assert table(await seen(world, one)) == table(sent)
            assert await seen(world, one) == await seen(world, other)
        objects = one.replica.state.objects
        named = {row for row in partition_of(one).objects if row > 0}
        # What was written in vain is condemned, and nothing that is named is.
        assert objects.condemned
        assert not named & objects.condemned.keys()


@pytest.mark.parametrize("step", range(9))
async def test_a_crash_at_any_step_loses_nothing(step: int, tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        small = RewriteSettings(segment_bytes=1_000, merge_bytes=1_000, row_bytes=1_000)
        sent = await fill(world, 40, keys=60)
        created = itertools.count()

        async def crash(_key: str) -> None:
            if next(created) == step:
                raise Crash

        broken = Failing(world.store, crash)
        with pytest.raises(Crash):
            await compactor(world, process, Topical(), rewrite=small, store=broken).run()
        assert table(await seen(world, process)) == table(sent)
        # The process is gone; another one goes on.
        second = await world.process()
        sent += await fill(world, 3)
        await compactor(world, second, Topical(), rewrite=small).run()
        assert table(await seen(world, second)) == table(sent)
        assert is_clean(second)


async def test_a_store_that_fails_is_tried_again(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await fill(world, 20)
        is_down = [True]

        async def fail(_key: str) -> None:
            if is_down[0]:
                raise Unavailable("no")

        work = compactor(world, process, Topical(), store=Failing(world.store, fail))
        with pytest.raises(Unavailable):
            await work.run()
        is_down[0] = False
        assert await work.run() > 0
        assert table(await seen(world, process)) == table(sent)
        [orphan] = process.replica.state.objects.condemned
        assert keys_of(process.replica.state, "default", orphan)


async def _delete_topic(world: World) -> None:
    await world.broker.propose([TopicDeleted(topic_id=TOPIC)])


async def _move_start(world: World) -> None:
    await world.broker.propose([LogStartMoved(topic_id=TOPIC, partition=0, offset=4)])


async def _lose(world: World) -> None:
    await world.broker.propose([RowsLost(topic_id=TOPIC, partition=0, base_offsets=[3])])


@pytest.mark.parametrize("change", [_delete_topic, _move_start, _lose])
async def test_what_changes_meanwhile_makes_it_void(
    change: Callable[[World], Awaitable[None]], tmp_path: Path
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await fill(world, 20)

        async def meanwhile(key: str) -> None:
            if key.endswith(".kfs"):
                await change(world)

        work = compactor(world, process, Topical(), store=Failing(world.store, meanwhile))
        assert await work.run() == 0
        assert len(process.replica.state.objects.condemned) == 1
        if change is _delete_topic:
            return
        assert partition_of(process).cleaned_to == 0
        kept = [one for one in await seen(world, process) if one.offset >= 6]
        assert await compactor(world, process, Topical()).run() > 0
        found = [one for one in await seen(world, process) if one.offset >= 6]
        assert table(found) == table(kept)


async def test_a_damaged_row_stops_what_lies_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await send(world, [rec(b"a", b"1")])
        sent += await send(world, [rec(b"a", b"2")])
        await send(world, [rec(b"a", b"x" * 50)], where="journal")
        sent += await send(world, [rec(b"a", b"3")])
        await end(world)
        [path] = tmp_path.glob("journal-*")
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        work = compactor(world, process, Topical())
        await work.run()
        assert "damaged" in caplog.text
        await work.run()
        assert partition_of(process).cleaned_to == 2
        assert caplog.text.count("damaged") == 1
        assert work.lag() == (0, 0)


async def test_a_damaged_segment_is_not_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path / "journals", f"file://{tmp_path}/store") as world:
        process = await world.process()
        await world.topic(1)
        work = compactor(world, process, Topical())
        await fill(world, 10)
        await work.run()
        [path] = (tmp_path / "store").rglob("*.kfs")
        data = bytearray(path.read_bytes())
        # The base offset of the last batch: its own CRC does not cover it.
        last = (await body(world, process))[-1][0]
        data[32 + last.position + 7] += 1
        path.chmod(0o600)
        path.write_bytes(data)
        await fill(world, 10)
        before = partition_of(process).objects[0]
        await work.run()
        assert "damaged" in caplog.text
        assert partition_of(process).objects[0] == before


async def test_records_that_cannot_be_read_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await send(world, [rec(b"a", b"1")])
        # Right by its checksum, wrong inside: what a producer may send if nobody looks into it.
        header = batches.parse(reading.build([rec(b"a", b"2")], BatchSettings(codec=GZIP)))
        junk = batches.seal(header, b"junk") + b"junk"
        written = await world.journal.append([junk])
        await _commit(world, written.object_id, written.position, len(junk))
        sent += await send(world, [rec(b"a", b"3")])
        await end(world)
        await compactor(world, process, Topical()).run()
        assert "is not compacted" in caplog.text
        partition = partition_of(process)
        assert partition.cleaned_to == 3
        found = await body(world, process)
        assert [one.base_offset for one, _ in found] == [1, 2]
        assert found[0][1][61:] == b"junk"


async def _commit(world: World, object_id: int, position: int, size: int) -> None:
    extent = Extent(
        topic_id=TOPIC, partition=0, position=position, size=size, records=1, attributes=1,
        max_timestamp=1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    await world.broker.propose([Committed(object_id=object_id, extents=[extent])])


async def test_work_is_divided_into_rounds(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await fill(world, 60, keys=100)
        rewrite = RewriteSettings(
            segment_bytes=2_000, merge_bytes=2_000, row_bytes=2_000, round_bytes=1
        )
        await settle(world, process, rewrite)
        work = compactor(world, process, Topical(), rewrite=rewrite)
        rounds = 0
        while work._work is not None or not rounds:
            await work.run()
            rounds += 1
            assert table(await seen(world, process)) == table(sent)
            if rounds % 3 == 0:
                world.clock.advance(REWRITE.merge_age_ms)
                await process.rewriter(world, rewrite).run()
        assert rounds > 10
        assert len(await seen(world, process)) < len(sent)


async def settle(world: World, process: Process, rewrite: RewriteSettings) -> None:
    """Let the rewriter make segments."""
    rewriter = process.rewriter(
        world, RewriteSettings(**{**_rewrite(rewrite), "round_bytes": NEVER})
    )
    for age in (rewrite.merge_age_ms, rewrite.segment_age_ms):
        await rewriter.run()
        world.clock.advance(age)
    await rewriter.run()


def _rewrite(one: RewriteSettings) -> dict[str, int]:
    return {name: getattr(one, name) for name in one.__slots__}


async def test_lag_is_what_is_due_and_not_done(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await fill(world, 20)
        await end(world)
        work = compactor(world, process, Topical(), map_bytes=1)
        await work.run()
        size = sum(partition_of(process).sizes[:-1])
        world.clock.advance(500)
        assert work.lag() == (size, 500)
        other = compactor(world, process, Topical())
        await other.run()
        assert other.lag() == (0, 0)


async def test_readers_and_the_check_agree_with_it(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        small = RewriteSettings(segment_bytes=1_000, merge_bytes=1_000, row_bytes=1_000)
        work = compactor(world, process, Topical(), rewrite=small)
        for turn in range(6):
            await fill(world, 6, keys=11 + turn)
            await send(world, [rec(b"gone", None, 3_000 + turn), rec(b"last", b"", turn)])
            await work.run()
        expected = await seen(world, process)
        partition = partition_of(process)
        cache = BlockCache(process.places.read, name=process.places.name)
        reader = Reader(world.log(), cache, Tail(), layouts=Layouts(process.places, cache.read))
        key = (TOPIC, 0)
        for start in range(partition.next_offset):
            left = [one for one in expected if one.offset >= start]
            assert await _read(reader, partition, start) == left
        for time in (0, 1_002, 3_003, 3_005, 3_006):
            first = next((one for one in expected if one.timestamp >= time), None)
            found = await first_at(reader, key, partition, time)
            assert found == (first and Stamped(first.offset, first.timestamp))
        assert (await highest(reader, key, partition) or (0, 0))[1] == 3_005
        await snapshots.save(world.store, process.replica.state)
        report = await check(Sources(world.log(), world.store, world.files, "default"))
        assert [fault for fault in report.faults if fault.kind is not FaultKind.ORPHANED] == []


async def _read(reader: Reader, partition: Partition, offset: int) -> list[Sent]:
    """Read with the broker's reader, a little at a time."""
    found: list[Sent] = []
    start = offset
    while offset < partition.next_offset:
        piece = await reader.read((TOPIC, 0), partition, offset, 300)
        assert piece.next_offset > offset
        offset = piece.next_offset
        found += [
            Sent(one.offset, one.key, one.value, one.timestamp)
            for one in reading.read_all(b"".join(piece.parts))
            if one.offset >= start
        ]
    return found


# Against a model: any sequence of writes and upkeep.

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b""])
BATCH = st.lists(
    st.tuples(KEYS, st.none() | st.binary(max_size=40), st.integers(0, 5_000)),
    min_size=1,
    max_size=8,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), BATCH, st.sampled_from(list(CODECS.values())),
                  st.sampled_from(WHERE)),
        st.tuples(st.just("wait"), st.sampled_from([1, 1_000, 60_000, DAY])),
        st.tuples(st.just("rewrite")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("lead")),
    ),
    min_size=1,
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([0, 1_000, DAY]), st.sampled_from([12 * 27, 1 << 20]))
def test_a_reader_sees_the_last_value_of_every_key(
    steps: list[tuple[Any, ...]], retention_ms: int, map_bytes: int
) -> None:
    asyncio.run(_model(steps, Topical(delete_retention_ms=retention_ms), map_bytes))


async def _model(steps: list[tuple[Any, ...]], limits: Topical, map_bytes: int) -> None:
    small = RewriteSettings(segment_bytes=500, merge_bytes=2_000, row_bytes=300)
    with tempfile.TemporaryDirectory() as folder:
        async with a_world(Path(folder)) as world:
            process = await world.process()
            await world.topic(1)
            work = compactor(world, process, limits, rewrite=small, map_bytes=map_bytes)
            rewriter = process.rewriter(world, small)
            sent: list[Sent] = []
            nodes = itertools.count(2)
            for name, *rest in [*steps, ("compact",)]:
                if name == "send":
                    batch, codec, where = rest
                    records = [rec(key, value, time) for key, value, time in batch]
                    sent += await send(world, records, BatchSettings(codec=codec), where=where)
                elif name == "wait":
                    world.clock.advance(rest[0])
                elif name == "rewrite":
                    await rewriter.run()
                elif name == "lead":
                    await world.broker.register(
                        BrokerRegistered(
                            process_id=bytes(16), node_id=next(nodes), host="h", port=1
                        )
                    )
                else:
                    await work.run()
                await _check(world, process, sent)


async def _check(world: World, process: Process, sent: list[Sent]) -> None:
    found = await seen(world, process)
    assert [one for one in sent if one in set(found)] == found
    assert table(found) == table(sent)
    clean = [one.key for one in found if one.offset < partition_of(process).cleaned_to]
    assert len(clean) == len(set(clean))
