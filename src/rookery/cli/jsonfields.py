"""Infers the fields of JSON values without a declared schema, from a sample of the values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import pyarrow as pa
from pyarrow import json as arrow_json

from rookery.errors import ConfigError


def fields_of(values: Iterable[bytes]) -> pa.Schema | None:
    """Return a schema for those values that are objects; None if there are none.

    Raises:
        ConfigError: they contradict each other.
    """
    lines = [line for value in values if (line := _as_line(value)) is not None]
    if not lines:
        return None
    try:
        source = cast("Any", pa.BufferReader(b"\n".join(lines)))
        schema = arrow_json.read_json(source).schema
    except pa.ArrowException as error:
        raise ConfigError(
            f"--decode json: the values contradict each other ({error}); name the fields that you "
            "want with --schema"
        ) from None
    return pa.schema([field.with_type(_definite(field.type)) for field in schema])


def _as_line(value: bytes) -> bytes | None:
    try:
        parsed = json.loads(value)
    except ValueError:
        return None
    # Written again, because the original may be spread over several lines.
    return json.dumps(parsed).encode() if isinstance(parsed, dict) and parsed else None


def _definite(kind: pa.DataType) -> pa.DataType:
    """Give a type to fields that were always null, and keep times as text."""
    if pa.types.is_null(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if isinstance(kind, pa.ListType):
        return pa.list_(_definite(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([field.with_type(_definite(field.type)) for field in kind])
    return kind
