"""Maintenance continues after failures: one partition, object or step does not stop the others."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.events.brokerevents import BrokerExpired
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.events.topicevents import LogStartMoved, TopicDeleted
from rookery.cluster.state.partition import RowKind
from rookery.cluster.state.topics import Topic
from rookery.errors import Corrupt, Unavailable
from rookery.formats.keys import STORED, object_id
from rookery.formats.manifest import ManifestExtent
from rookery.log.maintain import newobjects
from rookery.log.maintain.caretaker import Caretaker
from rookery.log.maintain.quarantine import Quarantine
from rookery.log.maintain.refine import RefinedRow
from rookery.log.maintain.retention import Retention
from rookery.log.maintain.sweeper import Sweeper
from rookery.log.settings import CareSettings
from rookery.records import batches
from rookery.records.recordcodec import Record, build
from rookery.testing.clock import ManualClock
from tests.log.rewriting import SMALL, TOPIC, Process, World, a_world
from tests.log.site import Site
from tests.log.transacting import Transactor

DAY = 86_400_000


class Limits:
    """Records older than a second go."""

    retention_ms = 1_000
    retention_bytes = -1
    is_deleted = True


class Bin:
    """Objects by id; some cannot be deleted."""

    def __init__(self, *stuck: int) -> None:
        self.stuck = set(stuck)
        self.tried: list[int] = []
        self.listing: Exception | None = None

    async def find(self) -> list[int]:
        if self.listing is not None:
            raise self.listing
        return []

    async def delete(self, object_id: int) -> None:
        self.tried.append(object_id)
        if object_id in self.stuck:
            raise Unavailable(f"object {object_id} cannot be removed: permission denied")


def caretaker(world: World, process: Process, retention: Retention, objects: Bin) -> Caretaker:
    settings = CareSettings(snapshot_entries=1, producer_expiration_ms=DAY)
    made = Caretaker(process.replica, world.log(), world.store, world.clock, settings)
    sweeper = Sweeper(process.replica, objects, world.clock, 0, 1)
    made.employ(retention, sweeper, process.rewriter(world))
    return made


async def commit_idle_producers(world: World, partitions: int, producers: int) -> None:
    for producer in range(producers):
        extents = [
            Extent(
                topic_id=TOPIC, partition=index, position=0, size=100, records=1, attributes=0,
                max_timestamp=1, producer_id=producer, producer_epoch=0, base_sequence=0,
            )
            for index in range(partitions)
        ]  # fmt: skip
        stored = object_id(world.broker.incarnation, STORED + 1)
        await world.broker.propose([BatchesCommitted(object_id=stored, extents=extents)])


def windows(process: Process) -> int:
    return sum(
        len(partition.producers)
        for topic in process.replica.state.topics
        for partition in topic.partitions
    )


async def test_more_idle_producers_than_an_entry_holds_are_expired(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(120)
        await commit_idle_producers(world, 120, 300)
        await process.replica.barrier()
        world.clock.advance(DAY + 1)
        retention = Retention(process.replica, world.clock, lambda _: Limits())

        assert await retention.expire_producers(DAY) == 36_000

        assert windows(process) == 0


async def test_a_producer_with_an_open_transaction_is_not_expired() -> None:
    site = Site()
    writer = await site.begin(partitions=1)
    try:
        open_one = await Transactor(writer, "open").init()
        ended = await Transactor(writer, "ended").init()
        for producer in (open_one, ended):
            await producer.write(b"k", b"v")
        await ended.end(commit=True)
        site.clock.advance(DAY + 1)
        retention = Retention(writer.replica, site.clock, lambda _: Limits())

        assert await retention.expire_producers(DAY) == 1

        assert list(site.partition(writer).producers) == [open_one.own.producer_id]
    finally:
        await site.close()


async def test_settings_that_cannot_be_read_stop_the_retention_of_their_topic_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def limits(topic: Topic) -> Limits:
        if topic.name == "bad":
            raise ValueError("no number")
        return Limits()

    async with a_world(tmp_path) as world:
        process = await world.process()
        for name in ("bad", "good"):
            topic_id = await world.topic(1, name=name)
            await world.produce([0], topic_id=topic_id)
        await process.replica.barrier()
        world.clock.advance(10_000)
        retention = Retention(process.replica, world.clock, limits)

        for _ in range(3):
            await retention.retain()

        starts = {each.name: each.partitions[0].log_start for each in process.replica.state.topics}
        assert starts == {"bad": 0, "good": 2}
        assert retention.quarantine.report() == ["retention of topic bad partition 0: no number"]
        assert caplog.text.count("retention of topic bad") == 1
        await world.broker.propose([TopicDeleted(topic_id=b"badbadbadbadbadb")])
        await process.replica.barrier()
        await retention.retain()
        assert retention.quarantine.report() == []


def poison(monkeypatch: pytest.MonkeyPatch, partition: int, offset: int) -> None:
    """Let no object be made that holds one offset of a partition."""
    make = newobjects._extent

    def made(topic: int, index: int, rows: list[RefinedRow]) -> ManifestExtent:
        row = rows[0].row._replace(end_offset=rows[-1].row.end_offset)
        if index == partition and row.base_offset <= offset < row.end_offset:
            raise ValueError("records: 2147483649 is not between -2147483648 and 2147483647")
        return make(topic, index, rows)

    monkeypatch.setattr(newobjects, "_extent", made)


async def test_unmergeable_row_is_skipped_and_others_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(3)
        for _ in range(4):
            await world.produce([0, 1, 2], where="object", size=10)
        poison(monkeypatch, partition=1, offset=5)
        before = await world.seen(process)
        rewriter = process.rewriter(world)

        for _ in range(3):
            await rewriter.run()
            world.clock.advance(SMALL.merge_age_ms - 1)

        [topic] = process.replica.state.topics
        merged = [
            [bool(kind & RowKind.FINAL) for kind in partition.kinds]
            for partition in topic.partitions
        ]
        assert merged[0] == [True]
        assert sorted(merged[1]) == [False, True, True]
        assert merged[2] == [True]
        assert [line.split(":")[0] for line in rewriter.quarantine.report()] == [
            "rewrite of topic t partition 1 offsets 4 to 5"
        ]
        assert caplog.text.count("offsets 4 to 5") == 1
        assert await world.seen(process) == before

        monkeypatch.undo()
        world.clock.advance(DAY)
        await rewriter.run()
        world.clock.advance(SMALL.merge_age_ms)
        await rewriter.run()

        assert all(kind & RowKind.FINAL for kind in topic.partitions[1].kinds)
        assert rewriter.quarantine.report() == []


async def test_rows_of_a_failed_segment_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a segment has no room")

    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(2)
        for _ in range(10):
            await world.produce([0], where="entry", size=2_000)
        await world.produce([1], where="entry")
        monkeypatch.setattr("rookery.log.maintain.rewriter.segment", broken)
        rewriter = process.rewriter(world)

        await rewriter.run()
        await rewriter.run(process.replica.state.applied)

        [topic] = process.replica.state.topics
        assert process.replica.state.objects.oldest_payload is None
        assert all(
            kind & RowKind.FINAL for partition in topic.partitions for kind in partition.kinds
        )
        assert rewriter.quarantine.report() == [
            "segment of topic t partition 0 offsets 0 to 7: a segment has no room"
        ]


async def test_batches_with_the_maximum_offset_count_are_merged_and_become_segments(
    tmp_path: Path,
) -> None:
    claimed = 2**31 - 1
    packed = gzip.compress(b"no records")
    header = batches.parse(build([Record(None, b"v")]))._replace(
        attributes=1, record_count=claimed, last_offset_delta=claimed - 1
    )
    poison = batches.seal(header, packed) + packed
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(2)
        extents = [
            Extent(
                topic_id=TOPIC, partition=0, position=n * len(poison), size=len(poison),
                records=claimed, attributes=1, max_timestamp=header.max_timestamp,
                producer_id=-1, producer_epoch=-1, base_sequence=-1,
            )
            for n in range(3)
        ]  # fmt: skip
        await world.broker.propose([BatchesCommitted(object_id=0, extents=extents)], [poison] * 3)
        await world.produce([0, 1], where="entry")
        await process.replica.barrier()
        partition = process.replica.state.topics.by_id[TOPIC].partitions[0]
        assert list(partition.base_offsets) == [0, 3 * claimed]
        settings = replace(SMALL, segment_age_ms=1, segment_min_bytes=1)
        rewriter = process.rewriter(world, settings)

        await rewriter.run(process.replica.state.applied)

        assert process.replica.state.objects.oldest_payload is None
        assert list(partition.base_offsets) == [0, claimed, 2 * claimed, 3 * claimed]
        world.clock.advance(SMALL.merge_age_ms)
        await rewriter.run()
        assert all(kind & RowKind.SEGMENT for kind in partition.kinds)
        assert rewriter.quarantine.report() == []


async def test_fault_in_every_row_ends_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def fail(*sources: object) -> None:
        tried.append(sources)
        raise ValueError("always")

    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(200)
        await world.produce(range(200), where="entry")
        await process.replica.barrier()
        monkeypatch.setattr("rookery.log.maintain.rewriter.merge", fail)

        with pytest.raises(ValueError, match="always"):
            await process.rewriter(world).run(process.replica.state.applied)

        assert len(tried) == 100


async def test_each_step_of_a_round_fails_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await world.produce([0], where="object")
        objects = Bin()
        objects.listing = Corrupt("a name of another program")
        retention = Retention(process.replica, world.clock, lambda _: Limits())
        made = caretaker(world, process, retention, objects)

        async def fail(*_: object) -> int:
            raise RuntimeError("a bug")

        monkeypatch.setattr(retention, "retain", fail)
        monkeypatch.setattr(retention, "expire_producers", fail)

        first, second = await made.round(), await made.round()

        assert first.snapshot > 0
        assert second.quarantined == 3
        assert second.failures == 6
        assert second.problems == [
            "upkeep: retention: a bug",
            "upkeep: expiry of producers: a bug",
            "search for orphaned objects: a name of another program",
        ]
        assert caplog.text.count("upkeep: retention: a bug") == 1

        monkeypatch.undo()
        objects.listing = None

        assert (await made.round()).problems == []


async def test_failed_snapshot_is_not_retried_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    async def fail(*args: object) -> int:
        tried.append(args)
        raise Corrupt("it reads back otherwise")

    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        retention = Retention(process.replica, world.clock, lambda _: Limits())
        made = caretaker(world, process, retention, Bin())
        monkeypatch.setattr("rookery.log.maintain.snapshots.save", fail)

        await made.round()

        assert not await made.is_behind()
        await made.round()
        assert len(tried) == 1
        world.clock.advance(60_000)
        assert await made.is_behind()


async def test_undeletable_object_does_not_block_others(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        for _ in range(3):
            await world.produce([0], where="object")
        await process.replica.barrier()
        stored = sorted(process.replica.state.objects.rows)
        await world.broker.propose([LogStartMoved(topic_id=TOPIC, partition=0, offset=-1)])
        await process.replica.barrier()
        objects = Bin(stored[1])
        sweeper = Sweeper(process.replica, objects, world.clock, 0, 1)
        await sweeper.condemn()
        snapshot = process.replica.state.applied

        assert await sweeper.delete(snapshot) == 2
        assert await sweeper.delete(snapshot) == 0

        assert objects.tried == stored
        assert list(process.replica.state.objects.condemned) == [stored[1]]
        assert len(sweeper.quarantine) == 1
        objects.stuck.clear()
        world.clock.advance(60_000)
        assert await sweeper.delete(snapshot) == 1
        assert not sweeper.quarantine.report()


async def test_round_of_an_expired_process_ends(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await world.produce([0])
        retention = Retention(process.replica, world.clock, lambda _: Limits())
        made = caretaker(world, process, retention, Bin())
        world.clock.advance(10_000)
        expired = BrokerExpired(incarnation=process.replica.incarnation, last_sequence=0)
        await world.broker.propose([expired])

        with pytest.raises(IncarnationFenced):
            await made.round()


def test_pauses_grow_unless_the_cause_is_only_unavailable() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock)
    faults: list[tuple[Exception, list[int]]] = [
        (ValueError("bad"), [60_000, 120_000, 240_000]),
        (Unavailable("away"), [60_000, 60_000, 60_000]),
    ]
    for error, pauses in faults:
        key = ("row", str(error))
        for pause in pauses:
            quarantine.add(key, "a row", error)
            clock.advance(pause - 1)
            assert quarantine.list_held("row") == [key[1:]]
            clock.advance(1)
            assert not quarantine.holds(key)


def test_report_fits_into_one_line() -> None:
    quarantine = Quarantine(ManualClock())
    for number in range(1_000):
        quarantine.add(("row", number), "a row", ValueError("x" * 10_000), is_logged=False)

    assert len(quarantine) == 1_000
    assert len("".join(quarantine.report())) <= 6_000
