"""A disk that fills up under load: writes are refused, reads continue, and free space ends it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rookery.errors import ErrorCode
from rookery.testing.broker import BrokerProcess
from rookery.testing.wait import wait_until
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, check, read_all
from tests.faults.probe import LARGE, fetch, problems, produce

SIZE = 48 << 20
PROBE = "probe"
# The largest record that still rides in an entry: it fills the cluster log's file soonest.
RIDING = 60_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be filled without harm to anyone."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("needs mount, to have a small disk")
    command = [mount, "-t", "tmpfs", "-o", f"size={SIZE}", "rookery-test", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"needs the right to mount a small disk: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run([umount, str(folder)], check=True)


@pytest.fixture
def broker(small_disk: Path) -> Iterator[BrokerProcess]:
    """A broker on it; its output is elsewhere."""
    with BrokerProcess(small_disk) as process:
        create_topic(process.bootstrap)
        create_topic(process.bootstrap, PROBE)
        assert produce(process.port, PROBE, b"before").base_offset == 0
        yield process


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Take all the space there is, and give it back."""
    filler = disk / "filler"
    fd = os.open(filler, os.O_CREAT | os.O_WRONLY)
    try:
        for size in (1 << 20, 4096):
            _write_all(fd, size)
        yield
    finally:
        os.close(fd)
        filler.unlink()


def _write_all(fd: int, size: int) -> None:
    with suppress(OSError):  # which says that there is no space left
        while True:
            os.write(fd, bytes(size))


def test_full_disk_refuses_writes_and_serves_reads(broker: BrokerProcess, small_disk: Path) -> None:
    nothing: list[list[int]] = [[] for _ in range(PARTITIONS)]
    with Load(broker.bootstrap, TOPIC, PARTITIONS, seed=1) as load:
        load.wait_for(20)
        with filled(small_disk):
            wait_until(lambda: "disk" in problems(broker), "it says that the disk is full")
            assert "No space left" in problems(broker)["disk"]
            refused = produce(broker.port, PROBE, bytes(LARGE))
            assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR
            assert "free space" in (refused.error_message or "")
            acked = load.acked()
            check(nothing, read_all(broker.bootstrap, TOPIC, PARTITIONS), acked)
            assert fetch(broker.port, PROBE, 0).high_watermark >= 1
        load.wait_for(20)
        wait_until(lambda: not problems(broker), "it is ready again")
    check(nothing, read_all(broker.bootstrap, TOPIC, PARTITIONS), load.acked())
    assert broker.stop() == 0


def test_a_producer_is_answered_when_the_cluster_log_is_full(
    broker: BrokerProcess, small_disk: Path
) -> None:
    with filled(small_disk):
        acked, code = 1, ErrorCode.NONE
        while not code:
            # The timeout in the request is short: a producer waits that long for an answer.
            answer = produce(broker.port, PROBE, bytes(RIDING), timeout_ms=1_000, within=10)
            code = answer.error_code
            acked += not code
        assert code in {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT}
        assert "disk is full" in problems(broker)["cluster log"]
        assert fetch(broker.port, PROBE, 0).high_watermark >= acked

    def is_taken() -> bool:
        return produce(broker.port, PROBE, b"after").base_offset >= acked

    wait_until(is_taken, "records are taken again")


def test_broker_becomes_ready_again_without_large_writes(
    broker: BrokerProcess, small_disk: Path
) -> None:
    with filled(small_disk):
        refused = produce(broker.port, PROBE, bytes(LARGE))
        assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR
        assert set(problems(broker)) == {"disk"}

    # A load balancer that waits for readiness would otherwise wait forever.
    wait_until(lambda: not problems(broker), "it is ready again")
