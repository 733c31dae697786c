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

from rookery.spark.environment.contents import ArchiveContents
from rookery.spark.environment.pack import pack
from rookery.store.address import parse
from rookery.tables.folder import below
from rookery.tables.open import open_table
from rookery.tables.port import TableSpec
from rookery.testing.backends import ServerBackend
from rookery.testing.brokers import Host
from tests.spark.clusterjob import PIPELINE
from tests.spark.standalone import StandaloneSpark, bare_python, driver_python
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
_BY_MASTER = """
name = "by-master"
state = "{lake}/by-master-state{options}"
[source]
cluster = "tests"
topics = ["sightings"]
min-partitions = 2
[topics.sightings]
value = "python"
function = "sightings_of_mine:decode"
schema = "id long, name string"
[silver]
mode = "upsert"
keys = ["name"]
[[sinks]]
layer = "bronze"
format = "parquet"
location = "{lake}/by-master-bronze{options}"
[[sinks]]
layer = "silver"
format = "iceberg"
location = "{lake}/by-master-silver{options}"
options = {{ catalog = "sqlite:///catalog.db" }}
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "{lake}/by-master-dead{options}"
[[gold]]
name = "total"
location = "{lake}/by-master-gold{options}"
sql = "SELECT count(*) AS birds, max(id) AS last FROM silver"
"""
_DECODER = """
import json
import pyarrow as pa

def decode(values):
    rows = [json.loads(value) for value in values.to_pylist()]
    rows = [{"id": row["id"], "name": f"bird {row['id'] % 100}"} for row in rows]
    return pa.array(rows, pa.struct({"id": pa.int64(), "name": pa.string()}))
"""
_PROGRAM = """
import json
import sys
from rookery.spark import session

spark = session("program", sys.argv[1], archive=sys.argv[2], settings=json.loads(sys.argv[3]))
rows = spark.read.format("rookery").options(cluster="tests", subscribe="birds").load()
print(rows.selectExpr("cast(value as string) as value").agg({"value": "max"}).first()[0])
print(rows.count())
spark.stop()
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
    contents = ArchiveContents.of(extras=("etcd", "spark"), also=("pyiceberg[sql-sqlite]",))
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
def config(backend: ServerBackend, tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def lake(backend: ServerBackend, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where tables are: in S3, too."""
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
    fields: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return fields


def test_workers_use_the_packed_environment(
    cluster: StandaloneSpark, answer: dict[str, Any]
) -> None:
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


def test_unshared_checkpoint_is_refused(answer: dict[str, Any]) -> None:
    assert "folder of one host" in answer["refused"]


def test_pipeline_fills_tables_and_a_topic(answer: dict[str, Any], lake: str, folder: Path) -> None:
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


def test_jobs_maintain_the_log(answer: dict[str, Any]) -> None:
    compacted, scrubbed = answer["jobs"]["compact"], answer["jobs"]["scrub"]
    assert compacted["problems"] == scrubbed["problems"] == []
    assert compacted["facts"]["replaced_bytes"] > 0
    last = range(len(_VALUES) - _KEYS, len(_VALUES))
    expected = [[0, number, f"key {number % _KEYS}", _VALUES[number]] for number in last]
    assert answer["kept"] == expected
    # What the workers wrote is among what was checked, and of what was compacted what is left.
    records = 3 * len(_VALUES) + _KEYS + len(_SIGHTINGS) + len(answer["silver"])
    assert scrubbed["facts"]["records"] == records


@pytest.fixture(scope="module")
def driver(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A host whose Python, configuration and modules the workers' hosts do not have."""
    return Driver(tmp_path_factory.mktemp("by-master"), config)


class Driver:
    """Runs commands in a folder; what it packs is kept below it."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.folder = folder
        self.python, environ = driver_python(folder / "venv")
        (folder / "modules").mkdir()
        (folder / "modules" / "sightings_of_mine.py").write_text(_DECODER)
        named = folder / "clusters-of-mine.toml"
        named.write_text(config.read_text())
        path = [str(folder / "modules"), environ.get("PYTHONPATH", "")]
        self.environ = {
            **environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "XDG_CACHE_HOME": str(folder / "my cache"),
            "ROOKERY_CONFIG": str(named),
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python), *words],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )

    def rookery(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "rookery.cli.main", *words)


def test_pipeline_runs_with_only_a_master(
    cluster: StandaloneSpark, driver: Driver, lake: str
) -> None:
    place, mark, options = lake.partition("?")
    declared = driver.folder / "by-master.toml"
    declared.write_text(_BY_MASTER.format(lake=place, options=mark + options))
    flags = ("--available-now", "--master", cluster.master, *_CONFS)
    done = driver.rookery("pipeline", "run", str(declared), *flags)

    assert done.returncode == 0, f"{done.stdout}{done.stderr}{cluster.words()}"
    assert "packing this Python environment" in done.stderr
    assert len(list(_coordinates(lake, "by-master-bronze"))) == len(_SIGHTINGS)
    assert len(list(_coordinates(lake, "by-master-dead"))) == len(_BROKEN)
    last = {number % 100: number for number in range(len(_SIGHTINGS)) if number not in _BROKEN}
    assert _in_iceberg(lake, driver.folder, "by-master-silver") == sorted(
        (number, f"bird {bird}") for bird, number in last.items()
    )
    (gold,) = open_table(TableSpec("parquet", below(lake, "by-master-gold"))).read()
    assert gold.select(["birds", "last"]).to_pylist() == [
        {"birds": len(last), "last": max(last.values())}
    ]


def test_job_runs_with_only_a_master(cluster: StandaloneSpark, driver: Driver) -> None:
    flags = ("--cluster", "tests", "--master", cluster.master, *_CONFS, "--json", "--quiet")
    done = driver.rookery("job", "scrub", *flags)

    assert done.returncode == 0, f"{done.stdout}{done.stderr}{cluster.words()}"
    assert json.loads(done.stdout.splitlines()[-1])["records"] >= len(_VALUES) + len(_SIGHTINGS)


def test_installed_option_uses_the_python_of_the_hosts(
    cluster: StandaloneSpark, driver: Driver
) -> None:
    flags = ("--cluster", "tests", "--master", cluster.master, *_CONFS)
    done = driver.rookery("job", "scrub", "--restart", "--installed", *flags)

    # They do not; all that is sent then is where the driver's Python is.
    assert done.returncode != 0
    assert f"{driver.python}: not on this host" in done.stderr + cluster.words()


def test_program_reads_topics_with_an_archive(
    cluster: StandaloneSpark, archive: Path, driver: Driver
) -> None:
    program = driver.folder / "program.py"
    program.write_text(_PROGRAM)
    done = driver.run(str(program), cluster.master, str(archive), json.dumps(_SETTINGS))

    assert done.returncode == 0, f"{done.stdout}{done.stderr}{cluster.words()}"
    assert done.stdout.split("\n")[:2] == [_VALUES[-1], str(len(_VALUES))]


def _in_iceberg(lake: str, folder: Path, name: str = "silver") -> list[tuple[int, str]]:
    """Read the table as others do."""
    options = parse(lake).options
    files = {
        "s3.endpoint": options["endpoint"],
        "s3.access-key-id": options["access_key_id"],
        "s3.secret-access-key": options["secret_access_key"],
    }
    catalog = load_catalog("rookery", type="sql", uri=f"sqlite:///{folder}/catalog.db", **files)
    rows = catalog.load_table(f"default.{name}").scan().to_arrow().to_pylist()
    return sorted((row["id"], row["name"]) for row in rows)


def _coordinates(lake: str, name: str) -> Iterator[tuple[int, int]]:
    for batch in open_table(TableSpec("parquet", below(lake, name))).read():
        for row in batch.to_pylist():
            yield row["partition"], row["offset"]


def _by_key(row: list[Any]) -> int:
    return int(row[2].removeprefix("key "))
