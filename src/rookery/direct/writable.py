"""Defines the writable columns: Kafka's, by the names that Spark's own sink uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from rookery.errors import ConfigError


def check_columns(schema: pa.Schema, topic: str, types: Mapping[str, str] | None = None) -> None:
    """Reject columns that cannot become part of a record.

    Args:
        schema: the columns.
        topic: the topic for rows that do not name one.
        types: the caller's names for the column types, if different from Arrow's.

    Raises:
        ConfigError: a column is missing, unknown or of a wrong type; the text says what to do.
    """
    names = schema.names
    if len(set(names)) != len(names):
        raise ConfigError(f"columns {names}: a name stands there twice")
    for field in schema:
        kind = (types or {}).get(field.name, field.type)
        wanted = _WANTED.get(field.name)
        if wanted is None:
            raise ConfigError(
                f"column `{field.name}` of type {kind} has no place in a record; select "
                f"{', '.join(_WANTED)}, and put the rest into the value (for example to_json)"
            )
        if not any(is_it(field.type) for is_it in wanted[1]):
            raise ConfigError(f"column `{field.name}` of type {kind} must be {wanted[0]}; cast it")
    if "value" not in names:
        raise ConfigError(f"columns {names}: there must be a column `value`, binary or text")
    if not topic and "topic" not in names:
        raise ConfigError("no topic: set the option `topic`, or have a column `topic`")


def _is_headers(kind: pa.DataType) -> bool:
    """Whether it is a list of keys and values, regardless of Arrow's item name and nullability."""
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = [(field.name, field.type) for field in kind.value_type]
    return fields == [("key", pa.string()), ("value", pa.binary())]


_BYTES: Final = (
    pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string,
)  # fmt: skip
_WANTED: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "key": ("binary or text", _BYTES),
    "value": ("binary or text", _BYTES),
    "topic": ("text", (pa.types.is_string, pa.types.is_large_string)),
    "partition": ("an integer", (pa.types.is_int32, pa.types.is_int16, pa.types.is_int8)),
    "headers": ("array<struct<key: string, value: binary>>", (_is_headers,)),
    "timestamp": ("a timestamp", (pa.types.is_timestamp,)),
}
