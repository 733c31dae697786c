"""A SQL engine as a program: each line of input is a number and a statement, each line of output
the number and the rows.

It runs in an environment without this project: `shell.py spark JARS CATALOG` or `shell.py duckdb`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Execute = Callable[[str], list[dict[str, Any]]]


def main(engine: str, *arguments: str) -> None:
    """Answer statements until the input ends."""
    if find_spec("rookery") or find_spec("pyspark_rookery"):
        sys.exit("this is not its own environment: it has rookery")
    # What Java prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engines: dict[str, Callable[..., Execute]] = {"spark": open_spark, "duckdb": open_duckdb}
    execute = engines[engine](*arguments)
    for line in sys.stdin:
        number, statement = json.loads(line)
        answers.write(json.dumps({"number": number} | answer(execute, statement)) + "\n")
        answers.flush()


def answer(execute: Execute, statement: str) -> dict[str, Any]:
    """Return the rows of a statement, or its error."""
    try:
        return {"rows": plain(execute(statement))}
    except Exception as error:  # noqa: BLE001 (of two engines; the test sees it)
        return {"error": f"{type(error).__name__}: {error}"}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: bytes in hexadecimal, times in UTC."""
    match value:
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case bytes() | bytearray():
            return value.hex()
        case datetime():
            return (
                (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat()
            )
        case _:
            return value


def open_spark(jars: str, catalog: str) -> Execute:
    """Start Spark with Iceberg and Delta, as their documentation says."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (each environment has one engine)

    settings = {
        "spark.jars": jars,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.rookery": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.rookery.type": "jdbc",
        "spark.sql.catalog.rookery.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.rookery.warehouse": str(Path(catalog).parent),
        # Else Spark sees commits of others half a minute late.
        "spark.sql.catalog.rookery.cache-enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.Builder().master("local[2]")
    for name, value in settings.items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    return lambda statement: [row.asDict(recursive=True) for row in spark.sql(statement).collect()]


def open_duckdb() -> Execute:
    """Open DuckDB with its extensions, which are packages here: nothing is downloaded."""
    import duckdb  # noqa: PLC0415 (each environment has one engine)

    database = duckdb.connect(config={"autoinstall_known_extensions": False})
    database.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "iceberg", "delta"):
        package = find_spec(f"duckdb_extension_{name}")
        if package is None or package.origin is None:
            sys.exit(f"duckdb-extension-{name} is not installed")
        [path] = Path(package.origin).parent.rglob("*.duckdb_extension")
        database.execute(f"LOAD '{path}'")

    def execute(statement: str) -> list[dict[str, Any]]:
        result = database.execute(statement)
        columns = [str(column[0]) for column in result.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]

    return execute


if __name__ == "__main__":
    main(*sys.argv[1:])
