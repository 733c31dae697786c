"""Schema evolution: columns are added and widened automatically, never changed or removed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from rookery.decode import variant
from rookery.errors import ConfigError

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())
_ID: Final = b"PARQUET:field_id"
"""The metadata key with which Arrow stores the field id of a Parquet column."""
_NAMES: Final = b"rookery.names"


def merge_schemas(table: str, old: pa.Schema | None, new: pa.Schema) -> pa.Schema:
    """Return the columns of both, the old ones first.

    Raises:
        ConfigError: a column has an incompatible type.
    """
    if old is None:
        return _plain(new)
    fields = {field.name: field for field in old}
    for field in _plain(new):
        known = fields.get(field.name)
        if known is None:
            fields[field.name] = field
        elif known.type != field.type:
            kind = _wider(table, field.name, known.type, field.type)
            fields[field.name] = pa.field(field.name, kind)
    return pa.schema(list(fields.values()))


def check_kept(table: str, kept: pa.Schema, schema: pa.Schema) -> None:
    """Check that columns still merge after a format has converted them to its own types.

    Raises:
        ConfigError: the format changes a type, so every batch after the first would fail.
    """
    try:
        merge_schemas(table, kept, schema)
    except ConfigError as error:
        raise ConfigError(f"the table's format has no such type: {error}") from None


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly these columns; missing ones are null."""
    columns: list[pa.Array[Any]] = []
    for field in schema:
        at = index_of(batch.schema, field)
        if at < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(_cast(batch.column(at), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def set_names(field: pa.Field[Any], number: int, names: Iterable[str]) -> pa.Field[Any]:
    """Return a column that files have under its field id, or under one of several names."""
    others = json.dumps([name for name in names if name != field.name])
    return field.with_metadata({_ID: str(number), _NAMES: others})


def plain_names(schema: pa.Schema) -> pa.Schema:
    """Return the columns without the metadata that `set_names` added."""
    return pa.schema([field.remove_metadata() for field in schema])


def index_of(schema: pa.Schema, field: pa.Field[Any]) -> int:
    """Return the index of a column in a file, -1 if missing; by id, if the file has ids."""
    wanted = field.metadata or {}
    numbers = [(column.metadata or {}).get(_ID) for column in schema] if _ID in wanted else []
    if any(numbers):
        return numbers.index(wanted[_ID]) if wanted[_ID] in numbers else -1
    for name in (field.name, *json.loads(wanted.get(_NAMES, b"[]"))):
        if (at := schema.get_field_index(name)) >= 0:
            return at
    return -1


def _cast(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    if column.type == kind:
        return column
    if variant.is_variant(column.type):
        return variant.as_binary(column) if kind == variant.BINARY else variant.as_text(column)
    # Fractions of a microsecond are truncated: no table stores them, and they do not make a row
    # bad.
    return column.cast(kind, safe=not pa.types.is_timestamp(kind))


def _plain(schema: pa.Schema) -> pa.Schema:
    """Make every column nullable, since the next batch may not have it."""
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:  # noqa: PLR0911 (one for each kind of type)
    """Return the type that all formats store, out of several Arrow types for the same values."""
    if kind == variant.BINARY:
        return variant.BINARY  # with its metadata, by which Spark recognises it
    if pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind


def _wider(table: str, name: str, old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """Return the type that holds the values of both; parts of nested types can grow."""
    if old == new:
        return old
    for ladder in (_INTEGERS, _FLOATS):
        if old in ladder and new in ladder:
            wider: pa.DataType = max(old, new, key=ladder.index)
            return wider
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        inner = merge_schemas(f"{table}.{name}", pa.schema(list(old)), pa.schema(list(new)))
        return pa.struct(list(inner))
    if pa.types.is_list(old) and pa.types.is_list(new):
        kind = _wider(table, f"{name}.element", old.value_type, new.value_type)
        return pa.list_(pa.field(old.value_field.name, kind))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_type, _wider(table, f"{name}.value", old.item_type, new.item_type))
    raise ConfigError(
        f"table {table!r}: column {name!r} is {old} and would become {new};"
        " columns may be added and widened. Give the column another name, or the table another"
        " location: `rookery pipeline backfill FILE --rebuild` fills a new table with all rows"
    )
