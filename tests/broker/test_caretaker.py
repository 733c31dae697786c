"""The caretaker's process: it works, is replaced after its death, and ends with its broker."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rookery.client import Client
from rookery.testing.broker import BrokerProcess, is_alive
from rookery.testing.wait import wait_until

FLAGS = (
    "--upkeep-interval-ms", "100", "--delete-delay-ms", "100", "--orphan-interval-ms", "200",
    "--rewrite-merge-age-ms", "100", "--rewrite-segment-bytes", "100000",
    "--snapshot-entries", "50", "--durability", "os",
)  # fmt: skip
SECONDS = 30.0


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def fill(bootstrap: str, numbers: range) -> None:
    async with Client(bootstrap) as client:
        await client.create_topic("t", 1)
        for number in numbers:
            await client.produce("t", b"%d" % number + bytes(3000), partition=0)


async def read(bootstrap: str) -> list[int]:
    async with Client(bootstrap) as client:
        return [int((record.value or b"").rstrip(b"\0")) async for record in client.read("t", 0)]


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "store" / "default" / "t").rglob("*.kfs"))


def test_caretaker_builds_segments_and_trims_the_log(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", flags=FLAGS) as broker:
        asyncio.run(fill(broker.bootstrap, range(200)))
        wait_until(lambda: len(segments(broker.folder)) >= 4)
        snapshots = broker.folder / "store" / "_rookery" / "default" / "snapshots"
        wait_until(lambda: snapshots.exists() and any(snapshots.iterdir()))
        broker.kill()
        broker.start()
        assert asyncio.run(read(broker.bootstrap)) == list(range(200))


@pytest.mark.usefixtures("own_victim")
def test_killed_caretaker_is_restarted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", flags=FLAGS) as broker:
        wait_until(lambda: bool(children(broker.pid)))
        [first] = children(broker.pid)
        os.kill(first, signal.SIGKILL)
        wait_until(
            lambda: any(is_alive(child) and child != first for child in children(broker.pid))
        )
        asyncio.run(fill(broker.bootstrap, range(200)))
        wait_until(lambda: len(segments(broker.folder)) >= 4)
        assert asyncio.run(read(broker.bootstrap)) == list(range(200))


def test_caretaker_ends_with_its_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", flags=FLAGS) as broker:
        wait_until(lambda: bool(children(broker.pid)))
        [caretaker] = children(broker.pid)
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(caretaker))


def test_caretaker_can_be_switched_off(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", flags=(*FLAGS, "--caretaker", "off")) as broker:
        asyncio.run(fill(broker.bootstrap, range(50)))
        assert children(broker.pid) == []


def test_one_of_several_workers_runs_the_caretaker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", workers=3, flags=FLAGS) as broker:
        asyncio.run(fill(broker.bootstrap, range(200)))
        wait_until(lambda: len(segments(broker.folder)) >= 4)
        keepers = [pid for pid in broker.worker_pids() if children(pid)]
        assert len(keepers) == 1
