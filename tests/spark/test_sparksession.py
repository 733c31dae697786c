"""The session: its settings, where they come from, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import rookery.spark
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.place import host_mark
from rookery.errors import ConfigError
from rookery.spark.checkpoint import (
    check_checkpoint,
    check_session_checkpoint,
    check_tables,
    is_local,
)
from rookery.spark.read.options import ReadOptions
from rookery.spark.sparksession import local_cores, own_tuning, session, settings_for
from rookery.spark.write.batchwrite import BatchWriter
from rookery.spark.write.taskoutput import TaskOutput, stage
from rookery.spark.write.writeoptions import WriteOptions
from tests.direct.logs import Cluster, create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_python_tasks_run_under_the_daemon_of_spark(spark: SparkSession) -> None:
    def look(_: Iterable[int]) -> Iterator[tuple[str, bool, bool]]:
        import gc  # noqa: PLC0415
        import socket  # noqa: PLC0415

        from pyspark import daemon  # noqa: PLC0415

        is_plain = socket.socket.__module__ == "socket" and socket.socket.__name__ == "socket"
        yield sys.executable, vars(daemon)["gc"] is gc, is_plain

    processes = spark.sparkContext.parallelize(range(4), 4).mapPartitions(look).collect()

    assert set(processes) == {(sys.executable, True, True)}
    assert spark.conf.get("spark.python.daemon.module", None) is None


def test_planner_and_arrow_settings_are_those_of_spark(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert spark._jsparkSession.experimental().extraStrategies().isEmpty()
    for name in ("arrow.enable_unsafe_memory_access", "arrow.enable_null_check_for_get"):
        assert jvm.System.getProperty(name) is None


def test_session_has_all_settings(spark: SparkSession) -> None:
    wanted = settings_for("local[2]")

    assert {name: spark.conf.get(name) for name in wanted} == wanted
    assert wanted["spark.sql.shuffle.partitions"] == "2"


def test_running_session_is_returned_with_a_warning_about_missing_settings(
    spark: SparkSession,
) -> None:
    with pytest.warns(RuntimeWarning, match=r"already runs .* --conf spark\.driver\.memory=3g"):
        again = session("other", "local[2]", settings={"spark.driver.memory": "3g"})

    assert again.sparkContext is spark.sparkContext


def test_spark_started_by_another_program_is_not_tuned(spark: SparkSession) -> None:
    assert own_tuning() == ""


def test_package_exports_session() -> None:
    assert rookery.spark.session is session


def test_master_and_server_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"master=local and remote=sc://h: give only one"):
        session(master="local", remote="sc://h")


def test_archive_is_refused_with_a_server() -> None:
    with pytest.raises(ConfigError, match=r"archive=a\.tar\.gz and remote=sc://h: give only one"):
        session(remote="sc://h", archive="a.tar.gz")


def test_missing_archive_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a\.tar\.gz: no such file; `rookery spark pack`"):
        session(master="spark://h:1", archive="a.tar.gz")


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3, 2]", 3),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,1,1024]", None),
        ("spark://h:7077", None),
        ("yarn", None),
    ],
)
def test_cores_are_read_from_the_master(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores
    is_told = "spark.sql.shuffle.partitions" in settings_for(master)
    assert is_told is (cores is not None)
    assert is_local(master) is master.startswith("local")


def test_missing_pyspark_names_the_package_to_install() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from rookery.spark import session\n"
        "from rookery.errors import ConfigError\n"
        "try: session()\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert 'pip install "rookery[spark]"' in done.stdout


def test_importing_the_package_does_not_import_pyspark() -> None:
    program = "import rookery.spark, sys; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("location", ["/srv/checkpoint", "file:/srv/checkpoint", "checkpoint"])
def test_local_checkpoint_is_refused_on_several_hosts(location: str) -> None:
    with pytest.raises(ConfigError, match=r"folder of one host.*spark\.rookery\.checkpoint"):
        check_checkpoint(location, master="spark://h:7077")
    check_checkpoint(location, master="spark://h:7077", is_shared=True)
    check_checkpoint(location, master="local[2]")


@pytest.mark.parametrize("location", ["/srv/silver", "file:///srv/silver", "silver"])
def test_local_table_is_refused_on_several_hosts(location: str) -> None:
    locations = ["s3://bucket/bronze", location]
    with pytest.raises(ConfigError, match=f"^{location}: a table in a folder of one host"):
        check_tables(locations, master="spark://h:7077")
    check_tables(locations, master="spark://h:7077", is_shared=True)
    check_tables(locations, master="local[2]")
    check_tables(locations[:1], master="spark://h:7077")


@pytest.mark.parametrize("location", ["s3a://bucket/checkpoint", "hdfs://h/checkpoint"])
def test_shared_location_is_accepted(location: str) -> None:
    check_checkpoint(location, master="yarn")


def test_local_session_can_use_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    check_session_checkpoint(spark, str(tmp_path))


def test_local_log_is_refused_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"data": "/var/lib/rookery", "subscribe": "birds"}
    assert ReadOptions.of(options).place.data == options["data"]
    monkeypatch.setenv("ROOKERY_SPARK_MASTER", "spark://elsewhere:7077")
    with pytest.raises(ConfigError, match="a folder of one host"):
        ReadOptions.of(options)
    with pytest.raises(ConfigError, match="a folder of one host"):
        WriteOptions.of({"data": options["data"], "topic": "birds"}, is_stream=False)


@pytest.mark.parametrize("target", ["/srv/gaps", "file:/srv/gaps", "gaps"])
def test_local_gaps_folder_is_refused_on_several_hosts(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"store": "s3://bucket", "subscribe": "birds", "onDataLoss": "report"}
    assert ReadOptions.of({**options, "gapsTo": target}).gaps_to == target
    monkeypatch.setenv("ROOKERY_SPARK_MASTER", "spark://elsewhere:7077")
    with pytest.raises(ConfigError, match=r"gapsTo=.*a folder of one host"):
        ReadOptions.of({**options, "gapsTo": target})
    assert ReadOptions.of({**options, "gapsTo": "s3://bucket/gaps"}).gaps_to


def test_a_task_on_another_host_does_not_write_to_a_folder(tmp_path: Path) -> None:
    """It would make a log of its own, in a folder of the same name."""
    cluster = Cluster(tmp_path, is_local=True)
    with cluster.broker() as broker:
        create(broker, "t")
    mark = host_mark(cluster.place)
    options = WriteOptions.of({"data": str(cluster.folder), "topic": "t"}, is_stream=False)
    rows = pa.record_batch({"value": pa.array([b"v"])})
    written = BatchWriter(options, "run", mark).write(iter([rows]))
    assert isinstance(written, TaskOutput)
    assert written.objects
    with pytest.raises(ConfigError, match="a file of the driver's host"):
        BatchWriter(options, "run", "elsewhere").write(iter([rows]))
    with pytest.raises(ConfigError, match="a file of the driver's host"):
        stage(options, SinkBatch("s", "q", 0), iter([rows]), "elsewhere")
