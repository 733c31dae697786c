"""The light daemon's workers end with it at any time, and do not affect other processes."""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import daemon as spark_daemon

from rookery.spark.tuning.daemon import SparingCollector, can_change
from rookery.testing.broker import is_alive
from rookery.testing.wait import wait_until

_FAMILY = """
import os, signal, sys, time
from rookery.spark.tuning.daemon import Leash
signal.signal(signal.SIGHUP, signal.SIG_IGN)
Leash()
worker = os.fork()
if not worker:
    helper = os.fork()
    if helper:
        print(os.getpid(), helper, flush=True)
    time.sleep(600)
time.sleep(600)
"""
_ORPHAN = """
import os
from rookery.spark.tuning.daemon import Leash
leash = Leash()
leash._parent = 0  # as if the daemon had ended before its worker looked
worker = os.fork()
if not worker:
    os._exit(42)
print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_worker_that_ignores_hangups_ends_with_its_daemon(how: signal.Signals) -> None:
    daemon = subprocess.Popen([sys.executable, "-c", _FAMILY], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    with daemon.stdout:
        worker, helper = map(int, daemon.stdout.readline().split())
    try:
        assert is_alive(worker)
        daemon.send_signal(how)
        daemon.wait(60)
        wait_until(lambda: not is_alive(worker))
        assert is_alive(helper), "what a task has started itself is its own affair"
    finally:
        os.kill(helper, signal.SIGKILL)


def test_worker_of_an_exited_daemon_does_not_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ORPHAN], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"


_WORKER = """
def main(infile, outfile):
    infile.read()  # until the other side has gone
    outfile.write(b"rows that no reader awaits")
"""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Make a folder whose sockets have names that the kernel accepts: 107 bytes at most."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_worker_without_a_reader_ends_silently(tmp_path: Path, short_path: Path) -> None:
    (tmp_path / "pyspark_cancelled.py").write_text(_WORKER)
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(short_path),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-m", "rookery.spark.tuning.daemon", "pyspark_cancelled"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    )
    assert daemon.stdout is not None
    [size] = struct.unpack(">i", daemon.stdout.read(4))
    path = daemon.stdout.read(size).decode()
    with socket.socket(socket.AF_UNIX) as spark:
        spark.connect(path)
        [worker] = struct.unpack(">i", spark.recv(4, socket.MSG_WAITALL))
    wait_until(lambda: not is_alive(worker))
    _, printed = daemon.communicate(timeout=60)  # it ends when its input does
    assert printed == b""


def test_worker_collects_garbage_after_its_first_and_every_fiftieth_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: None)
    collector = SparingCollector()

    for task in range(1, 151):
        monkeypatch.setattr(gc, "collect", lambda number=task: collected.append(number))
        collector.collect()

    assert collected == [1, 50, 100, 150]


def test_only_a_checked_daemon_is_changed() -> None:
    assert can_change(spark_daemon, "4.3.0")
    assert not can_change(spark_daemon, "4.4.0")
    assert not can_change(ModuleType("daemon"), "4.3.0")
