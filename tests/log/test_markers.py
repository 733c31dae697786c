"""Markers of transactions: rows without bytes, until they are rewritten, compacted or recovered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.cluster.state import aborts
from rookery.cluster.state.partition import MARKER_BYTES, Partition, RowKind
from rookery.formats.keys import times_key
from rookery.formats.times import SegmentAbort, parse_times
from rookery.log.check.check import check
from rookery.log.check.fault import FaultKind
from rookery.log.check.sources import Bytes
from rookery.log.compaction.compactor import Compactor
from rookery.log.maintain import snapshots
from rookery.log.maintain.plan import RewritePlanner
from rookery.log.maintain.rewritejob import SegmentJob
from rookery.log.read.cache import BlockCache
from rookery.log.read.objects import Places
from rookery.log.read.reader import LogReader
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Tail
from rookery.log.recover.recover import carry_out, plan
from rookery.log.settings import CompactionSettings, RewriteSettings
from rookery.log.write import markers
from rookery.model.control import ControlRecordType
from rookery.records import batches, recordcodec
from tests.log.compacting import Topical
from tests.log.site import TOPIC, Site, Writer, rows
from tests.log.transacting import Transactor, batch_of

DAY = 86_400_000


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.close()


@pytest.fixture
async def writer(site: Site) -> Writer:
    return await site.begin(1)


async def everything(site: Site, writer: Writer, until: int | None = None) -> bytes:
    """Read the partition as a broker does that remembers nothing."""
    replica = writer.replica
    places = Places(site.files, site.store, lambda: replica.state, "default")
    cache = BlockCache(places.read, None, places.name)
    layouts = Layouts(places, cache.read)
    reader = LogReader(site.log, cache, Tail(), None, layouts)
    partition = site.partition(writer)
    offset, data = partition.log_start, b""
    end = partition.next_offset if until is None else until
    while offset < end:
        read = await reader.read((TOPIC, 0), partition, offset, 300, until=end)
        if read.next_offset == offset:
            break
        data += b"".join(read.parts)
        offset = read.next_offset
    await layouts.close()
    await cache.close()
    return data


async def mixed(writer: Writer) -> Transactor:
    """Write a committed transaction, an aborted one, and leave a third one open."""
    first, second = await Transactor(writer, "x").init(), await Transactor(writer, "y").init()
    await first.write(b"a", b"1")
    await second.write(b"a", b"2", to_object=False)
    await first.end(commit=True)
    await second.end(commit=False)
    await writer.write(batch_of(b"b", b"3"))
    await first.write(b"a", b"open")
    return first


async def test_every_source_of_a_marker_gives_the_same_bytes(site: Site, writer: Writer) -> None:
    await mixed(writer)
    partition = site.partition(writer)
    before = await everything(site, writer)
    headers = batches.verify(before)
    assert [header.base_offset for header in headers] == list(range(6))
    assert [header.is_control for header in headers] == [False, False, True, True, False, False]
    kinds = [
        recordcodec.control(next(iter(recordcodec.read(before, header)))).type
        for header in headers
        if header.is_control
    ]
    assert kinds == [ControlRecordType.COMMIT, ControlRecordType.ABORT]
    assert (await check(site.sources)).is_clean
    row = next(row for row in rows(partition) if row.is_marker)
    assert markers.stamp_marker(partition, row) == before[headers[2].position : headers[2].end]
    await site.merge(writer, 0)
    assert not any(row.is_marker for row in rows(partition))
    assert await everything(site, writer) == before
    assert (await check(site.sources)).is_clean


async def test_read_committed_stops_at_the_last_stable_offset(site: Site, writer: Writer) -> None:
    producer = await mixed(writer)
    partition = site.partition(writer)
    assert partition.last_stable_offset == 5
    for _ in range(2):
        some = await everything(site, writer, partition.last_stable_offset)
        assert [header.base_offset for header in batches.verify(some)] == [0, 1, 2, 3, 4]
        await site.merge(writer, 0)
    await producer.end(commit=True)
    assert partition.last_stable_offset == 7


async def test_segment_lists_its_aborted_transactions(site: Site, writer: Writer) -> None:
    producer = await mixed(writer)
    await producer.end(commit=False)
    before = await everything(site, writer)
    key = await site.segment(writer)
    times = parse_times(await site.store.read(times_key(key)), "times")
    second = writer.replica.state.transactions.by_id["y"].writer.producer_id
    assert list(times.aborted) == [
        SegmentAbort(second, 1, 3),
        SegmentAbort(producer.own.producer_id, 5, 6),
    ]
    assert await everything(site, writer) == before
    assert (await check(site.sources)).is_clean


async def test_segments_end_before_open_transactions(site: Site, writer: Writer) -> None:
    producer = await mixed(writer)
    eager = RewriteSettings(segment_bytes=1, segment_min_bytes=1, segment_age_ms=1, merge_age_ms=1)

    def planned() -> int:
        jobs = RewritePlanner(eager).plan(writer.replica.state, 0)
        return max(job.range.end_offset for job in jobs if isinstance(job, SegmentJob))

    assert planned() == site.partition(writer).last_stable_offset == 5
    await producer.end(commit=True)
    assert planned() == 7


async def test_merges_keep_markers(site: Site, writer: Writer) -> None:
    producer = await Transactor(writer, "x").init()
    for number in range(5):
        await producer.write(b"k", b"%d" % number)
        await producer.end(commit=True)
    rewriter = await site.rewriter(writer)
    rewriter.settings = RewriteSettings(merge_age_ms=1)
    rewriter.__post_init__()
    await rewriter.run()
    site.clock.advance(10)
    assert await rewriter.run() > 0
    [row] = rows(site.partition(writer))
    assert (row.base_offset, row.end_offset, row.is_final) == (0, 10, True)
    assert (await check(site.sources)).is_clean


async def test_aborted_records_are_compacted_and_supersede_no_key(
    site: Site, writer: Writer
) -> None:
    producer = await mixed(writer)
    await producer.end(commit=False)
    await writer.write(batch_of(b"end", b"4"))
    partition = site.partition(writer)
    limits = Topical(delete_retention_ms=DAY)
    await compact(site, writer, limits)
    assert partition.cleaned_to == 7
    assert await left(site, writer) == [
        (0, b"1"),
        (2, None),
        (3, None),
        (4, b"3"),
        (6, None),
        (7, b"4"),
    ]
    # After a while no reader needs to know that a transaction was committed.
    site.clock.advance(2 * DAY)
    await writer.write(batch_of(b"end", b"5"))
    await compact(site, writer, limits)
    assert await left(site, writer) == [
        (0, b"1"),
        (3, None),
        (4, b"3"),
        (6, None),
        (7, b"4"),
        (8, b"5"),
    ]
    assert len(list(aborts.within(partition.aborted, 0, 9))) == 2
    assert (await check(site.sources)).is_clean


async def compact(site: Site, writer: Writer, limits: Topical) -> None:
    work = Compactor(
        replica=writer.replica,
        read=Bytes(site.sources, lambda: writer.replica.state).read,
        store=site.store,
        clock=site.clock,
        next_id=writer.numbers,
        limits=lambda _topic: limits,
        settings=CompactionSettings(map_bytes=1024 * 1024, min_bytes=1),
    )
    await work.run()


async def left(site: Site, writer: Writer) -> list[tuple[int, bytes | None]]:
    """Return offsets and values of what there is; None stands for a marker's."""
    data = await everything(site, writer)
    values: list[tuple[int, bytes | None]] = []
    for header in batches.verify(data):
        for record in recordcodec.read(data, header):
            value = None if header.is_control else bytes(record.value or b"")
            values.append((record.offset, value))
    return values


# A cluster log that was lost.


async def recovered(site: Site) -> tuple[Writer, list[FaultKind]]:
    await site.lose_log()
    made = await plan(site.sources, site.clock)
    await carry_out(site.sources, made, keep_unplaced=True)
    assert (await check(site.sources)).is_clean
    return await site.writer(), [fault.kind for fault in made.faults]


async def test_markers_in_the_snapshot_are_recovered(site: Site, writer: Writer) -> None:
    producer = await Transactor(writer, "x").init()
    for commit in (True, False):
        await producer.write(b"a", b"1")
        await producer.end(commit=commit)
    before = await everything(site, writer)
    listed = site.partition(writer).aborted
    await snapshots.save(site.store, writer.replica.state)
    again, faults = await recovered(site)
    partition = site.partition(again)
    assert not faults
    assert partition.aborted == listed
    assert [row.kind & RowKind.COMMIT for row in rows(partition) if row.is_marker] == [
        RowKind.COMMIT,
        0,
    ]
    assert await everything(site, again) == before


async def test_outcome_of_transactions_rewritten_after_the_snapshot_is_recovered(
    site: Site, writer: Writer
) -> None:
    producer = await Transactor(writer, "x").init()
    await snapshots.save(site.store, writer.replica.state)
    for commit in (True, False):
        await producer.write(b"a", b"1")
        await producer.end(commit=commit)
    before = await everything(site, writer)
    listed = site.partition(writer).aborted
    await writer.uploads.flush_notes()
    await site.merge(writer, 0)
    again, faults = await recovered(site)
    assert not faults
    assert site.partition(again).aborted == listed
    assert site.partition(again).last_stable_offset == 4
    assert await everything(site, again) == before


async def test_transactions_with_a_lost_end_are_aborted(site: Site, writer: Writer) -> None:
    producer = await Transactor(writer, "x").init()
    await snapshots.save(site.store, writer.replica.state)
    await producer.write(b"a", b"1")
    await writer.uploads.flush_notes()
    await producer.end(commit=True)
    again, faults = await recovered(site)
    partition: Partition = site.partition(again)
    assert faults == [FaultKind.LOST]
    assert not partition.ongoing
    [found] = aborts.within(partition.aborted, 0, 2)
    assert found[:3] == (producer.own.producer_id, 0, 1)
    assert rows(partition)[-1].size == MARKER_BYTES
    # Its producer must start over, and cannot be mistaken for the earlier one.
    assert not again.replica.state.transactions.by_id
    fresh = await Transactor(again, "x").init()
    assert fresh.own.producer_id > producer.own.producer_id
    await fresh.write(b"a", b"2")
    await fresh.end(commit=True)
    assert partition.last_stable_offset == partition.next_offset
