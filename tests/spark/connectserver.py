"""A Connect server on its own port, started as an operator would."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest

from rookery.testing.ports import HOST, free_port
from rookery.testing.probe import is_open
from rookery.testing.process import LoggedProcess
from rookery.testing.wait import wait_until

LOG: Final = "server.log"
WAREHOUSE: Final = "warehouse"
_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PATIENCE: Final = 300.0


@contextmanager
def connect_server(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Run a server whose log and tables are in a folder; yield its URL."""
    port = free_port()
    settings = {
        **settings,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.sql.warehouse.dir": str(folder / WAREHOUSE),
    }
    command = [
        *("/usr/bin/env", "-C", str(folder), f"PYSPARK_PYTHON={sys.executable}"),
        *(str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"),
        *(word for item in settings.items() for word in ("--conf", "=".join(item))),
        *("--class", _SERVER, "spark-internal"),
    ]
    process = LoggedProcess(command, folder / LOG)
    try:
        _wait_for(port, process, folder / LOG)
        yield f"sc://{HOST}:{port}"
    finally:
        process.stop(20.0)


def _wait_for(port: int, process: LoggedProcess, log: Path) -> None:
    def has_started() -> bool:
        assert process.ended() is None, log.read_text(errors="replace")[-5000:]
        return is_open(port)

    try:
        wait_until(has_started, seconds=_PATIENCE, pause=0.1)
    except TimeoutError:
        words = log.read_text(errors="replace")[-5000:]
        pytest.fail(f"the Connect server did not start:\n{words}")
