"""The SQLite log: the contract of all cluster logs, and several processes."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import pytest

from rookery.cluster.open import open_log
from rookery.errors import Unavailable
from tests.cluster.processes import Opener, child, line, rest
from tests.contracts.cluster_log import ClusterLogContract, append_many, read_all


class TestSqlite(ClusterLogContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/cluster.sqlite"


class TestLongPath(ClusterLogContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/{'long' * 40}/cluster%20log.sqlite"


def acked(lines: str) -> dict[int, bytes]:
    """Read what writers said; a line that was cut off by a kill does not count."""
    whole = [text.split() for text in lines.splitlines(keepends=True) if text.endswith("\n")]
    return {int(number): data.encode() for number, data in whole}


# Several processes.


async def test_concurrent_processes_get_distinct_numbers(path: Path, opened: Opener) -> None:
    log = opened()
    url = f"sqlite://{path}"
    with (
        child("append", url, "a", 100) as first,
        child("append", url, "b", 100) as second,
        child("append", url, "c", 100) as third,
    ):
        writers = (first, second, third)
        for writer in writers:
            assert await line(writer) == "ready"
        said = [await rest(writer) for writer in writers]
    expected = {number: data for out in said for number, data in acked(out).items()}
    assert sorted(expected) == list(range(1, 301))
    assert dict(await read_all(log)) == expected


async def test_other_processes_are_woken(path: Path, opened: Opener) -> None:
    log = opened()
    with child("echo", f"sqlite://{path}") as other:
        assert await line(other) == "ready"
        for index in range(100):
            number = await log.append(b"ping %d" % index)
            assert await log.wait(number) == number + 1
            assert (await log.read(number))[0].data == b"pong %d" % index


async def test_dropped_rings_still_wake_waiters(path: Path, opened: Opener) -> None:
    log = opened()
    waiting = asyncio.create_task(log.wait(1999))
    # Calls are answered in order: after these the look that waiting began with is over.
    for _ in range(2):
        assert await log.head() == 0
    with child("append", f"sqlite://{path}", "a", 2000, "os") as writer:
        # No thread answers the bell while this blocks the loop; it holds far fewer rings.
        writer.wait()
        assert await waiting == 2000


async def test_head_includes_appends_acknowledged_to_other_processes(path: Path) -> None:
    log = open_log(f"sqlite://{path}")
    with child("append", f"sqlite://{path}", "a", 200) as writer:
        assert await line(writer) == "ready"
        while said := await line(writer):
            assert await log.head() >= int(said.split()[0])
    assert await log.head() == 200
    await log.close()


async def test_killed_writers_neither_lose_nor_duplicate_entries(path: Path) -> None:
    url, chance = f"sqlite://{path}", random.Random(7)
    expected: dict[int, bytes] = {}
    for round_ in range(6):
        with (
            child("append", url, f"a{round_}", 100_000) as first,
            child("append", url, f"b{round_}", 100_000) as second,
            child("trim", url, 1_000_000) as idle,
        ):
            for process in (first, second, idle):
                assert await line(process) == "ready"
            for process, lines in ((first, 40), (second, 20)):
                for _ in range(chance.randrange(lines)):
                    number, data = (await line(process)).split()
                    expected[int(number)] = data.encode()
                process.send_signal(signal.SIGKILL)
                expected |= acked(await rest(process))
        log = open_log(url)
        entries = await read_all(log, max_bytes=1 << 20)
        await log.close()
        # Nothing is lost, nothing has moved, nothing occurs twice.
        assert [e.number for e in entries] == list(range(1, len(entries) + 1))
        assert len({e.data for e in entries}) == len(entries)
        assert expected.items() <= dict(entries).items()
    assert len(expected) > 100


async def test_killed_trimmer_leaves_a_complete_log(path: Path, opened: Opener) -> None:
    log, chance, last = opened(), random.Random(7), 0
    for _ in range(5):
        with child("trim", f"sqlite://{path}", 20) as trimmer:
            assert await line(trimmer) == "ready"
            reached = 0
            for _ in range(chance.randrange(1, 4)):
                last = max(await append_many(log, "a", 50))
                reached = int(await line(trimmer))
        floor = await log.floor()
        assert reached <= floor < last
        assert [e.number for e in await read_all(log, floor)] == list(range(floor + 1, last + 1))


async def test_a_stopped_process_that_holds_the_lock_is_reported(
    path: Path, opened: Opener
) -> None:
    calm, log = opened(), opened(patience=1.0)
    with child("hold", path.with_name("cluster.sqlite.peers")) as holder:
        assert await line(holder) == "held"
        with pytest.raises(Unavailable, match=f"process {holder.pid} holds it$"):
            await log.append(b"never")
        holder.send_signal(signal.SIGSTOP)
        advice = (
            rf"another process has held the log .* stopped: continue it \(kill -CONT {holder.pid}"
        )
        with pytest.raises(Unavailable, match=advice):
            opened(patience=1.0)
        assert await log.head() == 0
    # An abandoned append stays abandoned.
    assert await calm.append(b"later") == 1
    assert [e.data for e in await calm.read(0)] == [b"later"]


async def test_closed_handle_removes_its_bell(path: Path, opened: Opener) -> None:
    log, other = opened(), opened()
    bells = path.with_name("cluster.sqlite.peers")
    assert len(list(bells.glob("*.bell"))) == 2
    await other.close()
    assert len(list(bells.glob("*.bell"))) == 1
    await log.append(b"x")


async def test_bells_of_killed_processes_are_removed(path: Path, opened: Opener) -> None:
    log = opened()
    bells = path.with_name("cluster.sqlite.peers")
    with child("echo", f"sqlite://{path}") as other:
        assert await line(other) == "ready"
        assert len(list(bells.glob("*.bell"))) == 2
    # The first one rings after its answer; the second comes after that.
    await log.append(b"x")
    await log.append(b"x")
    assert len(list(bells.glob("*.bell"))) == 1
