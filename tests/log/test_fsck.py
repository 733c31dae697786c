"""`rookery.log.check`: a sound log is clean, and every kind of damage is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rookery.cluster.events.brokerevents import BrokerLeft
from rookery.cluster.events.logevents import ObjectsCondemned, RowsLost
from rookery.errors import Corrupt
from rookery.formats.keys import (
    CLUSTER,
    index_key,
    journal_name,
    object_id,
    object_key,
    segment_key,
    snapshot_key,
    times_key,
)
from rookery.formats.manifest import read_head
from rookery.log.check.check import check
from rookery.log.check.fault import FaultKind, LogFault
from rookery.log.check.offsets import check_state
from rookery.log.check.progress import CheckReport
from rookery.log.lostlog import check_not_lost
from rookery.log.maintain import snapshots
from rookery.store.probe import PROBES
from tests.log.site import TOPIC, Site, Writer, batch


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.close()


@pytest.fixture
async def writer(site: Site) -> Writer:
    """A log with rows in a segment, a merged object, shared objects, a journal and an entry."""
    writer = await site.begin()
    for _ in range(4):
        await writer.write(batch(0, records=3), batch(0, records=2), batch(1, records=2, size=100))
    await site.segment(writer, 0)
    await site.merge(writer, 1)
    await writer.write(batch(0, records=5, size=300), batch(1))
    await writer.append(batch(0, records=4, size=50), batch(1, records=2))
    await writer.send(batch(1, records=3))
    return writer


async def only(site: Site, *, is_quick: bool = False) -> LogFault:
    """Return the one fault that there must be."""
    report = await check(site.sources, is_quick=is_quick)
    assert len(report.faults) == 1, report.faults
    return report.faults[0]


def describe(report: CheckReport) -> list[tuple[str, str]]:
    return [(fault.kind, fault.key) for fault in report.faults]


@pytest.mark.parametrize("is_quick", [False, True])
async def test_intact_log_is_clean(site: Site, writer: Writer, is_quick: bool) -> None:
    seen = [0, 0]

    def progress(size: int, offsets: int) -> None:
        seen[0], seen[1] = seen[0] + size, seen[1] + offsets

    report = await check(site.sources, is_quick=is_quick, progress=progress)

    assert report.is_clean, report.faults
    assert (report.topics, report.partitions, report.objects) == (1, 2, 5)
    assert report.bytes == sum(site.partition(writer, index).size_bytes for index in (0, 1))
    assert seen[1] == (0 if is_quick else 29 + 14)


async def test_an_empty_log_is_clean(site: Site) -> None:
    assert (await check(site.sources)).is_clean


@pytest.mark.parametrize("is_quick", [False, True])
async def test_a_missing_object_is_named_with_its_offsets(
    site: Site, writer: Writer, is_quick: bool
) -> None:
    key = site.key(writer, 0, row=1)
    await site.store.delete(key)
    report = await check(site.sources, is_quick=is_quick)
    assert [(fault.kind, fault.key, fault.where) for fault in report.faults] == [
        (FaultKind.MISSING, key, ("birds", 0, 20, 25)),
        (FaultKind.MISSING, key, ("birds", 1, 8, 9)),
    ]
    assert "restore it from a copy" in report.faults[0].advice


@pytest.mark.parametrize("is_quick", [False, True])
async def test_short_object_is_reported_with_the_missing_offsets(
    site: Site, writer: Writer, is_quick: bool
) -> None:
    key = site.key(writer, 1, row=1)
    data = await site.store.read(key)
    await site.put(key, data[:-1])
    faults = (await check(site.sources, is_quick=is_quick)).faults
    short = [fault for fault in faults if fault.kind is FaultKind.SHORT]
    assert [fault.where for fault in short] == [("birds", 1, 8, 9)]
    # A full check reads the manifest too, which knows the object's size.
    assert {fault.kind for fault in faults} <= {FaultKind.SHORT, FaultKind.CORRUPT}


@pytest.mark.parametrize("ending", [index_key, times_key])
@pytest.mark.parametrize("is_quick", [False, True])
async def test_missing_index_or_times_file_is_named(
    site: Site, writer: Writer, is_quick: bool, ending: Callable[[str], str]
) -> None:
    key = ending(site.key(writer))
    await site.store.delete(key)
    fault = await only(site, is_quick=is_quick)
    assert (fault.kind, fault.key, fault.where) == (FaultKind.MISSING, key, ("birds", 0, 0, 20))


async def test_a_flipped_byte_anywhere_is_found(site: Site, writer: Writer) -> None:
    """Of every object some bytes are flipped, in places that different checks look after."""
    keys = [item.key for item in await site.store.list() if "probe" not in item.key]
    assert len(keys) == 3 + 6 + 0, keys
    rows = {site.key(writer, p, r) for p, r in ((0, 0), (0, 1), (1, 0))}
    segment = site.key(writer)
    for key in (*rows, index_key(segment), times_key(segment)):
        whole = await site.store.read(key)
        for at in (0, 9, len(whole) // 3, len(whole) // 2, len(whole) - 1):
            await site.damage(key, at)
            report = await check(site.sources)
            assert {fault.key for fault in report.faults} == {key}, (key, at)
            await site.put(key, whole)
    assert (await check(site.sources)).is_clean


async def test_every_byte_of_a_merged_object_is_covered(site: Site) -> None:
    writer = await site.begin()
    await writer.write(batch(0), batch(0, records=2))
    await site.merge(writer, 0)
    key = site.key(writer)
    whole = await site.store.read(key)
    for at in range(len(whole)):
        await site.damage(key, at, 0x10)
        assert not (await check(site.sources)).is_clean, at
        await site.put(key, whole)


async def test_damage_in_a_segment_is_located(site: Site, writer: Writer) -> None:
    key = site.key(writer)
    await site.damage(key, -40)
    fault = await only(site)
    assert fault.where is not None
    assert fault.kind is FaultKind.CORRUPT
    assert fault.where.base_offset > 0
    assert fault.where.end_offset == 20


async def test_damage_in_a_journal_is_found(site: Site, writer: Writer, tmp_path: Path) -> None:
    name = journal_name(object_id(writer.incarnation, 0))
    path = tmp_path / name
    data = bytearray(path.read_bytes())
    end = 32 + site.partition(writer).row(2).size
    data[end - 1] ^= 1
    path.write_bytes(data)
    fault = await only(site)
    assert (fault.kind, fault.key, fault.where) == (FaultKind.CORRUPT, name, ("birds", 0, 25, 29))

    data[3] ^= 1
    path.write_bytes(data)
    # Files that are open already are not looked at from their beginning again.
    site.files.forget(object_id(writer.incarnation, 0))  # type: ignore[union-attr] # it has files
    faults = (await check(site.sources)).faults
    assert {(damage.kind, damage.key) for damage in faults} == {(FaultKind.CORRUPT, name)}
    assert "begins with" in faults[0].text


async def test_a_missing_journal_is_named(site: Site, writer: Writer, tmp_path: Path) -> None:
    name = journal_name(object_id(writer.incarnation, 0))
    (tmp_path / name).unlink()
    site.files.forget(object_id(writer.incarnation, 0))  # type: ignore[union-attr] # it has files
    for is_quick in (True, False):
        report = await check(site.sources, is_quick=is_quick)
        assert describe(report) == [(FaultKind.MISSING, name)] * 2


async def test_payloads_of_trimmed_entries_are_named(site: Site, writer: Writer) -> None:
    await snapshots.save(site.store, writer.replica.state)
    last = writer.replica.state.applied
    await site.log.trim(last + 1)
    for is_quick in (True, False):
        fault = await only(site, is_quick=is_quick)
        assert (fault.kind, fault.key) == (FaultKind.MISSING, f"entry {last}")
        assert fault.where == ("birds", 1, 11, 14)


async def test_offsets_that_differ_between_bytes_and_rows_are_found(
    site: Site, writer: Writer
) -> None:
    replica = await site.open()
    partition = site.partition(writer)
    partition.next_offset += 1
    await snapshots.save(site.store, writer.replica.state)
    fault = await only(site)
    assert fault.where == ("birds", 0, 25, 30)
    assert "end at offset 29, the log says 30" in fault.text
    assert replica.state.applied == writer.replica.state.applied


def contradictions(writer: Writer) -> list[str]:
    faults = list(check_state(writer.replica.state))
    assert {fault.kind for fault in faults} <= {FaultKind.OFFSETS}
    return [fault.text for fault in faults]


async def test_rows_that_contradict_each_other_are_named(site: Site, writer: Writer) -> None:
    state, partition = writer.replica.state, site.partition(writer)
    assert contradictions(writer) == []
    partition.base_offsets[1] = 0
    assert contradictions(writer) == ["the row at offset 0 overlaps the next, at 0"]
    partition.base_offsets[1] = 20

    partition.sizes[1] = 0
    assert contradictions(writer) == [f"a row cannot have 0 bytes from {partition.positions[1]} on"]
    partition.sizes[1] = 100

    del state.objects.segments[partition.objects[0]]
    assert "is known as None" in contradictions(writer)[0]


async def test_wrong_object_counts_are_named(site: Site, writer: Writer) -> None:
    state, partition = writer.replica.state, site.partition(writer)
    state.objects.free([partition.objects[1]])
    assert contradictions(writer) == ["2 rows are in it, but 1 are counted"]
    state.objects.add_row(partition.objects[1])
    state.objects.condemned[partition.objects[1]] = 1
    assert all("which is condemned" in text for text in contradictions(writer))


async def test_gap_at_the_start_is_named(site: Site, writer: Writer) -> None:
    partition = site.partition(writer)
    for column in partition.columns:
        del column[0]
    faults = [fault for fault in check_state(writer.replica.state) if "no row" in fault.text]
    assert [fault.where for fault in faults] == [("birds", 0, 0, 20)]


async def test_lost_rows_are_noted_and_are_not_a_fault(site: Site, writer: Writer) -> None:
    lost = RowsLost(topic_id=TOPIC, partition=0, base_offsets=[20])
    await writer.replica.propose([lost])
    report = await check(site.sources)
    assert report.is_clean
    assert [(note.kind, note.where) for note in report.notes] == [
        (FaultKind.LOST, ("birds", 0, 20, 25))
    ]


async def test_objects_of_a_live_writer_may_be_in_flight(site: Site, writer: Writer) -> None:
    identity = await writer.upload(batch(0))
    report = await check(site.sources)
    assert report.is_clean
    assert [(note.kind, note.key) for note in report.notes] == [
        (FaultKind.IN_FLIGHT, object_key(identity))
    ]


async def test_objects_of_a_dead_writer_are_orphans(site: Site, writer: Writer) -> None:
    identity = await writer.upload(batch(0), batch(1))
    await writer.write(batch(1))
    await writer.uploads.write([])  # offsets alone; killed before it was condemned
    await writer.replica.propose([BrokerLeft()])
    fault = await only(site)
    assert (fault.kind, fault.key) == (FaultKind.ORPHANED, object_key(identity))
    assert "2 batches" in fault.text
    assert [note.kind for note in (await check(site.sources)).notes] == [FaultKind.RECORD]

    other = await site.writer()
    await other.replica.propose([ObjectsCondemned(object_ids=[identity])])
    assert (await check(site.sources)).is_clean


async def test_unknown_keys_are_reported_as_stray(site: Site, writer: Writer) -> None:
    stray = ["_rookery/objects/0001", "_rookery/notes", "default/birds/0/readme"]
    orphan = segment_key("default", "birds", 7, 123)
    for key in (*stray, orphan, "elsewhere/readme"):
        await site.store.create(key, [b"x"])
    report = await check(site.sources, is_quick=True)
    assert {(fault.kind, fault.key) for fault in report.faults} == {
        *((FaultKind.STRAY, key) for key in stray),
        (FaultKind.ORPHANED, orphan),
    }


async def test_probe_of_the_store_is_not_a_fault(site: Site, writer: Writer) -> None:
    await site.store.create(f"{PROBES}0123456789abcdef", [b"0"])
    report = await check(site.sources)
    assert report.is_clean, report.faults


async def test_store_of_another_cluster_is_not_checked(site: Site, writer: Writer) -> None:
    await site.store.create(CLUSTER, [b"another"])
    fault = await only(site)
    assert (fault.kind, fault.key) == (FaultKind.LOG, CLUSTER)
    await site.put(CLUSTER, b"c")
    assert (await check(site.sources)).is_clean


async def test_a_snapshot_that_cannot_be_read_is_named(site: Site, writer: Writer) -> None:
    number = await snapshots.save(site.store, writer.replica.state)
    await site.store.create(snapshot_key(number - 1), [b"RKSS nonsense"])
    fault = await only(site)
    assert (fault.kind, fault.key) == (FaultKind.SNAPSHOT, snapshot_key(number - 1))


async def test_log_trimmed_beyond_the_snapshots_is_named(site: Site, writer: Writer) -> None:
    await site.log.trim(3)
    fault = await only(site)
    assert fault.kind is FaultKind.LOG
    assert "up to 2 were trimmed" in fault.text


async def test_lost_log_is_named(site: Site, writer: Writer) -> None:
    await snapshots.save(site.store, writer.replica.state)
    await site.lose_log()
    fault = await only(site)
    assert fault.kind is FaultKind.LOG
    assert "rookery recover" in fault.advice


async def test_lost_log_without_snapshots_is_not_taken_for_a_new_one(
    site: Site, writer: Writer
) -> None:
    await check_not_lost(site.log, site.store)
    await site.lose_log()
    fault = await only(site)
    assert fault.kind is FaultKind.LOG
    assert "is empty, but the store has objects" in fault.text
    with pytest.raises(Corrupt, match="rookery recover"):
        await check_not_lost(site.log, site.store)


async def test_an_entry_that_cannot_be_read_is_named(site: Site, writer: Writer) -> None:
    await site.log.append(b"nonsense")
    fault = await only(site)
    assert fault.kind is FaultKind.LOG


async def test_a_check_while_rows_move_is_clean(site: Site) -> None:
    """A writer and a rewriter work on, and objects that nothing lives in are deleted at once."""
    writer = await site.begin()
    for _ in range(30):
        await writer.write(batch(0, records=2), batch(1))
    is_over = asyncio.Event()

    async def work() -> None:
        for _ in range(40):
            await writer.write(batch(0), batch(1))
            before = set(writer.replica.state.objects.rows)
            await site.merge(writer, 0, 1)
            dead = [
                identity for identity in before if not writer.replica.state.objects.rows[identity]
            ]
            await writer.replica.propose([ObjectsCondemned(object_ids=dead)])
            for identity in dead:
                await site.store.delete(object_key(identity))
            if is_over.is_set():
                return

    working = asyncio.create_task(work())
    for _ in range(8):
        report = await check(site.sources)
        assert report.is_clean, report.faults
    is_over.set()
    await working


async def test_manifests_state_the_start_of_batches(site: Site, writer: Writer) -> None:
    manifest, begin = read_head(await site.store.read(site.key(writer, 0, row=1)))
    assert begin == site.partition(writer).row(1).position
    assert len(manifest.extents) == 2
