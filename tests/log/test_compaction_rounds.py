"""When compaction is due, how far it goes, and how much it does at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.log.settings import RewriteSettings
from tests.log.compacting import (
    DAY,
    NEVER,
    REWRITE,
    Sent,
    Topical,
    compactor,
    end,
    fill,
    partition_of,
    rec,
    seen,
    send,
    table,
)
from tests.log.rewriting import Process, World, a_world


async def test_records_younger_than_the_minimum_lag_are_not_compacted(tmp_path: Path) -> None:
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


async def test_dirty_ratio_decides_unless_the_maximum_lag_is_exceeded(tmp_path: Path) -> None:
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
        assert [record.key for record in await seen(world, process)].count(b"k0") == 1


async def test_oldest_record_of_a_row_counts_for_the_maximum_lag(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        now = world.clock.now_ms()
        limits = Topical(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=DAY)
        limits.segment_bytes = 1 << 30
        work = compactor(world, process, limits)
        work.settings = type(work.settings)(min_bytes=1 << 30)
        # Both batches are in one row, whose time is that of the second.
        await send(world, [rec(b"a", b"1", now)], where="journal")
        await send(world, [rec(b"a", b"2", now + DAY)], where="journal")
        await send(world, [rec(b"a", b"3", now + DAY)])
        await process.replica.barrier()
        assert len(partition_of(process).base_offsets) == 2
        world.clock.advance(DAY - 1)
        assert await work.run() == 0
        world.clock.advance(1)
        assert await work.run() > 0


async def test_idle_tail_is_compacted_after_the_maximum_lag(tmp_path: Path) -> None:
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


async def test_few_records_wait_for_segment_ms(tmp_path: Path) -> None:
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


async def test_topics_without_compaction_are_not_compacted(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        sent = await fill(world, 10)
        assert await compactor(world, process, Topical(is_compacted=False)).run() == 0
        assert await seen(world, process) == sent


async def test_full_key_map_ends_the_round_and_the_next_continues(tmp_path: Path) -> None:
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
        below = [record.key for record in await seen(world, process)]
        assert len(below) < len(sent) / 2
        assert (await seen(world, process))[-1:] == tail


async def test_key_map_too_small_for_one_batch_is_reported(
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


async def test_small_segments_are_packed_and_large_ones_kept(tmp_path: Path) -> None:
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
        # A row that is large enough and does not change is not written again.
        before = partition_of(process).objects[:-1]
        sent += await send(world, [rec(b"new", b"")])
        sent += await end(world)
        await work.run()
        assert partition_of(process).objects[0] == before[0]
        assert table(await seen(world, process)) == table(sent)


async def test_work_is_split_into_rounds(tmp_path: Path) -> None:
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


def _rewrite(settings: RewriteSettings) -> dict[str, int]:
    return {name: getattr(settings, name) for name in settings.__slots__}


async def test_lag_is_the_work_that_is_due(tmp_path: Path) -> None:
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
