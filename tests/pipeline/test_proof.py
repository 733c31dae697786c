"""Faults that would stop a run are found before it: existing tables, types, SQL of gold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rookery.cli.main import main
from rookery.errors import ConfigError
from rookery.pipeline.batch.engine import BatchPlan
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.gold import make_gold
from rookery.pipeline.proof import prove_gold, prove_tables
from rookery.tables.open import open_table
from rookery.tables.port import TableSpec
from tests.pipeline.test_engine import SECOND, declared, engine_of, rows
from tests.pipeline.test_migration import sink_of, written_before

FORMATS = ["parquet", "iceberg", "delta", "duckdb"]


def prove(pipeline: Pipeline) -> None:
    prove_tables(BatchPlan.of(pipeline))


@pytest.mark.parametrize("kind", FORMATS)
def test_type_that_contradicts_a_table_is_refused(tmp_path: Path, kind: str) -> None:
    engine = engine_of(declared(tmp_path, "id int", **sink_of(kind)))
    engine.run(rows(0, 2))
    engine.finish()
    more = sink_of(kind)["more"]

    with pytest.raises(ConfigError, match=r"'id' is int32 .* string.* another location"):
        prove(declared(tmp_path, "id string", more=more))
    prove(declared(tmp_path, "id int, name string", more=more))


@pytest.mark.parametrize("command", ["plan", "run"])
def test_commands_refuse_what_the_proof_refuses(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = engine_of(declared(tmp_path, "id int"))
    engine.run(rows(0, 2))
    engine.finish()
    declared(tmp_path, "id string")

    # There is no log at its source, and no Spark: the tables are looked at first.
    assert main(["pipeline", command, str(tmp_path / "birds.toml")]) == 2

    assert "'id' is int32" in capsys.readouterr().err


@pytest.mark.parametrize("kind", FORMATS)
def test_type_that_no_file_supports_is_refused(tmp_path: Path, kind: str) -> None:
    table = open_table(TableSpec(kind, str(tmp_path / "birds"), "birds"))

    for wrong in (pa.struct([]), pa.map_(pa.string(), pa.struct([])), pa.month_day_nano_interval()):
        with pytest.raises(ConfigError):
            table.check(pa.schema([pa.field("id", pa.int64()), pa.field("wrong", wrong)]))
    table.check(pa.schema([pa.field("id", pa.int64())]))


def test_table_of_another_state_is_refused(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    engine_of(pipeline).run(rows(0, 2))
    prove(pipeline)
    (tmp_path / ".rookery").rename(tmp_path / "lost")

    with pytest.raises(ConfigError, match="its state was lost"):
        prove(pipeline)


def test_batch_for_an_undeclared_table_is_reported(tmp_path: Path) -> None:
    engine_of(declared(tmp_path, more=SECOND)).run(rows(0, 2))

    with pytest.raises(ConfigError, match="put it back for one run"):
        prove(declared(tmp_path))


def test_columns_to_be_renamed_are_reported(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, **sink_of("iceberg"))
    written_before(pipeline, engine_of(pipeline), -1, range(3))

    migrations = prove_tables(BatchPlan.of(pipeline))

    assert [dict(migration.columns)["_offset"] for migration in migrations] == ["rookery_offset"]
    assert "_offset" in (open_table(pipeline.sinks[3].table()).schema() or pa.schema([])).names
    (tmp_path / "delta").mkdir()
    pipeline = declared(tmp_path / "delta", **sink_of("delta"))
    written_before(pipeline, engine_of(pipeline), -1, range(3))
    with pytest.raises(ConfigError, match="rookery pipeline migrate"):
        prove_tables(BatchPlan.of(pipeline))


GOLD = '[[gold]]\nname = "total"\nlocation = "gold"\nsql = """{}"""\n'


def test_gold_sql_is_checked_and_explained(spark: SparkSession, tmp_path: Path) -> None:
    def gold(sql: str, schema: str = "id long") -> Pipeline:
        return declared(tmp_path, schema, more=GOLD.format(sql))

    def refused(sql: str, match: str, schema: str = "id long") -> None:
        with pytest.raises(ConfigError, match=match):
            prove_gold(spark, BatchPlan.of(gold(sql, schema)))

    refused("SELECT nothing FROM silver", "gold 'total'.*`nothing`")
    refused("SELEKT id FROM silver", "gold 'total'.*[Ss]yntax")
    refused("SELECT * FROM elsewhere", "gold 'total'.*elsewhere")
    refused("DROP VIEW silver", "gold 'total'")
    refused("SELECT INTERVAL '1' MONTH AS m FROM silver", "gold|table")
    pipeline = gold("SELECT count(*) AS n, max(rookery_offset) AS last FROM silver -- all of it\n;")
    prove_gold(spark, BatchPlan.of(pipeline))
    engine = engine_of(pipeline)
    engine.run(rows(0, 3))
    assert make_gold(spark, engine) == ["total"]

    refused("SELECT 'a' AS n FROM silver", "'n' is int64 and would become string")
    engine = engine_of(gold("SELECT count(*) AS n, raise_error('oops') AS last FROM silver"))
    with pytest.raises(ConfigError, match=r"gold 'total'.*correct the SQL"):
        make_gold(spark, engine)
