"""All ways to end a stream close its sockets, commit nothing and lose nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rookery
from rookery.client.client import Client
from rookery.consumer.faults import Misuse
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.ports import HOST
from rookery.testing.wait import wait_until

WITHIN = 60.0


@pytest.fixture
def deaf() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server((HOST, 0)) as server:
        yield f"{HOST}:{server.getsockname()[1]}"


def sockets() -> set[str]:
    """Return the sockets that this process has."""
    names = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it was that of the folder
            names.add(str(entry.readlink()))
    return {name for name in names if name.startswith("socket:")}


def committed(bootstrap: str, group: str) -> dict[Any, Any]:
    """Return all offsets of a group."""

    async def ask() -> dict[Any, Any]:
        async with Client(bootstrap) as client:
            return dict(await client.groups.committed_offsets(group))

    return asyncio.run(ask())


def wait_for_reader(stream: rookery.OrderedStream) -> None:
    """Wait until a thread is in the stream."""
    wait_until(lambda: "unlocked" not in repr(stream._lock))


@pytest.mark.parametrize("way", ["close", "forget"])
def test_closed_member_leaves_its_group(topics: Logs, way: str) -> None:
    topic, group = topics.create("traceless", 2), f"traceless-{way}"
    topics.write(topic, 0, rows([NOON + n for n in range(10)]))
    before = sockets()

    stream = rookery.follow(topics.bootstrap, topic, start="earliest", group=group)
    batch = stream.poll(60_000)
    assert batch is not None
    assert sockets() - before
    if way == "close":
        stream.close()
    del batch, stream
    gc.collect()

    assert not sockets() - before
    assert committed(topics.bootstrap, group) == {}
    # It has left: the next member need not wait until it is missed.
    with rookery.follow(topics.bootstrap, topic, start="earliest", group=group) as other:
        assert other.poll(30_000) is not None


def test_a_stream_has_one_reader_and_another_thread_may_close_it(topics: Logs) -> None:
    topic = topics.create("readers", 1)
    stream = rookery.follow(topics.bootstrap, topic).open()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, stream, None)
        wait_for_reader(stream)
        with pytest.raises(Misuse, match="one reader"):
            next(stream)
        stream.close()
        ended = reading.result(WITHIN)

    assert ended is None
    with pytest.raises(Misuse, match="closed"):
        next(stream)


def test_closed_stream_refuses_commits(topics: Logs) -> None:
    topic, group = topics.create("too-late", 1), "too-late"
    topics.write(topic, 0, rows([NOON]))
    with rookery.read(topics.bootstrap, topic, group=group) as stream:
        batch = next(stream)

    with pytest.raises(Misuse, match="closed"):
        batch.commit()

    assert committed(topics.bootstrap, group) == {}


async def test_a_cancelled_wait_loses_no_batch(topics: Logs) -> None:
    topic = topics.create("patience", 2)
    for partition in range(2):
        times = [NOON + 2 * n + partition for n in range(500)]
        topics.write(topic, partition, rows(times), size=50)
    seen: list[Any] = []

    async with rookery.read(topics.bootstrap, topic, batch_rows=7) as stream:
        patience, is_over = 0.0, False
        while not is_over:
            try:
                async with asyncio.timeout(patience):
                    batch = await anext(stream, None)
            except TimeoutError:
                # No client has seen the topics made meanwhile.
                assert stream.checkpoint.rows == len(seen)
                patience = patience * 1.5 + 0.0001
                continue
            patience = 0.0
            is_over = batch is None
            if batch is not None:
                places = zip(
                    batch["offset"].to_pylist(), batch["partition"].to_pylist(), strict=True
                )
                seen += places

    assert seen == [(offset, partition) for offset in range(500) for partition in range(2)]


async def test_wait_for_an_unresponsive_cluster_can_be_cancelled(deaf: str) -> None:
    before = sockets()
    stream = rookery.follow(deaf, "t")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.to_thread(wait_for_reader, stream)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    stream.close()
    assert not sockets() - before


def test_stream_can_be_closed_while_it_opens(deaf: str) -> None:
    stream = rookery.follow(deaf, "t")
    failures: list[BaseException] = []

    def read() -> None:
        try:
            next(stream)
        except Misuse as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    wait_for_reader(stream)
    stream.close()
    reader.join(WITHIN)

    assert not reader.is_alive()
    [failure] = failures
    assert "closed" in str(failure)


INTERRUPTED = """
import sys, rookery
bootstrap, topic, group = sys.argv[1:]
with rookery.follow(bootstrap, topic, start="earliest", group=group) as stream:
    print(next(stream).num_rows, flush=True)
    next(stream)
"""

FORKED = """
import os, sys, rookery
with rookery.follow(sys.argv[1], sys.argv[2], start="earliest") as stream:
    first = next(stream).num_rows
    child = os.fork()
    if not child:
        try:
            next(stream)
        except rookery.errors.Error as error:
            print(error, flush=True)
        sys.exit(7)  # through the end of the block, and of the interpreter
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), first, stream.poll(0), flush=True)
"""


FORKED_WITH_LOCK = """
import os, sys, threading, rookery
held, forked = threading.Event(), threading.Event()

def hold(lock):  # as the fetching thread may, at the moment of a fork
    with lock:
        held.set()
        forked.wait()

with rookery.follow(sys.argv[1], sys.argv[2], start="earliest") as stream:
    next(stream)
    threading.Thread(target=hold, args=(stream._opened.shelves.lock,)).start()
    held.wait()
    child = os.fork()
    if not child:
        sys.exit(7)
    forked.set()
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


def started(program: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "src"},
    )


def test_ctrl_c_commits_nothing(topics: Logs) -> None:
    topic, group = topics.create("ctrl-c", 1), "ctrl-c"
    topics.write(topic, 0, rows([NOON]))
    with started(INTERRUPTED, topics.bootstrap, topic, group) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        child.send_signal(signal.SIGINT)
        _, words = child.communicate(timeout=WITHIN)

    assert "KeyboardInterrupt" in words
    assert committed(topics.bootstrap, group) == {}


def test_forked_process_exits_though_a_lock_was_held_at_the_fork(topics: Logs) -> None:
    topic = topics.create("forked-lock", 1)
    topics.write(topic, 0, rows([NOON]))
    with started(FORKED_WITH_LOCK, topics.bootstrap, topic) as child:
        words, errors = child.communicate(timeout=WITHIN)

    assert words.splitlines() == ["7"], errors


def test_forked_process_is_refused_and_can_exit(topics: Logs) -> None:
    topic = topics.create("forked", 1)
    topics.write(topic, 0, rows([NOON]))
    with started(FORKED, topics.bootstrap, topic) as child:
        words, errors = child.communicate(timeout=WITHIN)

    assert words.splitlines() == [
        "the stream was opened before a fork; make another one in this process",
        "7 1 None",
    ], errors
