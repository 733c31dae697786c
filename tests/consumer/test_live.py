"""Streams without end: idle, waking and new partitions, and the way out."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from time import sleep

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

import rookery
from rookery.client.settings import ClientSettings
from rookery.consumer.faults import TopicGone
from rookery.consumer.output.batch import Batch
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.wait import wait_until

WITHIN_MS = 60_000
QUICK = timedelta(milliseconds=100)


def polled(stream: rookery.OrderedStream, count: int) -> list[Batch]:
    """Read batches until there are a given number of rows."""
    batches: list[Batch] = []

    def read() -> int:
        batch = stream.poll(1000)
        if batch is not None:
            batches.append(batch)
        return sum(batch.num_rows for batch in batches)

    wait_until(read, "rows", accepts=lambda rows: rows >= count, pause=0)
    return batches


def test_silent_partition_is_awaited_and_then_skipped(topics: Logs) -> None:
    topic = topics.create("silent", 3)
    topics.write(topic, 0, rows([NOON]))

    with rookery.follow(topics.bootstrap, topic, start="earliest", max_idle=QUICK) as stream:
        polled(stream, 1)
        topics.write(topic, 1, rows([NOON + 5000]))
        polled(stream, 1)
        assert stream.frontier == NOON + 5000
        topics.write(topic, 2, rows([NOON + 2000, NOON + 6000]))
        late = polled(stream, 2)
        states = stream.partitions()

    columns = [(row["partition"], row["lateness"]) for row in late[0].to_pylist()]
    assert columns[0] == (2, timedelta(seconds=3))
    assert states["late"].to_pylist() == [0, 0, 1]


def test_replay_becomes_live(topics: Logs) -> None:
    topic = topics.create("golive", 2)
    topics.write(topic, 0, rows([NOON, NOON + 2]))
    topics.write(topic, 1, rows([NOON + 1, NOON + 3]))

    with rookery.replay(topics.bootstrap, topic, then="live", max_idle=QUICK) as stream:
        first = polled(stream, 4)
        assert stream.is_live
        topics.write(topic, 0, rows([NOON + 4]))
        second = polled(stream, 1)

    offsets = [row["offset"] for batch in first for row in batch.to_pylist()]
    assert offsets == [0, 0, 1, 1]
    assert second[0].to_pylist()[0]["offset"] == 2


def test_stalled_reader_makes_no_partition_idle(topics: Logs) -> None:
    topic, count = topics.create("stall", 2), 4000
    for partition in range(2):
        times = [NOON + 2 * n + partition for n in range(count)]
        topics.write(topic, partition, rows(times, bytes(500)), size=50)

    with rookery.follow(
        topics.bootstrap, topic, start="earliest", max_idle=QUICK, memory=300_000, batch_rows=100
    ) as stream:
        first = polled(stream, 1)
        sleep(10 * QUICK.total_seconds())  # processing takes time
        rest = polled(stream, 2 * count - sum(batch.num_rows for batch in first))

    listed = [row for batch in first + rest for row in batch.to_pylist()]
    assert [row["offset"] for row in listed] == [n // 2 for n in range(2 * count)]
    assert not any(row["lateness"] for row in listed)


async def test_both_event_loops_give_the_same_rows(topics: Logs) -> None:
    topic = topics.create("loops", 3)
    for partition in range(3):
        topics.write(topic, partition, rows([NOON + n * (partition + 1) for n in range(300)]))

    def read() -> rookery.OrderedStream:
        return rookery.replay(topics.bootstrap, topic, batch_rows=17)

    plain = await asyncio.to_thread(lambda: [batch.to_pylist() for batch in read()])
    async with read() as stream:
        asynchronous = [batch.to_pylist() async for batch in stream]

    assert [row for rows_ in asynchronous for row in rows_] == [
        row for rows_ in plain for row in rows_
    ]
    assert sum(map(len, plain)) == 900


def test_new_partition_is_read_from_its_start(topics: Logs) -> None:
    topic = topics.create("grows", 1)
    topics.write(topic, 0, rows([NOON + 10]))
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})

    with rookery.follow(
        topics.bootstrap, topic, start="earliest", max_idle=QUICK, discover=QUICK
    ) as stream:
        polled(stream, 1)
        for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
            future.result(60)
        topics._find_leaders(topic, 2)
        topics.write(topic, 1, rows([NOON + 4, NOON + 20]))
        joined = polled(stream, 2)

    read = [row for batch in joined for row in batch.to_pylist()]
    assert [(row["partition"], row["offset"]) for row in read] == [(1, 0), (1, 1)]
    assert read[0]["lateness"] == timedelta(milliseconds=6)


def test_a_deleted_topic_ends_the_stream_after_its_rows(topics: Logs) -> None:
    topic = topics.create("deleted", 1)
    topics.write(topic, 0, rows([NOON]))
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})

    hasty = ClientSettings(bootstrap=topics.bootstrap, unknown_topic_ms=300)
    with rookery.follow(hasty, topic, start="earliest") as stream:
        polled(stream, 1)
        admin.delete_topics([topic])[topic].result(60)
        with pytest.raises(TopicGone) as caught:
            wait_until(lambda: stream.poll(1000), "the end", accepts=lambda _: False)

    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 1)


async def test_a_wait_can_be_cancelled(topics: Logs) -> None:
    topic = topics.create("cancelled", 1)

    async with rookery.follow(topics.bootstrap, topic) as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.wait([waiting], timeout=0.3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        topics.write(topic, 0, rows([NOON]))
        batch = await anext(stream)

    assert batch.num_rows == 1


def test_unreferenced_stream_is_closed(topics: Logs) -> None:
    topic = topics.create("garbage", 1)
    others = set(threading.enumerate())
    stream = rookery.follow(topics.bootstrap, topic).open()
    [own] = [
        thread
        for thread in set(threading.enumerate()) - others
        if thread.name == "rookery-consumer"
    ]

    del stream
    gc.collect()

    own.join(60)
    assert not own.is_alive()


PROGRAM = """
import sys, rookery
stream = rookery.follow(sys.argv[1], sys.argv[2], start="earliest")
try:
    print(next(stream).num_rows, flush=True)
    next(stream)
except KeyboardInterrupt:
    stream.close()
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait(topics: Logs) -> None:
    topic = topics.create("interrupt", 1)
    topics.write(topic, 0, rows([NOON]))
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, topics.bootstrap, topic],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "src"},
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "1\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_paced_replay_spaces_rows_in_time(topics: Logs) -> None:
    topic = topics.create("paced", 2)
    topics.write(topic, 0, rows([NOON, NOON + 4000]))
    topics.write(topic, 1, rows([NOON + 2000, NOON + 6000]))

    with rookery.replay(topics.bootstrap, topic, speed=10.0) as stream:
        counts = [batch.num_rows for batch in stream]

    assert sum(counts) == 4
    assert len(counts) >= 2
