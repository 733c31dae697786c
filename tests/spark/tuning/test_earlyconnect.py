"""The process that plans a stream connects to Spark before it loads its modules."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from rookery.spark.tuning.choice import python_path
from rookery.spark.tuning.earlyconnect import TUNING

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
# In Arrow's place on the path: waits for a file, then makes room for the real one.
SLOW = """
import pathlib, sys, time
while not pathlib.Path(__file__).with_name("go on").exists():
    time.sleep(0.01)
sys.path.remove(str(pathlib.Path(__file__).parent))
del sys.modules["pyarrow"]
import pyarrow
"""


def early_path(before: str) -> str:
    return python_path([TUNING], before) or ""


@contextmanager
def runner(folder: Path, path: str) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Start a stream's planner as Spark does; yield the socket that it must connect to."""
    (folder / "pyarrow.py").write_text(SLOW)
    where = str(folder / "spark.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(where)
        server.listen(1)
        environ = {**os.environ, "PYTHONPATH": path, "PYTHON_WORKER_FACTORY_SOCK_PATH": where}
        with subprocess.Popen(
            [sys.executable, "-m", RUNNER], env=environ, stderr=subprocess.PIPE
        ) as process:
            try:
                yield server, process
            finally:
                process.kill()


def test_planner_connects_before_it_imports(tmp_path: Path) -> None:
    with runner(tmp_path, early_path(str(tmp_path))) as (server, process):
        server.settimeout(120)
        connection, _ = server.accept()
        with connection:
            # It has not loaded anything, and cannot: so nothing was sent either.
            connection.settimeout(0.2)
            try:
                early = connection.recv(1)
            except TimeoutError:
                early = b""
            assert early == b""
            assert process.poll() is None
            (tmp_path / "go on").touch()
            connection.settimeout(120)
            # What pyspark says first, over the connection that it was given.
            assert int.from_bytes(connection.recv(4), "big") == process.pid


def test_planner_of_a_stopped_query_prints_nothing(tmp_path: Path) -> None:
    with runner(tmp_path, early_path(str(tmp_path))) as (server, process):
        server.settimeout(120)
        connection, _ = server.accept()
        connection.close()
        (tmp_path / "go on").touch()
        _, printed = process.communicate(timeout=120)
    assert process.returncode == 1
    assert printed == b""


def test_other_modules_of_the_same_name_still_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.path[1:])"],
        env={**os.environ, "PYTHONPATH": early_path(str(tmp_path))},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert done.stdout.startswith("theirs\n")
    assert "tuning/early" not in done.stdout


def test_only_processes_of_spark_have_the_path(spark: SparkSession) -> None:
    assert "tuning/early" not in os.environ.get("PYTHONPATH", "")
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert "tuning/early" in jvm.System.getenv("PYTHONPATH")
