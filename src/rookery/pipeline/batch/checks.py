"""Checks: SQL expressions that must be true of a row, evaluated by DuckDB over Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import pyarrow as pa

from rookery.decode import variant
from rookery.errors import ConfigError


class Checks:
    """The checks of a pipeline, ready to run over batches."""

    def __init__(self, checks: Mapping[str, str]) -> None:
        self._checks = dict(checks)

    def verify(self, schema: pa.Schema) -> None:
        """Evaluate the expressions on an empty table.

        Raises:
            ConfigError: one of them cannot be evaluated over these columns.
        """
        for name, expression in self._checks.items():
            try:
                _evaluate(_plain(schema.empty_table()), [expression])
            except _duckdb().Error as error:
                raise ConfigError(f"silver.checks.{name}: {expression!r}: {error}") from error

    def find_failed(self, rows: pa.RecordBatch) -> list[str | None]:
        """Return for each row the first check that fails, None if all pass."""
        if not self._checks or not rows.num_rows:
            return [None] * rows.num_rows
        table = _plain(pa.Table.from_batches([rows]))
        verdicts = _evaluate(table, list(self._checks.values()))
        names = list(self._checks)
        columns = [column.to_pylist() for column in verdicts.columns]
        return [
            next((name for name, passed in zip(names, row, strict=True) if not passed), None)
            for row in zip(*columns, strict=True)
        ]


def _plain(rows: pa.Table) -> pa.Table:
    """Return the rows with VARIANT columns as JSON text, for SQL's JSON functions."""
    for at, field in enumerate(rows.schema):
        if variant.is_variant(field.type):
            rows = rows.set_column(at, field.name, rows.column(at).cast(pa.string()))
    return rows


def _evaluate(rows: pa.Table, expressions: list[str]) -> pa.Table:
    # An expression that raises an error for a row (a cast, a division) counts as false.
    columns = ", ".join(
        f"coalesce(TRY(({expression})), false) AS c{number}"
        for number, expression in enumerate(expressions)
    )
    with _duckdb().connect(
        config={"threads": 1, "autoinstall_known_extensions": False}
    ) as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("_rows", rows)
        verdicts: pa.Table = database.sql(f"SELECT {columns} FROM _rows").to_arrow_table()  # noqa: S608
        return verdicts


def _duckdb() -> ModuleType:
    try:
        import duckdb  # noqa: PLC0415 (only pipelines with checks need it)
    except ModuleNotFoundError as error:
        raise ConfigError("silver.checks need DuckDB: pip install 'rookery[spark]'") from error
    return duckdb
