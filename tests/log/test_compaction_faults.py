"""Compaction with other processes: two compactors, crashes, damage, and concurrent changes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rookery.cluster.events.logevents import BatchesCommitted, Extent, RowsLost
from rookery.cluster.events.topicevents import LogStartMoved, TopicDeleted
from rookery.errors import Unavailable
from rookery.log.read.objects import key_of, keys_of
from rookery.log.settings import RewriteSettings
from rookery.records import batches, recordcodec
from rookery.records.compression import GZIP
from rookery.records.recordcodec import BatchSettings
from tests.log.compacting import (
    Sent,
    Topical,
    body,
    compactor,
    end,
    fill,
    is_clean,
    partition_of,
    rec,
    seen,
    send,
    table,
)
from tests.log.rewriting import TOPIC, World, a_world
from tests.log.test_rewriter import Crash, Failing, flip_byte


async def test_concurrent_compactors_lose_nothing(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process, other = await world.process(), await world.process()
        await world.topic(1)
        works = [compactor(world, process, Topical()), compactor(world, other, Topical())]
        sent: list[Sent] = []
        for turn in range(8):
            sent += await fill(world, 6, keys=4 + turn)
            await asyncio.gather(*(work.run() for work in works))
            assert table(await seen(world, process)) == table(sent)
            assert await seen(world, process) == await seen(world, other)
        objects = process.replica.state.objects
        named = {row for row in partition_of(process).objects if row > 0}
        # Objects written in vain are condemned, and no named object is.
        assert objects.condemned
        assert not named & objects.condemned.keys()


@pytest.mark.parametrize("step", range(9))
async def test_crash_at_any_step_loses_nothing(step: int, tmp_path: Path) -> None:
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
        # The process is gone; another one continues.
        second = await world.process()
        sent += await fill(world, 3)
        await compactor(world, second, Topical(), rewrite=small).run()
        assert table(await seen(world, second)) == table(sent)
        assert is_clean(second)


async def test_failing_store_is_retried(tmp_path: Path) -> None:
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
async def test_concurrent_change_voids_the_compaction(
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
        kept = [record for record in await seen(world, process) if record.offset >= 6]
        assert await compactor(world, process, Topical()).run() > 0
        compacted = [record for record in await seen(world, process) if record.offset >= 6]
        assert table(compacted) == table(kept)


async def test_damaged_row_stops_compaction_after_it(
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
        flip_byte(tmp_path, -5)
        work = compactor(world, process, Topical())
        await work.run()
        assert "damaged" in caplog.text
        await work.run()
        assert partition_of(process).cleaned_to == 2
        assert caplog.text.count("damaged") == 1
        assert work.lag() == (0, 0)


# Base offset and leader epoch of the last batch: its own CRC covers neither.
@pytest.mark.parametrize("byte", [7, 15])
async def test_damaged_segment_is_not_copied(
    byte: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        work = compactor(world, process, Topical())
        await fill(world, 10)
        await work.run()
        last = (await body(world, process))[-1][0]
        key = key_of(process.replica.state, "default", partition_of(process).objects[0])
        data = bytearray(await world.store.read(key))
        data[32 + last.position + byte] += 1
        await world.store.delete(key)
        await world.store.create(key, [bytes(data)])
        await fill(world, 10)
        before = partition_of(process).objects[0]
        await work.run()
        assert "damaged" in caplog.text
        assert partition_of(process).objects[0] == before


async def test_unreadable_records_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await send(world, [rec(b"a", b"1")])
        # Right by its checksum, wrong inside: a producer may send it if records are not checked.
        header = batches.parse(recordcodec.build([rec(b"a", b"2")], BatchSettings(codec=GZIP)))
        junk = batches.seal(header, b"junk") + b"junk"
        written = await world.journal.append([junk])
        await _commit(world, written.object_id, written.position, len(junk))
        sent += await send(world, [rec(b"a", b"3")])
        await end(world)
        await compactor(world, process, Topical()).run()
        assert "is not compacted" in caplog.text
        partition = partition_of(process)
        assert partition.cleaned_to == 3
        rewritten = await body(world, process)
        assert [kept.base_offset for kept, _ in rewritten] == [1, 2]
        assert rewritten[0][1][61:] == b"junk"


async def _commit(world: World, object_id: int, position: int, size: int) -> None:
    extent = Extent(
        topic_id=TOPIC, partition=0, position=position, size=size, records=1, attributes=1,
        max_timestamp=1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    await world.broker.propose([BatchesCommitted(object_id=object_id, extents=[extent])])
