"""The rewriter: readers see the same before, during and after, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rookery.cluster.events.brokerevents import BrokerExpired, BrokerRegistered
from rookery.cluster.events.logevents import RowsLost, RowsReplaced, SegmentsStaged
from rookery.cluster.events.topicevents import LogStartMoved, TopicDeleted
from rookery.cluster.replica import Replica
from rookery.cluster.state.partition import Partition, RowKind
from rookery.cluster.state.state import Outcome, State
from rookery.errors import Conflict, Unavailable
from rookery.formats.keys import is_stored, object_key, segment_key
from rookery.formats.manifest import read_head
from rookery.log.maintain.rewriter import DAMAGED_ROWS, Rewriter
from rookery.log.read.cache import BlockCache
from rookery.log.read.objects import keys_of
from rookery.log.read.reader import LogReader
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Tail
from rookery.log.settings import RewriteSettings
from rookery.records import batches, recordcodec
from rookery.store.port import Buffer, NotFound, Store, StoredObject
from rookery.wire.message import Message
from tests.log.rewriting import SMALL, TOPIC, ConsumedRecord, Process, Where, World, a_world

WHERE: tuple[Where, ...] = ("journal", "entry", "object")
HELD_MS = 60_000
"""How long something is skipped that could not be processed."""


class Failing:
    """A store that a test can look into, and stop, while something is being written."""

    def __init__(self, store: Store, when_created: Callable[[str], Awaitable[None]]) -> None:
        self._store = store
        self._when_created = when_created
        self.created: list[str] = []

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._store.create(key, parts)
        self.created.append(key)
        await self._when_created(key)

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return await self._store.read(key, start, size)

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        return await self._store.view(key, start, size)

    async def size(self, key: str) -> int | None:
        return await self._store.size(key)

    async def list(self, prefix: str = "") -> list[StoredObject]:
        return await self._store.list(prefix)

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        return await self._store.read_version(key)

    async def replace(self, key: str, data: bytes, version: str) -> str:
        return await self._store.replace(key, data, version)

    async def delete(self, key: str) -> None:
        await self._store.delete(key)

    async def close(self) -> None:
        """Leave the store open: it is another's."""


class Crash(BaseException):
    """The process ends here."""


def partition_of(process: Process, index: int = 0) -> Partition:
    return process.replica.state.topics.by_id[TOPIC].partitions[index]


def places(process: Process) -> set[str]:
    """Return the kinds of objects that rows are in."""
    kinds = set()
    for topic in process.replica.state.topics:
        for partition in topic.partitions:
            for kind, identity in zip(partition.kinds, partition.objects, strict=True):
                if kind & RowKind.SEGMENT:
                    kinds.add("segment")
                elif kind & RowKind.FINAL:
                    kinds.add("merged")
                elif identity > 0:
                    kinds.add("object" if is_stored(identity) else "journal")
                else:
                    kinds.add("entry" if identity else "lost")
    return kinds


def flip_byte(folder: Path, position: int) -> None:
    [path] = folder.glob("journal-*")
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


async def settle(world: World, rewriter: Rewriter) -> None:
    """Let everything become old, and be rewritten."""
    await rewriter.run()
    world.clock.advance(SMALL.merge_age_ms)
    await rewriter.run()
    world.clock.advance(SMALL.segment_age_ms)
    await rewriter.run()


@pytest.mark.parametrize("store", ["memory:", "file"])
@pytest.mark.parametrize("where", WHERE)
async def test_readers_see_the_same_after_merges_and_segments(
    where: Where, store: str, tmp_path: Path
) -> None:
    url = store if store == "memory:" else f"file://{tmp_path}/store"
    async with a_world(tmp_path / "journals", url) as world:
        process = await world.process()
        await world.topic(3)
        for _ in range(20):
            await world.produce([0, 1, 0, 2], where=where)
        before = await world.seen(process)
        assert places(process) == {where}
        await settle(world, process.rewriter(world))
        assert await world.seen(process) == before
        assert places(process) == {"segment"}
        assert process.replica.state.objects.oldest_payload is None


async def test_rewriting_works_while_producers_write(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(5)
        await world.topic(2, name="u", message_timestamp_type="LogAppendTime")
        rewriter = process.rewriter(world)
        before = await world.seen(process)
        for turn in range(30):
            where = WHERE[turn % 3]
            await world.produce([turn % 5, 0, (turn * 3) % 5, 0], where=where, size=turn * 20)
            await world.produce([0, 1, 0], where=where, topic_id=b"u" * 16)
            if turn % 7 == 6:
                # Another epoch begins.
                await process.replica.barrier()
                await world.broker.register(
                    BrokerRegistered(process_id=bytes(16), node_id=turn, host="h", port=1)
                )
            before = await world.seen(process)
            world.clock.advance(30_000)
            await rewriter.run()
            assert await world.seen(process) == before
        assert {"segment", "merged"} <= places(process)
        epochs = {record.epoch for seen in before.values() for record in seen}
        assert len(epochs) > 1


@pytest.mark.parametrize("seed", range(4))
async def test_two_rewriters_preserve_any_history(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    settings = RewriteSettings(
        merge_bytes=8_000, merge_rows=40, row_bytes=1_500, segment_bytes=6_000,
        segment_min_bytes=700, segment_age_ms=600_000, max_age_ms=2_000_000,
    )  # fmt: skip
    async with a_world(tmp_path) as world:
        processes = [await world.process(), await world.process()]
        rewriters = [process.rewriter(world, settings) for process in processes]
        await world.topic(4)
        for _ in range(40):
            await world.produce(
                random.choices(range(4), k=random.randint(1, 6)),
                where=random.choice(WHERE),
                size=random.choice([1, 50, 400, 3000]),
            )
            await world.broker.barrier()
            partition = random.choice(world.broker.state.topics.by_id[TOPIC].partitions)
            offset = random.randint(partition.log_start, partition.next_offset)
            if random.random() < 0.2:
                moved = LogStartMoved(topic_id=TOPIC, partition=partition.index, offset=offset)
                await world.broker.propose([moved])
            world.clock.advance(random.choice([0, 1_000, 30_000, 400_000]))
            before = await world.seen(processes[0])
            chosen = random.choice([rewriters[:1], rewriters[1:], rewriters])
            forced = random.choice([0, world.broker.state.applied])
            await asyncio.gather(*(rewriter.run(forced) for rewriter in chosen))
            assert await world.seen(processes[0]) == before
        assert "segment" in places(processes[0])
        assert not rewriters[0].damage | rewriters[1].damage
        # The store has no object that the state does not know.
        objects = processes[0].replica.state.objects
        known = {*objects.rows, *objects.condemned, *objects.segments}
        keys = {key for identity in known if identity > 0 for key in _keys(processes[0], identity)}
        assert {item.key for item in await world.store.list()} <= keys


async def test_broker_reader_sees_the_same_after_rewriting(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(3, message_timestamp_type="LogAppendTime")
        rewriter = process.rewriter(world)
        for turn in range(24):
            await world.produce([0, 0, turn % 3], where=WHERE[turn % 3], size=300)
            world.clock.advance(20_000)
            await rewriter.run()
        await world.broker.propose([RowsLost(topic_id=TOPIC, partition=2, base_offsets=[0])])
        await settle(world, rewriter)
        await world.produce([0, 1, 2], where="entry")
        await rewriter.run(world.broker.state.applied)
        await world.produce([0, 1, 2])
        seen = await world.seen(process)
        assert places(process) == {"segment", "merged", "journal"}
        cache = BlockCache(process.places.read, name=process.places.name)
        layouts = Layouts(process.places, cache.read)
        reader = LogReader(world.log(), cache, Tail(), layouts=layouts)
        for index in range(3):
            records, offset = [], 0
            partition = partition_of(process, index)
            while offset < partition.next_offset:
                piece = await reader.read((TOPIC, index), partition, offset, 1000)
                assert piece.next_offset > offset
                offset = piece.next_offset
                data = b"".join(piece.parts)
                records += [
                    ConsumedRecord(
                        record.offset,
                        record.key,
                        record.value,
                        record.timestamp,
                        header.partition_leader_epoch,
                    )
                    for header in batches.verify(data)
                    for record in recordcodec.read(data, header)
                ]
            assert records == seen["t", index]


async def test_append_times_are_written_into_the_bytes(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1, message_timestamp_type="LogAppendTime")
        times = []
        for where in WHERE * 2:
            times += [world.clock.now_ms()] * 2
            await world.produce([0], where=where, size=1000)
            world.clock.advance(10)
        before = await world.seen(process)
        assert [record.timestamp for record in before["t", 0]] == times
        await settle(world, process.rewriter(world))
        assert places(process) == {"segment"}
        assert await world.seen(process) == before
        assert partition_of(process).kinds[0] == RowKind.FINAL | RowKind.SEGMENT


async def test_slow_writes_to_many_partitions_become_one_object(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(600)
        settings = RewriteSettings()
        for start in range(0, 600, 100):
            await world.produce(range(start, start + 100))
        await world.produce(range(100), where="entry", size=1)
        before = await world.seen(process)
        store = Failing(world.store, lambda _: asyncio.sleep(0))
        rewriter = process.rewriter(world, settings, store)
        assert not await rewriter.run()  # all is new
        world.clock.advance(settings.merge_age_ms)
        assert await rewriter.run()
        assert len(store.created) == 1
        assert places(process) == {"merged"}
        assert all(len(partition_of(process, index).objects) == 1 for index in range(600))
        assert await world.seen(process) == before
        manifest, _ = read_head(await world.store.read(store.created[0]))
        assert [topic.name for topic in manifest.topics] == ["t"]
        assert [extent.partition for extent in manifest.extents] == list(range(600))


async def test_busy_partition_does_not_delay_a_quiet_one(tmp_path: Path) -> None:
    # A round can make one segment, and there are always more of them to be made.
    settings = replace(SMALL, round_bytes=SMALL.segment_bytes // 2)
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(2)
        await world.produce([1], where="object")
        rewriter = process.rewriter(world, settings)
        for _ in range(3):
            await world.produce([0], where="object", size=3 * SMALL.segment_bytes // 2)
            world.clock.advance(SMALL.merge_age_ms)
            await rewriter.run()
        assert partition_of(process, 1).kinds[0] & RowKind.FINAL
        assert partition_of(process, 0).kinds[0] & RowKind.SEGMENT


async def test_small_merged_objects_are_merged_again(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(4)
        rewriter = process.rewriter(world, RewriteSettings())
        for _ in range(80):
            await world.produce([0, 1, 2, 3], where="object", size=10)
            await rewriter.run()
            world.clock.advance(60_000)
        before = await world.seen(process)
        objects = [
            identity for identity, rows in process.replica.state.objects.rows.items() if rows
        ]
        assert len(objects) <= 16
        assert len(partition_of(process).objects) <= 16
        assert await world.seen(process) == before


async def test_payloads_are_moved_out_of_entries_on_request(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await world.produce([0], where="entry")
        before = await world.seen(process)
        rewriter = process.rewriter(world)
        assert not await rewriter.run()
        applied = process.replica.state.applied
        assert process.replica.state.objects.oldest_payload == applied
        assert await rewriter.run(applied)
        assert not process.replica.state.objects.oldest_payload
        assert await world.seen(process) == before


async def test_sparse_objects_are_emptied(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(30)
        rewriter = process.rewriter(world, RewriteSettings(merge_bytes=4_000))
        await world.produce(range(30), where="object")
        await rewriter.run()
        sparse = partition_of(process).objects[0]
        for index in range(28):
            moved = LogStartMoved(topic_id=TOPIC, partition=index + 1, offset=2)
            await world.broker.propose([moved])
        before = await world.seen(process)
        await rewriter.run()
        assert await world.seen(process) == before
        assert not process.replica.state.objects.rows[sparse]


async def test_lost_bytes_are_a_gap(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        for _ in range(30):
            await world.produce([0], size=400, where="object")
        await world.broker.propose([RowsLost(topic_id=TOPIC, partition=0, base_offsets=[0, 8, 10])])
        before = await world.seen(process)
        assert [record.offset for record in before["t", 0]][:8] == [2, 3, 4, 5, 6, 7, 12, 13]
        await settle(world, process.rewriter(world))
        assert places(process) == {"segment"}
        assert await world.seen(process) == before


async def test_damage_is_never_copied_and_blocks_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(2)
        for _ in range(40):
            await world.produce([0, 1], size=300)
        await process.replica.barrier()
        row = partition_of(process).row(11)
        flip_byte(tmp_path, row.position + 100)
        count = DAMAGED_ROWS.value
        rewriter = process.rewriter(world)
        await settle(world, rewriter)
        assert rewriter.damage == {(row.object_id, row.position)}
        assert DAMAGED_ROWS.value == count + 1
        assert "CRC" in caplog.text
        assert "topic t partition 0 offsets 22 to 23" in caplog.text
        partition = partition_of(process)
        left = partition.row(partition.row_of(22))
        assert left == row
        assert set(partition.objects) - {row.object_id} == {
            identity for identity in partition.objects if is_stored(identity)
        }
        assert places(process) == {"segment", "journal"}


async def test_a_missing_object_is_damage_only_if_rows_still_name_it(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(2)
        await world.produce([0], where="object")
        await process.replica.barrier()
        gone = partition_of(process).objects[0]
        await world.produce([1], where="object")
        await world.store.delete(object_key(gone))
        rewriter = process.rewriter(world)
        await settle(world, rewriter)
        assert rewriter.damage == {(gone, 0)}
        assert partition_of(process).objects[0] == gone
        assert partition_of(process, 1).kinds[0] & RowKind.FINAL


async def test_rows_moved_during_a_read_are_not_damage(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await world.produce([0], where="object")
        rewriter = process.rewriter(world)
        await rewriter.run()

        async def too_late(object_id: int, position: int, size: int) -> bytes:
            await world.broker.propose([LogStartMoved(topic_id=TOPIC, partition=0, offset=-1)])
            raise NotFound(object_key(object_id))

        rewriter.read = too_late
        world.clock.advance(SMALL.merge_age_ms)
        assert not await rewriter.run()
        assert not rewriter.damage


async def test_damage_is_forgotten_with_its_object(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await world.produce([0])
        await process.replica.barrier()
        flip_byte(tmp_path, partition_of(process).positions[0] + 70)
        rewriter = process.rewriter(world)
        await settle(world, rewriter)
        assert len(rewriter.damage) == 1
        await world.broker.propose([LogStartMoved(topic_id=TOPIC, partition=0, offset=-1)])
        await rewriter.run()
        assert not rewriter.damage


async def test_rows_keep_their_age_in_a_merged_object(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await world.produce([0], where="object", size=2_000)
        rewriter = process.rewriter(world)
        await rewriter.run()
        world.clock.advance(SMALL.merge_age_ms)
        await rewriter.run()
        assert places(process) == {"merged"}
        world.clock.advance(SMALL.segment_age_ms - SMALL.merge_age_ms)
        await rewriter.run()
        assert places(process) == {"segment"}


async def test_rows_and_events_stay_within_their_bounds(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1100)
        for start in range(0, 1100, 100):
            await world.produce(range(start, start + 100), where="object", size=1)
        for _ in range(10):
            await world.produce([0, 0], where="object", size=500)
        before = await world.seen(process)
        rewriter = process.rewriter(
            world, RewriteSettings(merge_age_ms=1, row_bytes=3_000, segment_bytes=1_000_000)
        )
        recorder = Recording(process.replica)
        rewriter.replica = recorder
        await rewriter.run()
        world.clock.advance(1)
        await rewriter.run()
        replaced = [event for event in recorder.events if isinstance(event, RowsReplaced)]
        assert [len(event.ranges) for event in replaced] == [500, 500, 100]
        sizes = partition_of(process).sizes
        assert max(sizes) <= 3_000
        assert len(sizes) < 12
        assert await world.seen(process) == before


async def test_temporarily_unreadable_rows_are_retried(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(2)
        await world.produce([0], where="object")
        await world.produce([1])
        await process.replica.barrier()
        rewriter = process.rewriter(world)
        read = rewriter.read

        async def refusing(object_id: int, position: int, size: int) -> Buffer:
            if not is_stored(object_id):
                raise Unavailable("the disk does not answer")
            return await read(object_id, position, size)

        rewriter.read = refusing
        await settle(world, rewriter)
        assert partition_of(process).kinds[0] & RowKind.FINAL
        assert not partition_of(process, 1).kinds[0] & RowKind.FINAL
        [problem] = rewriter.quarantine.report()
        assert problem.startswith("topic t partition 1 offsets 0 to 1")
        assert problem.endswith("the disk does not answer")
        assert not rewriter.damage
        rewriter.read = read
        world.clock.advance(HELD_MS)
        await rewriter.run()
        assert partition_of(process, 1).kinds[0] & RowKind.FINAL
        assert rewriter.lag().bytes == 0


@pytest.mark.parametrize("size", [100, 2000])
async def test_one_of_two_concurrent_rewrites_is_void(tmp_path: Path, size: int) -> None:
    async with a_world(tmp_path) as world:
        process, other = await world.process(), await world.process()
        await world.topic(2)
        for _ in range(6):
            await world.produce([0, 0, 1, 1], where="object", size=size)
        before = await world.seen(process)
        rewriters = process.rewriter(world), other.rewriter(world)
        for rewriter in rewriters:
            await rewriter.run()
        world.clock.advance(SMALL.merge_age_ms)
        await asyncio.gather(*(rewriter.run() for rewriter in rewriters))
        assert await world.seen(process) == before
        state = process.replica.state
        assert state.objects.condemned
        assert not any(state.objects.rows[condemned] for condemned in state.objects.condemned)
        # Whatever either has written is in use, or condemned.
        await other.replica.barrier()
        named = set(partition_of(process).objects) | set(partition_of(process, 1).objects)
        own = {process.replica.incarnation, other.replica.incarnation}
        written = {item.key for item in await world.store.list() if _is_of(item.key, own)}
        known = named | set(state.objects.condemned) | set(state.objects.rows)
        assert written <= {key for known_id in known for key in _keys(process, known_id)}


@pytest.mark.parametrize("what", ["retention", "deleted", "part"])
async def test_concurrent_change_voids_the_rewrite(tmp_path: Path, what: str) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(2)
        for _ in range(12):
            await world.produce([0], where="object", size=1000)
        await world.produce([1], where="object")
        await process.replica.barrier()
        before = await world.seen(process)
        event: Message = {
            "retention": LogStartMoved(topic_id=TOPIC, partition=0, offset=-1),
            "part": LogStartMoved(topic_id=TOPIC, partition=0, offset=3),
            "deleted": TopicDeleted(topic_id=TOPIC),
        }[what]

        async def meanwhile(key: str) -> None:
            if key.endswith(".kfs"):
                await world.broker.propose([event])

        store = Failing(world.store, meanwhile)
        await process.rewriter(world, store=store).run()
        await process.replica.barrier()
        state = process.replica.state
        assert len(state.objects.condemned) >= 1
        [condemned] = [
            segment for segment in state.objects.segments if segment in state.objects.condemned
        ]
        assert set(_keys(process, condemned)) <= set(store.created)
        after = await world.seen(process)
        if what == "part":
            assert after["t", 0] == before["t", 0][2:]
        else:
            assert not after.get(("t", 0))


@pytest.mark.parametrize("step", ["staged", ".index", ".times", ".kfs", "proposed"])
async def test_crash_at_any_step_leaves_recognisable_orphans(tmp_path: Path, step: str) -> None:
    async with a_world(tmp_path) as world:
        process, other = await world.process(), await world.process()
        await world.topic(1)
        for _ in range(12):
            await world.produce([0], where="object", size=1000)
        before = await world.seen(process)
        left = await crash_at(world, process, step)
        assert await world.seen(other) == before
        state = other.replica.state
        orphans = set(state.objects.empty(state.brokers.sequences)) & set(state.objects.segments)
        if step == "proposed":
            assert places(other) == {"segment", "object"}
            assert not orphans
        else:
            [orphan] = orphans
            assert left <= set(_keys(other, orphan))
            assert bool(left) == (step != "staged")
            assert any(key.endswith(".kfs") for key in left) == (step == ".kfs")
        await other.rewriter(world).run()
        assert await world.seen(other) == before
        assert "segment" in places(other)


async def crash_at(world: World, process: Process, step: str) -> set[str]:
    """Let a rewriter end right after a step, and be missed; return the keys it has written."""

    async def crash(key: str) -> None:
        if key.endswith(step):
            raise Crash

    store = Failing(world.store, crash)
    events: dict[str, type[Message]] = {"staged": SegmentsStaged, "proposed": RowsReplaced}
    event = events.get(step)
    replica = Dying(process.replica, event) if event is not None else None
    rewriter = process.rewriter(world, store=store, replica=replica)
    with pytest.raises(Crash):
        await rewriter.run()
    incarnation = process.replica.incarnation
    sequence = process.replica.state.brokers.sequences[incarnation]
    await world.broker.barrier()
    await world.broker.propose([BrokerExpired(incarnation=incarnation, last_sequence=sequence)])
    return {key for key in store.created if key.startswith("default/")}


async def test_rewriter_condemns_objects_it_could_not_finish(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await world.produce([0], where="entry")
        before = await world.seen(process)
        failures = ["once"]

        async def unknown(_key: str) -> None:
            if failures:
                failures.pop()
                raise Unavailable("no answer: it may be there or not")

        store = Failing(world.store, unknown)
        rewriter = process.rewriter(world, store=store)
        with pytest.raises(Unavailable):
            await rewriter.run(process.replica.state.applied)
        assert await rewriter.run(process.replica.state.applied)
        assert await world.seen(process) == before
        objects = process.replica.state.objects
        assert [object_key(identity) for identity in objects.condemned] == store.created[:1]
        in_use = [object_key(identity) for identity, rows in objects.rows.items() if rows]
        assert in_use == store.created[1:]


async def test_existing_key_is_not_overwritten(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        for _ in range(12):
            await world.produce([0], where="object", size=1000)
        before = await world.seen(process)
        key = segment_key("default", "t", 0, 0)
        await world.store.create(key, [b"of another cluster"])
        rewriter = process.rewriter(world)
        await rewriter.run()
        assert "segment" not in places(process)
        assert "exists already" in rewriter.quarantine.report()[0]
        world.clock.advance(HELD_MS)
        await rewriter.run()
        assert not rewriter.quarantine.report()
        assert "segment" in places(process)
        assert await world.seen(process) == before
        assert await world.store.read(key) == b"of another cluster"
        assert not process.replica.state.objects.condemned


async def test_second_generation_of_a_segment_has_another_name(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        keys = []
        for _ in range(2):
            await world.topic(1)
            for _ in range(12):
                await world.produce([0], where="object", size=1000)
            before = await world.seen(process)
            await process.rewriter(world).run()
            assert await world.seen(process) == before
            keys += _keys(process, partition_of(process).objects[0])
            await world.broker.propose([TopicDeleted(topic_id=TOPIC)])
        assert keys[0] == segment_key("default", "t", 0, 0)
        assert len(set(keys)) == 6


async def test_fenced_rewriter_changes_nothing(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await world.produce([0], where="entry")
        before = await world.seen(process)
        incarnation = process.replica.incarnation
        await world.broker.propose([BrokerExpired(incarnation=incarnation, last_sequence=0)])
        with pytest.raises(Conflict):
            await process.rewriter(world).run(process.replica.state.applied)
        assert await world.seen(process) == before


class Recording:
    """A replica that keeps what was proposed to it."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.events: list[Message] = []

    @property
    def state(self) -> State:
        return self._replica.state

    async def barrier(self) -> None:
        await self._replica.barrier()

    def propose(self, events: Sequence[Message]) -> asyncio.Future[list[Outcome]]:
        self.events += events
        return self._replica.propose(events)


class Dying(Recording):
    """A replica whose process ends right after an event was applied."""

    def __init__(self, replica: Replica, event: type[Message]) -> None:
        super().__init__(replica)
        self._event = event

    def propose(self, events: Sequence[Message]) -> asyncio.Future[list[Outcome]]:
        async def dying() -> list[Outcome]:
            await self._replica.propose(events)
            raise Crash

        if isinstance(events[0], self._event):
            return asyncio.ensure_future(dying())
        return super().propose(events)


def _keys(process: Process, object_id: int) -> list[str]:
    return keys_of(process.replica.state, "default", object_id) if is_stored(object_id) else []


def _is_of(key: str, incarnations: set[int]) -> bool:
    return any(f"/{incarnation:016x}/" in key for incarnation in incarnations) or key.startswith(
        "default/"
    )
