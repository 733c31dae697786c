"""`rookery.log.recover`: the cluster log is lost, and comes back from the store."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rookery.clock import SystemRandom
from rookery.cluster.events.brokerevents import BrokerRegistered, ConfigsChanged, SettingChange
from rookery.cluster.events.logevents import (
    ObjectsCondemned,
    ProducerIdsAllotted,
    ReplacedRange,
    RowPiece,
    RowsReplaced,
    SegmentsStaged,
    StagedSegment,
)
from rookery.cluster.events.topicevents import LogStartMoved, PartitionsAdded, TopicDeleted
from rookery.cluster.replica import Replica
from rookery.cluster.resources import TOPIC_RESOURCE
from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.errors import Conflict, ErrorCode
from rookery.formats.keys import (
    CLUSTER,
    Generation,
    index_key,
    journal_name,
    object_id,
    object_key,
    segment_key,
    snapshot_key,
    split_object_id,
    times_key,
)
from rookery.formats.manifest import Manifest, ManifestExtent, ManifestTopic, write_head
from rookery.formats.times import parse_times
from rookery.log.check.check import check
from rookery.log.check.fault import FaultKind
from rookery.log.check.sources import Bytes
from rookery.log.maintain import snapshots
from rookery.log.read.objects import key_of
from rookery.log.read.runs import body
from rookery.log.recover.recover import RecoveryPlan, append_unplaced, carry_out, check_lost, plan
from rookery.records import batches
from rookery.records.recordcodec import read
from tests.log.site import OTHER, TOPIC, Site, Writer, batch, rows


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.close()


async def recover(site: Site, *, append: bool = False) -> RecoveryPlan:
    """Lose the log and rebuild it; what comes out must be sound."""
    await site.lose_log()
    await check_lost(site.sources)
    made = await plan(site.sources, site.clock)
    await carry_out(site.sources, made, keep_unplaced=not append)
    if append:
        await append_unplaced(site.sources, made, site.clock, SystemRandom())
    report = await check(site.sources)
    bad = [fault for fault in report.faults if fault.kind is not FaultKind.SNAPSHOT]
    kept = 0 if append else len(made.unplaced)
    assert [fault.kind for fault in bad] == [FaultKind.ORPHANED] * kept, bad
    assert all(fault.key.startswith("_rookery/unplaced/") for fault in bad)
    return made


async def values(site: Site, replica: Replica, partition: int = 0) -> dict[int, bytes]:
    """Read all records of a partition by their offsets, as a reader would."""
    by_offset: dict[int, bytes] = {}
    known = replica.state.topics.partition(TOPIC, partition)
    assert known is not None
    reading = Bytes(site.sources, lambda: replica.state)
    for row in rows(known):
        if not row.object_id:
            continue
        begin, end = body(row)
        data = await reading.read(row.object_id, begin, end - begin)
        by_offset |= _values(row, data)
    return by_offset


def _values(row: Row, data: bytes) -> dict[int, bytes]:
    base, by_offset = row.base_offset, {}
    for header in batches.verify(data):
        first = header.base_offset if row.is_final else base
        for index, record in enumerate(read(data, header)):
            by_offset[first + index] = bytes(record.value or b"")
        base = first + header.last_offset_delta + 1
    return by_offset


async def fill(site: Site, writer: Writer, count: int = 3) -> None:
    for number in range(count):
        await writer.write(batch(0, records=2, size=20 + number), batch(1, size=50 + number))


async def test_existing_log_is_not_rebuilt(site: Site) -> None:
    await site.begin()
    with pytest.raises(Conflict, match="run `rookery fsck`"):
        await check_lost(site.sources)


async def test_all_records_are_recovered_at_their_offsets(site: Site) -> None:
    """Snapshot, then merged objects and segments, and flushes whose offsets were written later."""
    writer = await site.begin()
    await fill(site, writer)
    await snapshots.save(site.store, writer.replica.state)
    await fill(site, writer)
    await site.segment(writer, 0)
    await site.merge(writer, 1)
    await fill(site, writer)
    await writer.uploads.flush_notes()
    before = [await values(site, writer.replica, index) for index in (0, 1)]
    assert [len(records) for records in before] == [18, 9]

    made = await recover(site)

    assert made.unplaced == []
    assert made.rebuilt.lost == []
    replica = await site.open()
    assert [await values(site, replica, index) for index in (0, 1)] == before
    assert replica.state.cluster_id == "c"
    partition = replica.state.topics.by_name["birds"].partitions[0]
    assert (partition.log_start, partition.next_offset) == (0, 18)
    assert rows(partition)[0].is_segment


async def test_all_but_the_last_object_is_recovered_without_a_snapshot(site: Site) -> None:
    writer = await site.begin()
    await site.store.create(CLUSTER, [b"c"])
    await fill(site, writer)
    await site.segment(writer, 0)
    await fill(site, writer)
    before = [await values(site, writer.replica, index) for index in (0, 1)]

    made = await recover(site)

    assert made.snapshot == -1
    assert made.rebuilt.state.cluster_id == "c"
    assert [(unplaced.object_id, unplaced.records) for unplaced in made.unplaced] == [
        (object_id(writer.incarnation, writer.numbers.last), 3)
    ]
    assert made.rebuilt.catalog.added == ["birds"]
    replica = await site.open()
    assert await values(site, replica, 0) == {k: v for k, v in before[0].items() if k < 10}
    assert await values(site, replica, 1) == {k: v for k, v in before[1].items() if k < 5}


async def test_last_object_of_every_writer_is_named_and_kept(site: Site) -> None:
    writer, other = await site.begin(), await site.writer()
    await fill(site, writer)
    await fill(site, other)
    await snapshots.save(site.store, writer.replica.state)
    await writer.write(batch(0, records=2))
    await writer.write(batch(0, records=4), batch(1, records=3))
    await other.write(batch(1, records=5))

    made = await recover(site)

    assert [(item.records, [tuple(part) for part in item.parts]) for item in made.unplaced] == [
        (7, [("birds", 0, 0, 4), ("birds", 1, 0, 3)]),
        (5, [("birds", 1, 0, 5)]),
    ]
    kept = [item.key for item in await site.store.list("_rookery/unplaced/")]
    assert kept == [unplaced.key.replace("/objects/", "/unplaced/") for unplaced in made.unplaced]
    for key in kept:
        original = key.replace("/unplaced/", "/objects/")
        assert await site.store.read(key) == await site.store.read(original)


async def test_unplaced_objects_can_be_appended(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    await snapshots.save(site.store, writer.replica.state)
    await writer.write(batch(0, records=2, size=7))
    await writer.write(batch(0, records=4, size=8), batch(1, records=3, size=9))
    before = [await values(site, writer.replica, index) for index in (0, 1)]

    await recover(site, append=True)

    replica = await site.open()
    assert [await values(site, replica, index) for index in (0, 1)] == before


async def test_repeated_batch_among_unplaced_ones_is_not_appended_twice(site: Site) -> None:
    writer = await site.begin()
    await writer.write(batch(0, producer_id=7, producer_epoch=0, base_sequence=0))
    await writer.write(batch(0, producer_id=7, producer_epoch=0, base_sequence=1))
    await writer.uploads.flush_notes()
    await writer.upload(
        batch(0, producer_id=7, producer_epoch=0, base_sequence=1),
        batch(0, producer_id=7, producer_epoch=0, base_sequence=2),
    )
    await site.lose_log()
    made = await plan(site.sources, site.clock)
    await carry_out(site.sources, made, keep_unplaced=False)
    [placed] = await append_unplaced(site.sources, made, site.clock, SystemRandom())
    assert (placed.appended, placed.refused) == (1, 1)


async def test_producers_are_recovered(site: Site) -> None:
    """Records from before the snapshot, from after it, and rewritten since."""
    writer = await site.begin()
    send = [batch(0, producer_id=7, producer_epoch=0, base_sequence=number) for number in range(9)]
    for sent in send[:3]:
        await writer.write(sent)
    await snapshots.save(site.store, writer.replica.state)
    for sent in send[3:6]:
        await writer.write(sent)
    await site.merge(writer, 0)
    for sent in send[6:8]:
        await writer.write(sent)
    await writer.uploads.flush_notes()
    window = site.partition(writer).producers[7]

    await recover(site)

    other = await site.writer()
    assert (
        other.replica.state.topics.by_name["birds"].partitions[0].producers[7][10:] == window[10:]
    )
    [again] = await other.write(send[7])
    assert (again.is_duplicate, again.base_offset) == (True, 7)
    [new] = await other.write(send[8])
    assert (new.error, new.base_offset) == (ErrorCode.NONE, 8)


async def test_producer_ids_are_not_assigned_twice(site: Site) -> None:
    writer = await site.begin()
    await writer.replica.propose([ProducerIdsAllotted(count=1000)])
    await writer.write(batch(0, producer_id=5000, producer_epoch=0, base_sequence=0))
    await writer.uploads.flush_notes()
    await recover(site)
    replica = await site.open()
    assert replica.state.next_producer_id > 5000


async def test_object_names_are_never_reused(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    key = await site.segment(writer, 0)
    seen = writer.replica.state.applied
    await snapshots.save(site.store, writer.replica.state)
    await recover(site)

    other = await site.writer()
    assert other.incarnation > seen
    await fill(site, other)
    staged = StagedSegment(object_id=other.numbers(), topic_id=TOPIC, partition=0, base_offset=0)
    [outcome] = await other.replica.propose([SegmentsStaged(segments=[staged])])
    assert outcome.value == [False]
    assert key_of(other.replica.state, "default", staged.object_id) != key


async def test_rows_in_entries_are_lost_and_their_offsets_stay(site: Site) -> None:
    writer = await site.begin()
    await writer.write(batch(0, records=2))
    await writer.send(batch(0, records=3))
    await writer.write(batch(0, records=4))
    await snapshots.save(site.store, writer.replica.state)

    made = await recover(site)

    assert [tuple(lost) for lost in made.rebuilt.lost] == [("birds", 0, 2, 5)]
    replica = await site.open()
    assert sorted(await values(site, replica)) == [0, 1, 5, 6, 7, 8]
    assert replica.state.topics.by_name["birds"].partitions[0].next_offset == 9


async def test_missing_objects_leave_a_gap(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    await snapshots.save(site.store, writer.replica.state)
    await site.store.delete(site.key(writer, 0, row=1))
    made = await recover(site)
    assert [tuple(lost) for lost in made.rebuilt.lost] == [("birds", 0, 2, 4), ("birds", 1, 1, 2)]


async def test_unreadable_snapshot_is_reported_and_the_previous_one_is_used(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    number = await snapshots.save(site.store, writer.replica.state)
    await writer.uploads.flush_notes()
    await site.store.create(snapshot_key(number + 1000), [b"nonsense"])
    made = await recover(site)
    assert made.snapshot == number
    assert [fault.kind for fault in made.faults] == [FaultKind.SNAPSHOT]
    assert made.rebuilt.number > number + 1000


async def test_damaged_manifest_is_reported(site: Site) -> None:
    """With it go the offsets of the object before it."""
    writer = await site.begin()
    await snapshots.save(site.store, writer.replica.state)
    await fill(site, writer)
    await writer.uploads.flush_notes()
    key = site.key(writer, 0, row=1)
    await site.damage(key, 20)
    await site.lose_log()
    made = await plan(site.sources, site.clock)
    assert [(fault.kind, fault.key) for fault in made.faults] == [(FaultKind.CORRUPT, key)]
    assert [tuple(lost) for lost in made.rebuilt.lost] == [("birds", 0, 0, 4), ("birds", 1, 0, 2)]
    assert [unplaced.key for unplaced in made.unplaced] == [site.key(writer, 0)]


@pytest.mark.parametrize("ending", [index_key, times_key])
async def test_segment_without_its_companion_files_is_replaced_by_its_sources(
    site: Site, ending: Callable[[str], str]
) -> None:
    writer = await site.begin()
    await fill(site, writer)
    key = await site.segment(writer, 0)
    await writer.uploads.flush_notes()
    before = await values(site, writer.replica)
    await site.store.delete(ending(key))
    await site.lose_log()
    made = await plan(site.sources, site.clock)
    await carry_out(site.sources, made, keep_unplaced=True)
    replica = await site.open()
    assert await values(site, replica) == before
    assert not any(row.is_segment for row in rows(partition_of(replica)))


def partition_of(replica: Replica, index: int = 0, topic: bytes = TOPIC) -> Partition:
    partition = replica.state.topics.partition(topic, index)
    assert partition is not None
    return partition


async def test_topics_created_after_the_snapshot_are_recovered(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    change = ConfigsChanged(
        resource_type=TOPIC_RESOURCE,
        resource_name="birds",
        changes=[SettingChange(name="retention.ms", value="1000")],
    )
    await writer.replica.propose([change])
    await snapshots.save(site.store, writer.replica.state)
    await site.create(writer, OTHER, "fish", 3)
    await writer.replica.propose([PartitionsAdded(topic_id=TOPIC, partitions=5)])
    await writer.write(batch(2, topic=OTHER, records=3), batch(4))
    await writer.uploads.flush_notes()

    made = await recover(site)

    assert made.rebuilt.catalog.added == ["fish"]
    replica = await site.open()
    topics = replica.state.topics.by_name
    assert len(topics["fish"].partitions) == 3
    assert topics["fish"].id == OTHER
    assert partition_of(replica, 2, OTHER).next_offset == 3
    assert len(topics["birds"].partitions) == 5
    assert topics["birds"].configs == {"retention.ms": "1000"}


async def test_topic_deleted_before_the_snapshot_stays_deleted(site: Site) -> None:
    writer = await site.begin()
    await site.create(writer, OTHER, "fish")
    await writer.write(batch(0), batch(0, topic=OTHER))
    await writer.replica.propose([TopicDeleted(topic_id=OTHER)])
    await snapshots.save(site.store, writer.replica.state)
    await writer.uploads.flush_notes()
    await recover(site)
    assert list((await site.open()).state.topics.by_name) == ["birds"]


async def test_recreated_topic_replaces_the_old_one(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    await site.segment(writer, 0)
    await snapshots.save(site.store, writer.replica.state)
    await writer.replica.propose([TopicDeleted(topic_id=TOPIC)])
    await site.create(writer, OTHER, "birds")
    await writer.write(batch(0, topic=OTHER, records=2))
    await writer.uploads.flush_notes()

    made = await recover(site)

    assert made.rebuilt.catalog.dropped == ["birds"]
    replica = await site.open()
    assert replica.state.topics.by_name["birds"].id == OTHER
    assert partition_of(replica, 0, OTHER).next_offset == 2
    assert "birds" in replica.state.objects.retired_names


async def test_records_deleted_before_the_snapshot_stay_deleted(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    await writer.replica.propose([LogStartMoved(topic_id=TOPIC, partition=0, offset=3)])
    await snapshots.save(site.store, writer.replica.state)
    await writer.uploads.flush_notes()
    await recover(site)
    partition = partition_of(await site.open())
    assert (partition.log_start, partition.next_offset) == (3, 6)
    assert rows(partition)[0].base_offset == 2


async def test_condemned_objects_are_not_used(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    old = [row.object_id for row in rows(site.partition(writer))]
    await site.merge(writer, 0, 1)
    await writer.replica.propose([ObjectsCondemned(object_ids=old)])
    await snapshots.save(site.store, writer.replica.state)
    await site.store.delete(object_key(old[0]))
    await recover(site)
    replica = await site.open()
    assert set(replica.state.objects.condemned) == set(old)
    assert not {row.object_id for row in rows(partition_of(replica))} & set(old)


async def test_leader_epochs_of_rewritten_batches_are_recovered(site: Site) -> None:
    """Readers compare the epochs in final batches with those of the state."""
    writer = await site.begin()
    await fill(site, writer)
    await snapshots.save(site.store, writer.replica.state)
    for node in (9, 5, 1):
        event = BrokerRegistered(
            process_id=secrets.token_bytes(16), node_id=node, host="h", port=node
        )
        await (await site.open()).register(event)
        await writer.replica.barrier()
        await fill(site, writer)
    epochs = list(site.partition(writer).epochs)
    assert len(epochs) > 1
    await site.merge(writer, 0, 1)
    await recover(site)  # which checks them all
    partition = partition_of(await site.open())
    assert partition.epochs[1 : len(epochs)] == epochs[1:]
    assert partition.leader_epoch > epochs[-1][0] + 100


async def compact(site: Site, writer: Writer) -> None:
    """Rewrite partition 0 so that of its six offsets the first and the last are left."""
    partition = site.partition(writer)
    kept = []
    for offset in (0, 5):
        stamped = batch(0).data
        batches.stamp_into(stamped, offset, partition.epoch_at(offset))
        kept.append(bytes(stamped))
    size = sum(map(len, kept))
    identity = writer.numbers()
    extent = ManifestExtent(
        topic=0, partition=0, size=size, kind=int(RowKind.FINAL), base_offset=0, records=6,
        attributes=0, max_timestamp=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    head = write_head(
        Manifest(
            object_id=identity,
            created_ms=0,
            seen=writer.replica.state.applied,
            topics=[ManifestTopic(topic_id=TOPIC, name="birds", partitions=2)],
            extents=[extent],
            earlier=[],
        )
    )
    await site.store.create(object_key(identity), [head, *kept])
    piece = RowPiece(base_offset=0, position=len(head), size=size, max_timestamp=0)
    span = partition.span(0, 6)
    assert span is not None
    replaced = ReplacedRange(
        topic_id=TOPIC, partition=0, base_offset=0, end_offset=6, kind=int(RowKind.FINAL),
        fingerprint=partition.fingerprint(span), cleaned_to=6, pieces=[piece],
    )  # fmt: skip
    [outcome] = await writer.replica.propose([RowsReplaced(object_id=identity, ranges=[replaced])])
    assert outcome.value == [True]


@pytest.mark.parametrize("has_snapshot", [True, False])
async def test_gaps_of_compaction_are_recognised(site: Site, has_snapshot: bool) -> None:
    """Readers take a gap for damage where compaction was not."""
    writer = await site.begin()
    await fill(site, writer)
    if has_snapshot:
        await snapshots.save(site.store, writer.replica.state)
    await compact(site, writer)
    await writer.uploads.flush_notes()
    await recover(site)  # which checks that, too
    partition = partition_of(await site.open())
    assert len(rows(partition)) == 1
    assert partition.cleaned_to == 6


async def test_unneeded_segments_are_swept_later(site: Site) -> None:
    """Of two generations of a segment one is used, and the other is known."""
    writer = await site.begin()
    await fill(site, writer)
    key = await site.segment(writer, 0)
    await writer.uploads.flush_notes()
    old = rows(site.partition(writer))[0].object_id
    new = writer.numbers()
    times = parse_times(await site.store.read(times_key(key)))
    origin = times.origin._replace(number=split_object_id(new)[1])
    again = segment_key("default", "birds", 0, 0, Generation(*split_object_id(new)))
    await site.store.create(again, [await site.store.read(key)])
    await site.store.create(index_key(again), [await site.store.read(index_key(key))])
    await site.store.create(times_key(again), [replace(times, origin=origin).pack()])

    await recover(site)  # to which nothing is an orphan

    state = (await site.open()).state
    assert (state.objects.rows[old], state.objects.rows[new]) == (0, 1)
    assert key_of(state, "default", old) == key
    assert key_of(state, "default", new) == again


async def test_append_times_are_recovered(site: Site) -> None:
    writer = await site.begin()
    change = ConfigsChanged(
        resource_type=TOPIC_RESOURCE,
        resource_name="birds",
        changes=[SettingChange(name="message.timestamp.type", value="LogAppendTime")],
    )
    await writer.replica.propose([change])
    await writer.write(batch(0), batch(0))
    site.clock.advance(5000)
    await writer.write(batch(0))
    await writer.uploads.flush_notes()
    before = rows(site.partition(writer))
    assert all(row.is_append_time for row in before)
    await recover(site)
    assert rows(partition_of(await site.open())) == before


async def test_journals_are_recovered_as_far_as_the_snapshot_knows_them(
    site: Site, tmp_path: Path
) -> None:
    writer = await site.begin()
    await writer.append(batch(0, records=3, size=30))
    await snapshots.save(site.store, writer.replica.state)
    await writer.append(batch(0, records=2), batch(1, records=4))

    made = await recover(site)

    name = journal_name(object_id(writer.incarnation, 0))
    assert [(leftover.name, leftover.batches, leftover.records) for leftover in made.leftovers] == [
        (name, 2, 6)
    ]
    assert (tmp_path / "unplaced" / name).read_bytes() == (tmp_path / name).read_bytes()
    assert sorted(await values(site, await site.open())) == [0, 1, 2]


async def test_a_damaged_journal_row_is_lost(site: Site, tmp_path: Path) -> None:
    writer = await site.begin()
    await writer.append(batch(0, records=3, size=30))
    await writer.write(batch(0))
    await writer.append(batch(0, records=2))
    await snapshots.save(site.store, writer.replica.state)
    path = tmp_path / journal_name(object_id(writer.incarnation, 0))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    made = await recover(site)
    assert [tuple(lost) for lost in made.rebuilt.lost] == [("birds", 0, 0, 3)]
    assert sorted(await values(site, await site.open())) == [3, 4, 5]


async def test_interrupted_recovery_can_be_repeated(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    await writer.uploads.flush_notes()
    before = await values(site, writer.replica)
    await site.lose_log()
    made = await plan(site.sources, site.clock)
    await snapshots.save(site.store, made.rebuilt.state)
    # Here it ends: the log has not begun.
    await recover(site)
    assert await values(site, await site.open()) == before


async def test_recovery_can_run_twice_in_a_row(site: Site) -> None:
    writer = await site.begin()
    await fill(site, writer)
    await writer.uploads.flush_notes()
    await recover(site)
    other = await site.writer()
    await fill(site, other)
    await other.uploads.flush_notes()
    before = await values(site, other.replica)
    assert len(before) == 12
    await recover(site)
    assert await values(site, await site.open()) == before


@pytest.mark.parametrize("seed", range(12))
async def test_every_record_is_recovered_after_any_history(site: Site, seed: int) -> None:
    """Two writers and a rewriter, snapshots at any time, and then the loss."""
    chance = Random(seed)
    writers = [await site.begin(), await site.writer()]
    for _ in range(40):
        writer = chance.choice(writers)
        await writer.replica.barrier()
        match chance.choice(["write"] * 6 + ["merge", "segment", "snapshot", "finish"]):
            case "write":
                sizes = [(chance.randrange(2), chance.randrange(1, 5)) for _ in range(3)]
                await writer.write(*(batch(p, n, chance.randrange(1, 200)) for p, n in sizes))
            case "merge" if _has_loose(site, writer, 0) and _has_loose(site, writer, 1):
                await site.merge(writer, 0, 1)
            case "segment" if _has_loose(site, writer, 0):
                await site.segment(writer, 0)
            case "snapshot":
                await snapshots.save(site.store, writer.replica.state)
            case "finish":
                await writer.uploads.flush_notes()
            case _:
                pass  # there is nothing to rewrite
    for writer in writers:
        await writer.replica.barrier()
    before = [await values(site, writers[0].replica, index) for index in (0, 1)]

    made = await recover(site)

    assert len(made.unplaced) <= len(writers)
    assert not made.faults
    replica = await site.open()
    after = [await values(site, replica, index) for index in (0, 1)]
    for old, new in zip(before, after, strict=True):
        assert new.items() <= old.items()
    gone = sum(map(len, before)) - sum(map(len, after))
    assert gone <= sum(unplaced.records for unplaced in made.unplaced)


def _has_loose(site: Site, writer: Writer, partition: int) -> bool:
    return any(not row.is_segment for row in rows(site.partition(writer, partition)))
