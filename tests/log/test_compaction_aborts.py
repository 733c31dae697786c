"""Compaction and aborted transactions: records go at once, then the list, then the markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.cluster.events.brokerevents import FeatureLevelRaised
from rookery.cluster.events.logevents import (
    BatchesCommitted,
    Extent,
    IdleProducer,
    ProducersExpired,
)
from rookery.cluster.events.txnevents import TransactionEnded, TransactionInitialised
from rookery.cluster.state.aborts import within
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.txns import TransactionOwner
from rookery.formats.keys import times_key
from rookery.formats.times import parse_times
from rookery.log.read.objects import key_of
from rookery.log.settings import RewriteSettings
from rookery.records import batches
from rookery.records.recordcodec import BatchSettings, build
from tests.log.compacting import (
    DAY,
    Topical,
    body,
    compactor,
    end,
    partition_of,
    rec,
    seen,
    send,
)
from tests.log.rewriting import TOPIC, Process, World, a_world

TINY = RewriteSettings(segment_bytes=400, merge_bytes=400, row_bytes=400)


class Producer:
    """A transactional producer of the newer protocol."""

    def __init__(self, world: World, owner: TransactionOwner, name: str) -> None:
        self._world, self.owner, self._name = world, owner, name
        self._sequence = 0

    @classmethod
    async def init(cls, world: World, name: str = "x") -> Producer:
        event = TransactionInitialised(transactional_id=name, timeout_ms=60_000)
        [outcome] = await world.broker.propose([event])
        return cls(world, outcome.value, name)

    async def write(self, key: bytes, value: bytes) -> None:
        settings = BatchSettings(
            producer_id=self.owner.producer_id,
            producer_epoch=self.owner.epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += 1
        data = build([rec(key, value)], settings)
        header = batches.parse(data)
        extent = Extent(
            topic_id=TOPIC, partition=0, position=0, size=len(data), records=1,
            attributes=header.attributes, max_timestamp=header.max_timestamp,
            producer_id=header.producer_id, producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence, joins_transaction=True,
        )  # fmt: skip
        [outcome] = await self._world.broker.propose(
            [BatchesCommitted(object_id=0, extents=[extent])], [data]
        )
        assert not outcome.value[0].error

    async def end(self, *, is_commit: bool) -> None:
        event = TransactionEnded(
            transactional_id=self._name,
            producer_id=self.owner.producer_id,
            producer_epoch=self.owner.epoch,
            is_commit=is_commit,
        )
        [outcome] = await self._world.broker.propose([event])
        assert not outcome.error


async def raise_level(world: World, process: Process, level: int) -> None:
    await world.broker.propose([FeatureLevelRaised(feature_level=level)])
    await process.replica.barrier()
    assert process.replica.state.feature_level == level


async def markers(world: World, process: Process) -> int:
    """Count the control batches in all segments."""
    partition = partition_of(process)
    segments = [await body(world, process, index) for index in range(len(partition.objects) - 1)]
    return sum(header.is_control for batches in segments for header, _ in batches)


async def listed(world: World, process: Process) -> int:
    """Count the aborted transactions that segments list."""
    count = 0
    for object_id in partition_of(process).objects[:-1]:
        key = key_of(process.replica.state, "default", object_id)
        count += len(parse_times(await world.store.read(times_key(key)), key).aborted)
    return count


@pytest.mark.parametrize(("level", "left"), [(1, 5), (2, 0)])
async def test_aborted_transactions_and_their_markers_are_removed(
    tmp_path: Path, level: int, left: int
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await raise_level(world, process, level)
        work = compactor(world, process, Topical())
        producer = await Producer.init(world)
        for turn in range(5):
            await producer.write(b"k", b"aborted %d" % turn)
            await producer.end(is_commit=False)
        await producer.write(b"k", b"committed")
        await producer.end(is_commit=True)
        await end(world)

        await work.run()

        partition = partition_of(process)
        assert [record.value for record in await seen(world, process) if record.key == b"k"] == [
            b"committed"
        ]
        assert len(list(within(partition.aborted, 0, 1_000))) == left
        assert await markers(world, process) == 6
        assert await listed(world, process) == 0

        world.clock.advance(2 * DAY)
        await send(world, [rec(b"k", b"newer")])
        await end(world)
        await work.run()

        assert await markers(world, process) == left
        assert write_image(read_image(write_image(process.replica.state))) == write_image(
            process.replica.state
        )


async def test_transaction_that_ends_after_the_compacted_range_stays_listed_as_aborted(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await raise_level(world, process, 2)
        work = compactor(world, process, Topical(), rewrite=TINY)
        first, second = await Producer.init(world, "x"), await Producer.init(world, "y")
        await first.write(b"a", b"x" * 200)
        await first.end(is_commit=False)
        await second.write(b"b", b"y" * 200)
        await end(world)
        await work.run()
        partition = partition_of(process)
        assert not list(within(partition.aborted, 0, 1_000))

        await second.end(is_commit=False)
        await process.replica.barrier()

        [transaction] = within(partition.aborted, 0, 1_000)
        assert transaction.producer_id == second.owner.producer_id
        await end(world)
        await work.run()
        assert not list(within(partition.aborted, 0, 1_000))
        assert not {record.key for record in await seen(world, process)} & {b"a", b"b"}


@pytest.mark.parametrize(("level", "is_kept"), [(1, False), (2, True)])
async def test_busy_producers_are_not_expired_at_the_newer_feature_level(
    tmp_path: Path, level: int, is_kept: bool
) -> None:
    async with a_world(tmp_path) as world:
        process = await world.process()
        await world.topic(1)
        await raise_level(world, process, level)
        busy = await Producer.init(world, "busy")
        await busy.write(b"k", b"v")
        written_since = await Producer.init(world, "written since")
        await written_since.write(b"k", b"v")
        await written_since.end(is_commit=True)
        idle = [
            IdleProducer(producer_id=busy.owner.producer_id, last_sequence=0),
            IdleProducer(producer_id=written_since.owner.producer_id, last_sequence=0, time_ms=1),
        ]

        await world.broker.propose([ProducersExpired(topic_id=TOPIC, partition=0, producers=idle)])

        await process.replica.barrier()
        assert bool(partition_of(process).producers) == is_kept
        assert len(partition_of(process).producers) == (2 if is_kept else 0)
