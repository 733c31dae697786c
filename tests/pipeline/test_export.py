"""A pipeline as a project of Spark's Declarative Pipelines, which Spark's own command runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery.errors import ConfigError
from rookery.pipeline.declaration.export import export
from rookery.pipeline.declaration.load import load
from tests.pipeline.logs import Log, Message
from tests.spark.connectserver import LOG, WAREHOUSE, connect_server

DECLARED = """
name = "birds"
[source]
store = "{store}"
topics = ["birds", "nests"]
[topics.birds]
schema-file = "bird.ddl"
[topics.nests]
schema = "id long, name string, eggs int"
[silver.checks]
named = "length(name) > 0"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
[[sinks]]
layer = "silver"
format = "parquet"
location = "silver"
name = "seen"
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "dead"
[[gold]]
name = "total"
location = "gold"
sql = "SELECT count(*) AS n, sum(eggs) AS eggs FROM seen"
"""


def declared(folder: Path, store: str) -> Path:
    (folder / "bird.ddl").write_text("id long,\n  name string\n")
    path = folder / "birds.toml"
    path.write_text(DECLARED.replace("{store}", store))
    return path


@pytest.mark.usefixtures("own_spark")
@pytest.mark.timeout(900)
def test_spark_runs_an_exported_pipeline(log: Log, tmp_path: Path) -> None:
    values = [json.dumps({"id": n, "name": "rook" if n else ""}).encode() for n in range(10)]
    log.write("birds", [Message(value) for value in (*values, b"{broken")])
    log.write("nests", [Message(b'{"id": 10, "name": "nest", "eggs": 4}'), Message(b"[")])
    project = tmp_path / "project"
    export(load(declared(tmp_path, log.store)), project)

    # `--remote local` would take the same port for everyone on this host.
    program = Path(sysconfig.get_path("scripts")) / "spark-pipelines"
    with connect_server(tmp_path, {"spark.sql.catalogImplementation": "hive"}) as remote:
        done = subprocess.run(
            [program, "run", "--remote", remote],
            cwd=project,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            timeout=800,
            check=False,
        )

    log_text = (tmp_path / LOG).read_text(errors="replace")[-5000:]
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-5000:] + log_text
    tables = tmp_path / WAREHOUSE
    silver = table(tables, "silver")
    assert sorted(silver["id"].to_pylist()) == list(range(1, 11))  # type: ignore[type-var] # no nulls
    places = ["rookery_topic", "rookery_partition", "rookery_offset", "rookery_timestamp"]
    assert silver.column_names == ["id", "name", *places, "eggs"]
    assert table(tables, "bronze").num_rows == 13
    dead = set(table(tables, "silver_dead")["value"].to_pylist())
    assert dead == {values[0], b"{broken", b"["}
    assert table(tables, "total").to_pylist() == [{"n": 10, "eggs": 4}]


def table(tables: Path, name: str) -> pa.Table:
    files = (tables / name).glob("*.parquet")
    return pa.concat_tables([pq.read_table(file) for file in files])


def test_unexportable_pipeline_is_refused(tmp_path: Path) -> None:
    path = declared(tmp_path, "s3://bucket/x?secret_access_key=abc")
    with pytest.raises(ConfigError, match="secret"):
        export(load(path), tmp_path / "project")
    path = declared(tmp_path, "file:///nowhere")
    with pytest.raises(ConfigError, match="empty folder"):
        export(load(path), tmp_path)
    path.write_text(path.read_text().replace("[topics.birds]", '[topics.birds]\nvalue = "avro"'))
    with pytest.raises(ConfigError, match="json, utf8 and raw"):
        export(load(path), tmp_path / "project")
    assert not (tmp_path / "project").exists()
