"""The writer: order, group commit, large requests, failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import AppendOutcome
from rookery.errors import ErrorCode, Unavailable
from rookery.log.read.tail import Tail
from rookery.log.write.flushtarget import CheckedBatch, FlushSettings, JournalTarget, NoFlushTarget
from rookery.log.write.journal import FlushPosition, Journal
from rookery.log.write.writer import LogWriter
from rookery.records import batches
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.clock import ManualClock
from rookery.testing.cluster import FaultyLog

TOPIC = bytes(range(16))


class Setting:
    """A writer, with what it writes to at hand."""

    def __init__(self, replica: Replica, log: FaultyLog, journal: Journal) -> None:
        self.replica, self.log, self.journal = replica, log, journal
        self.tail = Tail()
        self.writer = LogWriter(replica, self.tail)
        self.writer.use(JournalTarget(journal))

    def end(self, partition: int = 0) -> int:
        return self.replica.state.topics.by_name["t"].partitions[partition].next_offset


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    log = FaultyLog(open_log("memory:"))
    replica = Replica(log, ManualClock())
    await replica.open()
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
    event = BrokerRegistered(process_id=TOPIC, node_id=1, host="h", port=1)
    incarnation = await replica.register(event)
    topic = TopicCreated(
        topic_id=TOPIC, name="t", partitions=5000, replication_factor=1, configs=[]
    )
    await replica.propose([topic])
    journal = Journal(tmp_path, incarnation, "os")
    yield Setting(replica, log, journal)
    await replica.close()
    await journal.close()


def batch(size: int = 10, partition: int = 0, **settings: int) -> CheckedBatch:
    data = memoryview(bytearray(build([Record(None, bytes(size))], BatchSettings(**settings))))  # type: ignore[arg-type] # by name
    return CheckedBatch(TOPIC, partition, data, batches.parse(data))


async def test_small_and_large_batches_get_offsets_in_order(setting: Setting) -> None:
    sizes = [10, 200_000, 10, 300_000, 10, 10, 70_000]
    futures = [setting.writer.append([batch(size)]) for size in sizes]
    results = [await future for future in futures]
    assert [result[0].base_offset for result in results] == list(range(7))


async def test_sequences_stay_in_order_when_sizes_alternate(setting: Setting) -> None:
    futures = []
    for sequence in range(200):
        size = 100_000 if sequence % 3 == 0 else 50
        futures.append(
            setting.writer.append(
                [batch(size, producer_id=1, producer_epoch=0, base_sequence=sequence)]
            )
        )
        if sequence % 7 == 0:
            await asyncio.sleep(0)
    results = [await future for future in futures]
    assert {result[0].error for result in results} == {ErrorCode.NONE}
    assert [result[0].base_offset for result in results] == list(range(200))


async def test_waiting_batches_share_a_commit(setting: Setting) -> None:
    before = setting.replica.state.applied
    setting.log.hold()
    futures = [setting.writer.append([batch()]) for _ in range(5)]
    await asyncio.sleep(0.01)
    futures += [setting.writer.append([batch()]) for _ in range(300)]
    setting.log.let_through()
    await asyncio.gather(*futures)
    assert setting.end() == 305
    assert setting.replica.state.applied - before <= 3


async def test_request_can_name_more_partitions_than_an_entry_holds(setting: Setting) -> None:
    work = [batch(20, partition) for partition in range(5000)]
    results = await setting.writer.append(work)
    assert {result.base_offset for result in results} == {0}
    assert len(results) == 5000
    assert all(setting.end(partition) == 1 for partition in (0, 2000, 4999))


async def test_batches_are_stamped_for_readers(setting: Setting) -> None:
    for expected in range(3):
        await setting.writer.append([batch()])
        piece = setting.tail.read((TOPIC, 0), expected, 1000)
        assert piece is not None
        assert batches.verify(bytes(piece.parts[0]))[0].base_offset == expected


async def test_failed_write_fails_only_its_own_batches(setting: Setting) -> None:
    class Broken(NoFlushTarget):
        async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
            raise Unavailable("the disk is full")

    await setting.writer.append([batch()])
    setting.writer.use(Broken())
    with pytest.raises(Unavailable, match="disk is full"):
        await setting.writer.append([batch(100_000)])
    assert setting.end() == 1
    # Small ones do not need the journal, and large ones can continue when it works again.
    assert (await setting.writer.append([batch()]))[0].base_offset == 1
    setting.writer.use(JournalTarget(setting.journal))
    assert (await setting.writer.append([batch(100_000)]))[0].base_offset == 2


async def test_drain_waits_for_all_batches(setting: Setting) -> None:
    futures = [setting.writer.append([batch(size)]) for size in (10, 100_000, 10)]
    await setting.writer.drain()
    assert all(future.done() for future in futures)


class SlowStore(NoFlushTarget):
    """Takes flushes, each for as long as the test says."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Event] = []
        self.again = asyncio.Event()
        self.sizes: list[int] = []
        self.settled: list[tuple[int, list[int]]] = []

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        number = len(self.begun)
        size = sum(len(batch.data) for batch in batches)
        self.begun.append(asyncio.Event())
        self.sizes.append(size)
        if number:
            self.again.set()
        await self.begun[number].wait()
        if number == 1:
            raise Unavailable("the second one fails")
        return FlushPosition((9 << 24) + number, 0, size)

    def on_committed(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        self.settled.append((identity, [outcome.base_offset for outcome in outcomes]))


async def test_objects_are_committed_in_the_order_of_their_start(
    setting: Setting,
) -> None:
    store = SlowStore()
    writer = LogWriter(setting.replica, setting.tail, FlushSettings(0, 100_000, lanes=3))
    writer.use(store)
    futures = []
    for _ in range(4):
        futures.append(writer.append([batch(100_000)]))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(store.begun) == 3  # as many as there are lanes
    store.begun[2].set()
    store.begun[1].set()
    await asyncio.sleep(0)
    assert not any(future.done() for future in futures)
    store.begun[0].set()
    assert (await futures[0])[0].base_offset == 0
    with pytest.raises(Unavailable, match="second one"):
        await futures[1]
    assert (await futures[2])[0].base_offset == 1
    store.begun[3].set()
    assert (await futures[3])[0].base_offset == 2
    assert store.settled == [(9 << 24, [0]), ((9 << 24) + 2, [1]), ((9 << 24) + 3, [2])]


async def test_small_flushes_to_a_store_wait_for_the_interval(setting: Setting) -> None:
    store = SlowStore()
    writer = LogWriter(
        setting.replica, setting.tail, FlushSettings(0, 1_000_000, lanes=8, interval_ms=500)
    )
    writer.use(store)
    futures = []
    for _ in range(10):
        futures.append(writer.append([batch(10)]))
        await asyncio.sleep(0)
    assert len(store.begun) == 1
    async with asyncio.timeout(10):
        await store.again.wait()
    assert store.sizes[1] == 9 * store.sizes[0]
    store.begun[0].set()
    await futures[0]
