"""A cluster whose hosts have no rookery: all comes with the packed archive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.spark.pack import pack
from rookery.testing.backends import Backend
from rookery.testing.brokers import Host
from tests.spark.standalone import StandaloneSpark, bare_python
from tests.spark.topics import fill_topic

# A cluster is started, and the archive unpacked three times.
pytestmark = pytest.mark.timeout(600)

_JOB = Path(__file__).with_name("clusterjob.py")
_VALUES = [f"value {number:04}" for number in range(1000)]
_PAIRS = [[f"key {number}", value] for number, value in enumerate(_VALUES)]
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(
        tmp_path_factory.mktemp("packed") / "rookery.tar.gz",
        extras=("etcd", "spark"),
        also=("grpcio", "obstore", "pandas"),
    ).path


def _submit(
    cluster: StandaloneSpark, archive: Path, folder: Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    settings = {
        "spark.executor.memory": "600m",
        "spark.driver.extraJavaOptions": _QUICK_START,
        "spark.executor.extraJavaOptions": _QUICK_START,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.rookery.checkpoint.shared": "true",
    }
    # The driver, too, has nothing but what was packed.
    path = f"{bare_python(folder / 'bin')}:{os.environ['PATH']}"
    return subprocess.run(
        [
            *(sys.executable, "-m", "rookery.cli.main", "spark", "submit"),
            *("--master", cluster.master, "--archive", str(archive), "--folder", str(folder)),
            *(word for item in settings.items() for word in ("--conf", "=".join(item))),
            *(*flags, str(_JOB), str(folder)),
        ],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


@pytest.fixture(scope="module")
def config(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in S3 and etcd with a filled topic, whose brokers have stopped, and its name."""
    folder = tmp_path_factory.mktemp("standalone-log")
    store, cluster = backend.store(folder.name), backend.cluster(folder.name)
    with Host(folder / "host", store=store, cluster=cluster) as broker:
        fill_topic(broker.bootstrap, "birds", [value.encode() for value in _VALUES])
        fill_topic(broker.bootstrap, "streamed", [])
        broker.stop()
    path = folder / "rookery.toml"
    path.write_text(f"[clusters.tests]\nstore = '{store}'\ncluster = '{cluster}'\n")
    return path


@pytest.fixture(scope="module")
def answer(
    cluster: StandaloneSpark,
    archive: Path,
    config: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What the job found out: it is run once."""
    folder = tmp_path_factory.mktemp("driver")
    done = _submit(cluster, archive, folder, "--config", str(config))
    assert done.returncode == 0, done.stdout + done.stderr + cluster.words()
    found: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return found


def test_workers_use_what_was_packed(cluster: StandaloneSpark, answer: dict[str, Any]) -> None:
    assert answer["master"] == cluster.master
    workers = answer["workers"]
    assert len({worker["folder"] for worker in workers}) == 2
    for worker in workers:
        folder = Path(worker["folder"])
        assert folder.is_relative_to(cluster.folder)
        assert Path(worker["rookery"]) == folder / "environment" / "lib" / "rookery"
        assert Path(worker["pyarrow"]).is_relative_to(folder / "environment")
        assert worker["native"]
        assert all(worker["native"].values())


def test_the_source_reads_with_all_brokers_stopped(answer: dict[str, Any]) -> None:
    expected = [
        [number % 2, number // 2, f"key {number}", value] for number, value in enumerate(_VALUES)
    ]
    assert answer["birds"] == sorted(expected)


def test_the_sink_writes_a_stream(answer: dict[str, Any]) -> None:
    assert [row[2:] for row in sorted(answer["streamed"], key=_by_key)] == _PAIRS
    # Rows went to the partition that their column names, and each has its place there once.
    assert {(row[0], row[1]) for row in answer["streamed"]} == {
        (row[0], row[1]) for row in answer["birds"]
    }


def test_the_sink_writes_a_batch(answer: dict[str, Any]) -> None:
    assert [row[2:] for row in sorted(answer["batched"], key=_by_key)] == _PAIRS


def test_a_checkpoint_that_is_not_shared_is_refused(answer: dict[str, Any]) -> None:
    assert "folder of one host" in answer["refused"]


def _by_key(row: list[Any]) -> int:
    return int(row[2].removeprefix("key "))
