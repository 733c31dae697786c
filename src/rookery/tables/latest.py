"""Files of changes: their columns, the last change of every key, and the remaining rows."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rookery.errors import ConfigError
from rookery.tables.port import Upsert

_AT: Final = "__at"


def change_schema(schema: pa.Schema, upsert: Upsert) -> pa.Schema:
    """Return the columns of a file of changes: the table's, and the deletion flag."""
    if not upsert.deleted or upsert.deleted in schema.names:
        return schema
    return schema.append(pa.field(upsert.deleted, pa.bool_()))


def table_schema(schema: pa.Schema, upsert: Upsert | None) -> pa.Schema:
    """Return the columns of the table for files with this schema."""
    if upsert is None or upsert.deleted not in schema.names:
        return schema
    return schema.remove(schema.get_field_index(upsert.deleted))


def latest(changes: pa.Table, upsert: Upsert) -> pa.Table:
    """Keep the last change of every key.

    Raises:
        ConfigError: a key column does not exist, or is null in a row.
    """
    for key in upsert.keys:
        if key not in changes.column_names:
            raise ConfigError(f"upsert by {key!r}: there is no such column")
        if changes[key].null_count:
            raise ConfigError(
                f"upsert by {key!r}: {changes[key].null_count} rows have none;"
                " add a check that such rows are dead letters"
            )
    if upsert.order:
        changes = changes.sort_by([(column, "ascending") for column in upsert.order])
    numbered = changes.append_column(_AT, pa.array(range(changes.num_rows), pa.int64()))
    last = numbered.group_by(list(upsert.keys)).aggregate([(_AT, "max")])
    return changes.take(last[f"{_AT}_max"])


def select_remaining(changes: pa.Table, schema: pa.Schema, upsert: Upsert) -> pa.Table:
    """Return the changes that do not delete, with the table's columns."""
    if upsert.deleted:
        deleted = pc.field(upsert.deleted)
        changes = changes.filter(deleted.is_null() | ~deleted)
    return changes.select(schema.names)
