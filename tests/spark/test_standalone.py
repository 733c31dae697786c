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
from pyiceberg.catalog import load_catalog

from rookery.spark.contents import Contents
from rookery.spark.pack import pack
from rookery.store.address import parse
from rookery.tables.folder import below
from rookery.tables.open import open_table
from rookery.tables.port import TableSpec
from rookery.testing.backends import Backend
from rookery.testing.brokers import Host
from tests.spark.clusterjob import PIPELINE
from tests.spark.standalone import StandaloneSpark, bare_python
from tests.spark.topics import fill_topic

# A cluster is started, and the archive unpacked three times.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("own_spark")]

_JOB = Path(__file__).with_name("clusterjob.py")
_VALUES = [f"value {number:04}" for number in range(1000)]
_PAIRS = [[f"key {number}", value] for number, value in enumerate(_VALUES)]
_SIGHTINGS = [
    b"{broken" if number % 10 == 7 else b'{"id": %d, "name": "bird %d"}' % (number, number)
    for number in range(300)
]
_BROKEN = {number for number in range(300) if number % 10 == 7}
_KEYS = 25
_DECLARED = """
name = "sightings"
state = "{lake}/state{options}"
[source]
cluster = "tests"
topics = ["sightings"]
min-partitions = 2
max-offsets-per-trigger = 200
[topics.sightings]
schema = "id long, name string"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "{lake}/bronze{options}"
[[sinks]]
layer = "silver"
format = "iceberg"
location = "{lake}/silver{options}"
options = {{ catalog = "sqlite:///{folder}/catalog.db" }}
[[sinks]]
layer = "silver"
format = "topic"
location = "silver"
options = {{ cluster = "tests", key = "id", partitions = "2" }}
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "{lake}/dead{options}"
"""
_SMALL = """
[source]
cluster = "tests"
topics = ["sightings"]
[topics.sightings]
schema = "id long, name string"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "{lake}/small{options}"
"""
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_SETTINGS = {
    "spark.executor.memory": "600m",
    "spark.driver.extraJavaOptions": _QUICK_START,
    "spark.executor.extraJavaOptions": _QUICK_START,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.rookery.checkpoint.shared": "true",
}
_CONFS = [word for item in _SETTINGS.items() for word in ("--conf", "=".join(item))]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    contents = Contents.of(extras=("etcd", "spark"), also=("pyiceberg[sql-sqlite]",))
    return pack(tmp_path_factory.mktemp("packed") / "rookery.tar.gz", contents).path


def _submit(
    cluster: StandaloneSpark, archive: Path, folder: Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    # The driver, too, has nothing but what was packed.
    path = f"{bare_python(folder / 'bin')}:{os.environ['PATH']}"
    return subprocess.run(
        [
            *(sys.executable, "-m", "rookery.cli.main", "spark", "submit"),
            *("--master", cluster.master, "--archive", str(archive), "--folder", str(folder)),
            *(*_CONFS, *flags, str(_JOB), str(folder)),
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
        fill_topic(broker.bootstrap, "sightings", _SIGHTINGS)
        values = [value.encode() for value in _VALUES]
        compacted = {"cleanup.policy": "compact"}
        fill_topic(broker.bootstrap, "kept", values, 1, compacted, keys=_KEYS)
        broker.stop()
    path = folder / "rookery.toml"
    path.write_text(f"[clusters.tests]\nstore = '{store}'\ncluster = '{cluster}'\n")
    return path


@pytest.fixture(scope="module")
def lake(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where tables lie: in S3, too."""
    return backend.store(tmp_path_factory.mktemp("lake").name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's folder."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def answer(
    cluster: StandaloneSpark, archive: Path, config: Path, lake: str, folder: Path
) -> dict[str, Any]:
    """What the job found out: it is run once."""
    place, mark, options = lake.partition("?")
    declared = _DECLARED.format(lake=place, options=mark + options, folder=folder)
    (folder / PIPELINE).write_text(declared)
    done = _submit(cluster, archive, folder, "--config", str(config))
    words = f"it ended with {done.returncode}\n{done.stdout}{done.stderr}{cluster.words()}"
    assert done.returncode == 0, words
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


def test_a_pipeline_fills_tables_and_a_topic(
    answer: dict[str, Any], lake: str, folder: Path
) -> None:
    batches = answer["pipeline"]
    assert len(batches) == 2  # 300 records, at most 200 at a time
    assert sum(batch["bronze"] for batch in batches) == len(_SIGHTINGS)
    good = sorted(set(range(len(_SIGHTINGS))) - _BROKEN)
    assert _in_iceberg(lake, folder) == [(number, f"bird {number}") for number in good]
    assert sorted(int(row[2]) for row in answer["silver"]) == good
    assert sorted(_coordinates(lake, "bronze")) == sorted(
        (number % 2, number // 2) for number in range(len(_SIGHTINGS))
    )
    assert sorted(_coordinates(lake, "dead")) == sorted(
        (number % 2, number // 2) for number in _BROKEN
    )


def test_jobs_keep_the_log_in_shape(answer: dict[str, Any]) -> None:
    compacted, scrubbed = answer["jobs"]["compact"], answer["jobs"]["scrub"]
    assert compacted["problems"] == scrubbed["problems"] == []
    assert compacted["facts"]["replaced_bytes"] > 0
    last = range(len(_VALUES) - _KEYS, len(_VALUES))
    expected = [[0, number, f"key {number % _KEYS}", _VALUES[number]] for number in last]
    assert answer["kept"] == expected
    # What the workers wrote is among what was checked, and of what was compacted what is left.
    records = 3 * len(_VALUES) + _KEYS + len(_SIGHTINGS) + len(answer["silver"])
    assert scrubbed["facts"]["records"] == records


def test_a_pipeline_runs_there_by_its_master_alone(
    cluster: StandaloneSpark, config: Path, lake: str, tmp_path: Path
) -> None:
    place, mark, options = lake.partition("?")
    declared = tmp_path / "small.toml"
    state = f'state = "{place}/small-state{mark}{options}"\n'
    declared.write_text(state + _SMALL.format(lake=place, options=mark + options))
    named = tmp_path / "clusters-of-mine.toml"
    named.write_text(config.read_text())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rookery.cli.main", "pipeline", "run", str(declared)),
            *("--available-now", "--master", cluster.master, *_CONFS),
        ],
        cwd=tmp_path,
        env={**os.environ, "ROOKERY_CONFIG": str(named)},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{cluster.words()}"
    assert len(list(_coordinates(lake, "small"))) == len(_SIGHTINGS)


def _in_iceberg(lake: str, folder: Path) -> list[tuple[int, str]]:
    """Read the table as others do."""
    options = parse(lake).options
    files = {
        "s3.endpoint": options["endpoint"],
        "s3.access-key-id": options["access_key_id"],
        "s3.secret-access-key": options["secret_access_key"],
    }
    catalog = load_catalog("rookery", type="sql", uri=f"sqlite:///{folder}/catalog.db", **files)
    rows = catalog.load_table("default.silver").scan().to_arrow().to_pylist()
    return sorted((row["id"], row["name"]) for row in rows)


def _coordinates(lake: str, name: str) -> Iterator[tuple[int, int]]:
    for batch in open_table(TableSpec("parquet", below(lake, name))).read():
        for row in batch.to_pylist():
            yield row["partition"], row["offset"]


def _by_key(row: list[Any]) -> int:
    return int(row[2].removeprefix("key "))
