"""A Connect server: our source is found there, and `session` says which settings it lacks."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyspark
import pytest

from rookery.spark.session import settings_for
from rookery.testing.broker import BrokerProcess
from rookery.testing.ports import HOST, free_port
from rookery.testing.process import Process
from tests.spark.topics import fill_topic

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_DAEMON = "spark.python.daemon.module"
_PATIENCE = 300.0


@contextmanager
def _connect_server(folder: Path, settings: dict[str, str]) -> Iterator[str]:
    port = free_port()
    settings = {
        **settings,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [
        *("/usr/bin/env", "-C", str(folder), f"PYSPARK_PYTHON={sys.executable}"),
        *(str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"),
        *(word for item in settings.items() for word in ("--conf", "=".join(item))),
        *("--class", _SERVER, "spark-internal"),
    ]
    process = Process(command, folder / "server.log")
    try:
        _wait_for(port, process, folder / "server.log")
        yield f"sc://{HOST}:{port}"
    finally:
        process.stop(20.0)


def _wait_for(port: int, process: Process, log: Path) -> None:
    deadline = monotonic() + _PATIENCE
    while monotonic() < deadline and process.ended() is None:
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError:
            sleep(0.1)
        else:
            return
    pytest.fail(f"the Connect server did not start:\n{log.read_text(errors='replace')[-5000:]}")


@pytest.mark.timeout(600)
def test_source_view_and_stream_over_connect(tmp_path: Path) -> None:
    values = [f"value {number:03}" for number in range(300)]
    data = tmp_path / "broker"
    with BrokerProcess(data) as broker:
        fill_topic(broker.bootstrap, "birds", [value.encode() for value in values])
    settings = settings_for("local[2]")
    del settings[_DAEMON]

    with _connect_server(tmp_path, settings) as remote:
        job = [sys.executable, "-m", "tests.spark.connectjob", remote, str(data), "birds"]
        done = subprocess.run(
            [*job, str(tmp_path)], capture_output=True, text=True, timeout=540, check=False
        )

    log = (tmp_path / "server.log").read_text(errors="replace")
    assert done.returncode == 0, done.stdout + done.stderr + log[-8000:]
    answer: dict[str, Any] = json.loads((tmp_path / "answer.json").read_text())
    assert answer["table"] == values
    assert answer["view"] == values[1::2]
    assert answer["stream"] == values
    assert answer["decoded"] == values
    good, bad = answer["json"]
    assert good == [7, "2026-11-15", None]
    assert bad[:2] == [None, "None"]
    assert "not JSON" in bad[2]
    assert answer["time zone"] == "UTC"
    [warning] = answer["warnings"]
    assert f"{remote} lacks settings" in warning
    assert f"--conf {_DAEMON}=rookery.spark.daemon" in warning
    assert "unix.domain.socket" not in warning
