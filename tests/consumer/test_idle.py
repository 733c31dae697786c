"""Live partitions at their end: how long they delay others, with a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, cast

import pytest

from rookery.consumer.fetch.feed import Feed
from rookery.consumer.fetch.shelf import Shelves
from rookery.consumer.fetch.source import PartitionAnswer, RowSource, Want
from rookery.consumer.order.engine import StreamEngine
from rookery.consumer.output.shape import BatchShape
from rookery.consumer.ranges import PartitionRange
from rookery.consumer.settings import StreamSettings
from rookery.model.partition import TopicPartition
from rookery.records.batches import parse, stamp_into
from rookery.testing.clock import ManualClock, SeededRandom
from rookery.testing.kafkalogs import NOON, pack_rows, rows

OPEN_TRANSACTION_END = 5


class Brokers:
    """Each partition has its own broker and one record; a fetch after it is never answered."""

    def __init__(self, *, high_watermark: int = 1) -> None:
        self._high_watermark = high_watermark

    async def locate(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Hashable]:
        return {place: place.partition for place in places}

    async def fetch(
        self, _lane: Hashable, wants: Sequence[Want], _max_bytes: int, _wait_ms: int
    ) -> list[PartitionAnswer]:
        [want] = wants
        if want.offset:
            await asyncio.Event().wait()
        batch = bytearray(pack_rows(rows([NOON + 1000 * want.place.partition])))
        stamp_into(batch, 0, 0)
        header = parse(batch)
        high = self._high_watermark
        return [PartitionAnswer(want.place, 0, memoryview(batch), [header], (), high, 1)]


@asynccontextmanager
async def reading(source: Brokers, settings: StreamSettings) -> AsyncIterator[StreamEngine]:
    """Have everything fetched that two partitions have."""
    clock, shelves = ManualClock(), Shelves(1 << 20)
    engine = StreamEngine(
        shelves, BatchShape(settings, ["t"]), settings, clock, 1 << 60, is_live=True
    )
    engine.committer = cast("Any", None)  # nothing is committed here
    engine.join_all([PartitionRange(TopicPartition("t", number), 0, 1) for number in range(2)])
    feed = Feed(cast("RowSource", source), shelves, settings, clock, SeededRandom(1))
    running = asyncio.create_task(feed.run())
    try:
        for _ in range(1000):
            if all(shelf.position == 1 for shelf in engine.shelf_of):
                break
            await asyncio.sleep(0)
        yield engine
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def partitions(engine: StreamEngine) -> list[Any]:
    """Return the partitions of all rows that may go now."""
    numbers: list[Any] = []
    for _ in range(10):
        engine.make(0)
        batch, engine.made = engine.made, None
        if batch is None:
            break
        numbers += batch.data.column("partition").to_pylist()
    return numbers


@pytest.mark.parametrize("high_watermark", [1, OPEN_TRANSACTION_END])
async def test_without_an_idle_wait_a_finished_partition_blocks_nothing(
    high_watermark: int,
) -> None:
    none = timedelta(0)
    settings = StreamSettings(max_idle=none, max_transaction_wait=none, batch_wait=none)
    async with reading(Brokers(high_watermark=high_watermark), settings) as engine:
        assert partitions(engine) == [0, 1]


async def test_with_an_idle_wait_a_finished_partition_blocks_later_rows() -> None:
    async with reading(Brokers(), StreamSettings(batch_wait=timedelta(0))) as engine:
        assert partitions(engine) == [0]
