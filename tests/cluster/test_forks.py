"""Programs that are started while the log is open are not disturbed by gRPC, which etcd uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rookery.testing.etcd import EtcdCluster

# pyspark starts Java so: by a fork, with a function to be called before the program.
_STARTS = """
import asyncio, signal, subprocess, sys, threading
from rookery.cluster.open import open_log

async def ask(ended):
    log = open_log(sys.argv[1])
    await log.append(b"entry")
    while not ended.is_set():
        assert await log.head() == 1
    await log.close()

ended = threading.Event()
asking = threading.Thread(target=lambda: asyncio.run(ask(ended)))
asking.start()
deaf = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
for _ in range(500):
    with subprocess.Popen(["true"], preexec_fn=deaf) as started:
        print(started.wait())
ended.set()
asking.join()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.usefixtures("own_processes")
def test_forked_processes_start(etcd: EtcdCluster) -> None:
    program = [sys.executable, "-c", _STARTS, etcd.url("forks")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0"] * 500, done.stderr
