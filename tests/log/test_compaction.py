"""Compaction: the last record of every key stays unchanged at its offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rookery.cluster.state.partition import Partition, RowKind
from rookery.log.check.check import check
from rookery.log.check.fault import FaultKind
from rookery.log.check.sources import Sources
from rookery.log.maintain import snapshots
from rookery.log.maintain.retention import kept_from
from rookery.log.read.cache import BlockCache
from rookery.log.read.reader import LogReader
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Tail
from rookery.log.read.times import TimedRecord, first_at, highest
from rookery.log.settings import RewriteSettings
from rookery.records import recordcodec
from rookery.records.compression import CODECS, GZIP
from rookery.records.recordcodec import BatchSettings, Record
from tests.log.compacting import (
    DAY,
    WHERE,
    Sent,
    Topical,
    body,
    compactor,
    end,
    fill,
    is_clean,
    latest,
    partition_of,
    rec,
    seen,
    send,
    table,
)
from tests.log.rewriting import TOPIC, a_world
from tests.log.test_rewriter import Failing


@pytest.mark.parametrize("store", ["memory:", "file"])
async def test_last_record_of_every_key_is_kept(store: str, tmp_path: Path) -> None:
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
        assert partition.kinds[0] == RowKind.FINAL | RowKind.SEGMENT
        assert (await body(world, process))[-1][0].last_offset == sent[-1].offset


async def test_compaction_works_while_producers_write(tmp_path: Path) -> None:
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
async def test_compacted_batches_keep_their_attributes(codec: Any, tmp_path: Path) -> None:
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
        left = [record._replace(offset=4 + n) for n, record in enumerate(partly)][4:]
        assert list(recordcodec.read(second[1], header._replace(position=0))) == left
        assert third[0].base_offset == 11


def _fields(settings: BatchSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__slots__}


async def test_batch_without_removed_records_keeps_its_bytes(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        # A level that we would not choose, and unknown bits.
        sent = [rec(b"k%d" % n, b"v" * 100) for n in range(20)]
        await send(world, sent, BatchSettings(codec=GZIP, level=1))
        before = recordcodec.build(sent, BatchSettings(codec=GZIP, level=1))
        await send(world, [rec(b"other", b"")])
        await end(world)
        await compactor(world, process, Topical()).run()
        [(header, data), _] = await body(world, process)
        assert header.base_offset == 0
        assert data[16:] == before[16:]


async def test_tombstone_is_kept_until_its_retention_ends(tmp_path: Path) -> None:
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
        [tombstone, _] = recordcodec.read(data, header._replace(position=0))
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


async def test_key_written_again_after_its_tombstone_is_kept(tmp_path: Path) -> None:
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
        assert [record for record in await seen(world, process) if record.key == b"a"] == [sent[3]]


async def test_append_times_are_kept(tmp_path: Path) -> None:
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
        kept = [record for record in await seen(world, process) if record.key != b"end"]
        assert len(kept) == 13
        assert all(record.timestamp == times[record.offset // 3] for record in kept)


async def test_records_without_a_key_are_kept_and_unreferenced_old_markers_are_removed(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await send(world, [rec(None, b"1"), rec(b"a", b"1"), rec(None, None)])
        young = world.clock.now_ms()
        for producer, time in ((1, 1_000), (2, young)):
            control = BatchSettings(producer_id=producer, producer_epoch=0, is_control=True)
            sent += await send(world, [rec(b"\0\0\0\0", b"\0\0\0\0\0\0", time)], control)
        sent += await send(world, [rec(b"a", b"2")])
        tail = await end(world)
        await compactor(world, process, Topical()).run()
        assert await seen(world, process) == [sent[0], sent[2], *sent[4:], *tail]


async def test_segment_whose_last_batch_is_removed_ends_with_an_empty_batch(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        tiny = RewriteSettings(segment_bytes=300, merge_bytes=300, row_bytes=300)
        work = compactor(world, process, Topical(), rewrite=tiny)
        for key, size in ((b"b", 200), (b"a", 0), (b"a", 1), (b"c", 200), (b"a", 2)):
            await send(world, [rec(key, b"x" * size, 1_000 + size)])
        await end(world)
        await work.run()
        [kept, gone] = [header for header, _ in await body(world, process)]
        assert (kept.record_count, kept.last_offset) == (1, 0)
        assert (gone.record_count, gone.last_offset, gone.max_timestamp) == (0, 2, 1_001)
        assert [record.offset for record in await seen(world, process)] == [0, 3, 4, 5]
        # That alone does not justify writing the segment again.
        before = partition_of(process).objects[0]
        await end(world)
        await work.run()
        assert partition_of(process).objects[0] == before
        assert is_clean(process)


async def test_topic_can_be_compacted_and_deleted(tmp_path: Path) -> None:
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
        assert [record.offset for record in await seen(world, process)] == [1, 2, 3]
        partition = partition_of(process)
        assert kept_from(partition, Both(), now + DAY) == 0
        assert kept_from(partition, Both(), now + DAY + 1) == 3


async def test_readers_and_fsck_agree_with_compaction(tmp_path: Path) -> None:
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
        reader = LogReader(world.log(), cache, Tail(), layouts=Layouts(process.places, cache.read))
        key = (TOPIC, 0)
        for start in range(partition.next_offset):
            left = [record for record in expected if record.offset >= start]
            assert await _read(reader, partition, start) == left
        for time in (0, 1_002, 3_003, 3_005, 3_006):
            first = next((record for record in expected if record.timestamp >= time), None)
            timed = await first_at(reader, key, partition, time)
            assert timed == (first and TimedRecord(first.offset, first.timestamp))
        latest_one = await highest(reader, key, partition)
        assert latest_one is not None
        assert latest_one.timestamp == 3_005
        await snapshots.save(world.store, process.replica.state)
        report = await check(Sources(world.log(), world.store, world.files, "default"))
        assert [fault for fault in report.faults if fault.kind is not FaultKind.ORPHANED] == []


async def _read(reader: LogReader, partition: Partition, offset: int) -> list[Sent]:
    """Read with the broker's reader, a little at a time."""
    records: list[Sent] = []
    start = offset
    while offset < partition.next_offset:
        piece = await reader.read((TOPIC, 0), partition, offset, 300)
        assert piece.next_offset > offset
        offset = piece.next_offset
        records += [
            Sent(record.offset, record.key, record.value, record.timestamp)
            for record in recordcodec.read_all(b"".join(piece.parts))
            if record.offset >= start
        ]
    return records
