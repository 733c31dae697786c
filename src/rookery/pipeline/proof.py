"""Checks that a pipeline can run: all tables accept its rows, and gold's SQL is valid.

Nothing is written. The checks refuse what a run would refuse, with the same messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rookery.errors import ConfigError
from rookery.pipeline.batch.engine import BatchPlan, sink_key
from rookery.pipeline.batch.frames import arrow_schema, spark_schema
from rookery.pipeline.declaration.columns import table_columns
from rookery.pipeline.declaration.names import renames
from rookery.pipeline.declaration.spec import Gold
from rookery.pipeline.gold import view_names
from rookery.pipeline.manifests import Manifests, PipelineOrigin
from rookery.pipeline.reprocess.migration import Migration, migrations
from rookery.tables import batchorder
from rookery.tables.open import open_table
from rookery.tables.port import BatchName
from rookery.tables.schemas import merge_schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def prove_tables(plan: BatchPlan) -> list[Migration]:
    """Check that every table accepts the next batch; return the required migrations.

    Raises:
        ConfigError: one does not.
    """
    manifests = Manifests(plan.pipeline.state)
    last, origin = manifests.last(), manifests.origin()
    for number, schema in plan.sinks.items():
        sink = plan.pipeline.sinks[number]
        open_table(sink.table()).check(table_columns(plan.pipeline, sink, schema))
        if sink.format != "topic":
            _check_owner(plan, number, origin, last.batch if last else -1)
    if last is not None and not manifests.is_finished(last.batch):
        plan.check_declared(last)
    planned = list(migrations(plan.pipeline, plan.sinks))
    for migration in planned:
        migration.check()
    return planned


def prove_gold(spark: SparkSession, plan: BatchPlan) -> None:
    """Check that gold's SQL is valid over silver's columns, and that its tables accept the result.

    Raises:
        ConfigError: the SQL is invalid, or a table does not accept the result.
    """
    if not plan.pipeline.gold:
        return
    for sink, names in view_names(plan.pipeline):
        number = plan.pipeline.sinks.index(sink)
        columns = table_columns(plan.pipeline, sink, plan.sinks[number])
        there = open_table(sink.table()).schema()
        if there is not None:
            renamed = renames(there.names, columns.names)
            kept = [field for field in there if field.name not in renamed]
            columns = merge_schemas(sink_key(sink), pa.schema(kept), columns)
        for name in names:
            _empty_view(spark, name, columns)
    for gold in plan.pipeline.gold:
        open_table(gold.table()).check(_result(spark, gold))


def _empty_view(spark: SparkSession, name: str, columns: pa.Schema) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 (it takes a second)

    try:
        frame = spark.createDataFrame([], spark_schema(columns))
    except PySparkException as error:
        raise ConfigError(f"gold: Spark has no such columns as {name}'s: {_line(error)}") from error
    frame.createOrReplaceTempView(name)


def _result(spark: SparkSession, gold: Gold) -> pa.Schema:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    # Only a query is valid inside a query; a command would be executed immediately.
    query = f"SELECT * FROM (\n{gold.sql.strip().rstrip(';')}\n)"  # noqa: S608 (it is SQL)
    try:
        return arrow_schema(spark.sql(query))
    except PySparkException as error:
        raise ConfigError(f"gold {gold.name!r}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _check_owner(plan: BatchPlan, number: int, origin: PipelineOrigin | None, batch: int) -> None:
    """Check that the table does not belong to another state of this pipeline."""
    sink, name = plan.pipeline.sinks[number], plan.pipeline.name
    last = open_table(sink.table()).last_commit(name)
    query = origin.query if origin else "none"
    batchorder.is_new(sink_key(sink), last, BatchName(name, query, batch + 1))
