"""The feed's requests stay within the memory, regardless of the number of brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

from rookery.clock import SystemClock
from rookery.consumer.fetch import budget
from rookery.consumer.fetch.feed import Feed
from rookery.consumer.fetch.shelf import Shelf, Shelves
from rookery.consumer.fetch.source import PartitionAnswer, RowSource, Want
from rookery.consumer.settings import StreamSettings
from rookery.model.partition import TopicPartition
from rookery.records.batches import parse, stamp_into
from rookery.testing.clock import SeededRandom
from rookery.testing.kafkalogs import NOON, pack_rows, rows

MIB = 1 << 20
GIANT = 8 * MIB
MEMORY = 64 * MIB
BATCH = pack_rows(rows([NOON], bytes(GIANT)))


class Giants:
    """Every partition is nothing but giants; an answer has the first that was asked for, whole."""

    def __init__(self, brokers: int) -> None:
        self._brokers = brokers
        self.asked: list[tuple[Hashable, list[int]]] = []
        """Broker and partitions of each fetch."""

    async def locate(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Hashable]:
        return {place: place.partition % self._brokers for place in places}

    async def fetch(
        self, lane: Hashable, wants: Sequence[Want], max_bytes: int, wait_ms: int
    ) -> list[PartitionAnswer]:
        del max_bytes, wait_ms
        self.asked.append((lane, [want.place.partition for want in wants]))
        await asyncio.sleep(0)
        first, *others = wants
        batch = bytearray(BATCH)
        stamp_into(batch, first.offset, 0)
        answers = [
            PartitionAnswer(
                first.place, first.offset, memoryview(batch), [parse(batch)], (), 100, 100
            )
        ]
        return answers + [
            PartitionAnswer(want.place, want.offset, high_watermark=100) for want in others
        ]


@asynccontextmanager
async def fed(source: Giants, shelves: Shelves) -> AsyncIterator[None]:
    """Have the shelves filled until nothing more is asked for."""
    settings = StreamSettings(memory=MEMORY)
    feed = Feed(cast("RowSource", source), shelves, settings, SystemClock(), SeededRandom(1))
    running = asyncio.create_task(feed.run())
    try:
        fetches = -1
        while fetches != feed.fetches:
            fetches = feed.fetches
            for _ in range(20):
                await asyncio.sleep(0)
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def stand(count: int, *, needed: Sequence[int]) -> tuple[Shelves, list[Shelf]]:
    """Return empty shelves for partitions, some of which the merge waits for."""
    shelves = Shelves(budget.of_rows(MEMORY))
    many = [Shelf(TopicPartition("giants", n), n, 0, 0) for n in range(count)]
    shelves.by_place.update({shelf.place: shelf for shelf in many})
    shelves.need([many[number] for number in needed])
    return shelves, many


async def test_giant_batches_of_many_brokers_take_the_memory_and_one_batch_each() -> None:
    shelves, _ = stand(12, needed=range(12))

    async with fed(Giants(3), shelves):
        pass

    # The first of each broker is unexpected.
    assert shelves.memory < shelves.peak <= shelves.memory + 3 * (GIANT + MIB)


async def test_known_giant_batches_take_the_memory_and_one_batch() -> None:
    shelves, many = stand(12, needed=range(12))
    for shelf in many:
        shelf.batch_bytes = len(BATCH)

    async with fed(Giants(3), shelves):
        pass

    assert shelves.memory < shelves.peak <= shelves.memory + GIANT + MIB


async def test_shelf_skipped_for_lack_of_memory_waits_for_memory() -> None:
    shelves, many = stand(4, needed=range(4))
    for shelf in many:
        shelf.is_suspect, shelf.batch_bytes = True, len(BATCH)
    shelves.charge(many[0], shelves.memory + GIANT)
    source = Giants(2)

    async with fed(source, shelves):
        assert source.asked == []
        assert all(shelf.is_passed_over for shelf in many)


async def test_partition_needed_by_the_merge_is_fetched_first() -> None:
    shelves, many = stand(4, needed=[3])
    for shelf in many:
        shelf.batch_bytes = len(BATCH)
    shelves.charge(many[0], shelves.memory - 10 * MIB)
    source = Giants(4)

    async with fed(source, shelves):
        assert source.asked[0] == (3, [3])
        assert {lane for lane, _ in source.asked} == {3}  # there was no room for others


async def test_largest_batch_counts_only_while_it_is_held() -> None:
    shelves, [shelf] = stand(1, needed=[0])
    async with fed(Giants(1), shelves):
        held = shelf.held
        assert shelf.largest == shelf.batch_bytes
        chunk = shelves.pop(shelf)
        assert chunk is not None
        shelves.open(shelf, chunk, [5 * GIANT])
        assert shelf.largest == 5 * GIANT
        shelves.free(shelf, 5 * GIANT)

        assert shelf.largest == shelf.batch_bytes
        assert shelf.held == held - chunk.size
