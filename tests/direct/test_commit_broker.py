"""Sinks with running brokers: commits are served at once, and producers are not disturbed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.commit import Commit, commit
from rookery.direct.log import DirectLog
from rookery.testing.servedbroker import ServedBroker
from tests.direct.logs import Cluster, Sent, create, read_all, send
from tests.direct.sinking import faults, rows, stage, write


def consume(
    bootstrap: str, count: int, partitions: int = 1, wait_ms: int = 500
) -> list[tuple[int, int, bytes]]:
    """Read from the beginning with librdkafka: partition, offset and value.

    librdkafka has one fetch in flight per broker. A fetch that was sent before the beginning of
    another partition was known keeps that partition waiting for `wait_ms`.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False,
         "fetch.wait.max.ms": wait_ms, "check.crcs": True}
    )  # fmt: skip
    try:
        places = [TopicPartition("t", index, OFFSET_BEGINNING) for index in range(partitions)]
        consumer.assign(places)
        received: list[tuple[int, int, bytes]] = []
        while len(received) < count:
            message = consumer.poll(60)
            assert message is not None, f"only {len(received)} of {count} came"
            assert message.error() is None
            place = message.partition() or 0, message.offset() or 0
            received.append((*place, message.value() or b""))
        return received
    finally:
        consumer.close()


async def wrote(cluster: Cluster, batch: SinkBatch, *sent: pa.RecordBatch) -> Commit:
    async with DirectLog.open(cluster.place) as log:
        return await write(log, *sent, batch=batch)


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_waiting_consumer_gets_a_commit_immediately(
    tmp_path: Path, is_local: bool, codec: str
) -> None:
    cluster = Cluster(tmp_path, is_local=is_local)
    with cluster.broker() as broker:
        create(broker, "t")
        send(broker, "t", [Sent(b"first")])
        # It has read all there is, and its fetch waits at the broker for a minute.
        with ThreadPoolExecutor() as pool:
            reading = pool.submit(consume, broker.bootstrap, 101, wait_ms=59_000)

            async def commit_rows() -> None:
                async with DirectLog.open(cluster.place) as log:
                    done = await write(log, rows(100), compression=codec)
                    assert done.ranges[0][2:4] == (1, 101)

            asyncio.run(commit_rows())
            received = reading.result(50)
        assert [value for _, _, value in received] == [b"first", *(b"v%d" % n for n in range(100))]
        assert [offset for _, offset, _ in received] == list(range(101))
    assert not asyncio.run(faults(cluster.place)) or is_local


def test_producers_and_sinks_share_partitions(tmp_path: Path) -> None:
    """Batches of both interleave; each is whole, in order, and there once."""
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker, cluster.broker() as other:
        create(broker, "t", 2)
        stop = threading.Event()
        sent: list[int] = []

        def produce(served: ServedBroker, name: int) -> None:
            round_ = 0
            while not stop.is_set():
                some = [Sent(b"p%d-%d" % (name, round_ * 50 + n), partition=n % 2)
                        for n in range(50)]  # fmt: skip
                send(served, "t", some, 50)
                round_ += 1
            sent.append(round_ * 50)

        with ThreadPoolExecutor() as pool:
            producing = [pool.submit(produce, producer, name) for name, producer in
                         enumerate((broker, other))]  # fmt: skip
            for number in range(5):
                asyncio.run(wrote(cluster, SinkBatch("sink", "q", number), rows(400, number * 400)))
            stop.set()
            for future in producing:
                future.result(60)
        total = sum(sent) + 2000
        received = consume(other.bootstrap, total, 2)
    assert len({value for _, _, value in received}) == total
    for partition in range(2):
        mine = [(offset, value) for part, offset, value in received if part == partition]
        assert [offset for offset, _ in mine] == list(range(len(mine)))
        sunk = [int(value[1:]) for _, value in mine if value.startswith(b"v")]
        assert sunk == sorted(sunk)
        # The rows of one commit are next to each other: readers see all of it or nothing.
        for number in range(5):
            at = [offset for offset, value in mine if value.startswith(b"v")
                  and int(value[1:]) // 400 == number]  # fmt: skip
            assert at == list(range(at[0], at[0] + len(at)))
    assert not asyncio.run(faults(cluster.place))
    # And without any broker.
    assert sorted(record.value or b"" for record in read_all(cluster)) == sorted(
        v for _, _, v in received
    )


def test_committed_objects_are_rewritten(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", 2)
    asyncio.run(wrote(cluster, SinkBatch("sink", "q", 0), rows(20_000)))
    before = read_all(cluster)
    cluster.rewrite()
    assert read_all(cluster) == before
    assert len(before) == 20_000
    assert not asyncio.run(faults(cluster.place))


def test_broker_started_later_knows_staged_objects(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t")
    batch = SinkBatch("sink", "q", 0)

    async def stage_rows() -> list[int]:
        async with DirectLog.open(cluster.place) as log:
            return [staged.object_id for staged in await stage(log, rows(100), batch=batch)]

    objects = asyncio.run(stage_rows())
    # Its caretaker sweeps, merges and takes snapshots all the while.
    with cluster.rewriting(delete_delay_ms=1, orphan_interval_ms=1, snapshot_entries=1) as broker:
        send(broker, "t", [Sent(b"first")])

        async def commit_rows() -> None:
            async with DirectLog.open(cluster.place) as log:
                await commit(log, batch, objects)

        asyncio.run(commit_rows())
        assert len(consume(broker.bootstrap, 101)) == 101
