"""Column names that engines reserve, quoted or not.

Such a column can be written, but that engine then cannot read or change the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rookery.errors import ConfigError

ICEBERG: Final = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)
"""Iceberg's metadata columns, in Spark, Flink and Trino."""
DELTA: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Columns of Delta's change feed, which cannot be enabled for a table with one of them."""
OTHERS: Final = frozenset(
    {
        "_metadata",
        "input__file__name",
        "block__offset__inside__file",
        "row__id",
        "grouping__id",
        "rowid",
        "filename",
        "file_row_number",
        "file_index",
    }
)
"""Hidden columns of Spark's files, of Hive and of DuckDB; columns of a table hide them."""


def check_names(
    table: str, engine: str, reserved: frozenset[str], there: Iterable[str], wanted: Iterable[str]
) -> None:
    """Refuse new columns that would make a table unreadable.

    Raises:
        ConfigError: one has a reserved name.
    """
    known = set(there)
    for name in wanted:
        if name.casefold() in reserved and name not in known:
            raise ConfigError(
                f"table {table!r}: column {name!r}: {engine} keeps that name for itself, and other"
                " engines could not read the table. Leave it out of the schema, or choose another"
                " format"
            )
