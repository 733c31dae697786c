"""The columns of each layer."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from rookery.decode import variant
from rookery.decode.open import open_decoder
from rookery.decode.port import Decoder
from rookery.errors import ConfigError
from rookery.pipeline.declaration import names
from rookery.pipeline.declaration.spec import Pipeline, Sink
from rookery.tables.latest import table_schema
from rookery.tables.schemas import merge_schemas

_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_RAW: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIME,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}
_COORDINATES: Final[dict[str, pa.DataType]] = {
    names.TOPIC: pa.string(),
    names.PARTITION: pa.int32(),
    names.OFFSET: pa.int64(),
    names.TIMESTAMP: _TIME,
}
_WHOLE: Final = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
)
RAW: Final = pa.schema(_RAW)
"""The columns of the source; bronze keeps all of them."""
COORDINATES: Final = pa.schema(_COORDINATES)
"""The origin of a silver row."""
DEAD: Final = pa.schema(
    [
        *RAW,
        pa.field("reason", pa.string()),
        pa.field("stage", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("batch", pa.int64()),
        pa.field("replay", pa.int64()),
    ]
)
"""A dead letter: the whole record, the reason, the stage, the schema and the batch.

`replay` is the replay in which it failed again; null if it came from its topic.
"""
WATERMARK: Final = pa.field(names.WATERMARK, _TIME)


def silver_schema(pipeline: Pipeline, topic: str, decoder: Decoder) -> pa.Schema:
    """Return the columns of a topic's silver rows.

    Raises:
        ConfigError: they contradict the declaration.
    """
    fields = list(_value_fields(pipeline, topic, decoder))
    for field in fields:
        # Many engines treat `Rookery_Offset` and `rookery_offset` as the same name.
        if field.name.casefold() in names.OWN:
            raise ConfigError(f"topic {topic!r}: column {field.name!r} is the pipeline's own name")
    key = pipeline.decode(topic).key
    if key:
        fields.append(pa.field(names.KEY, open_decoder(key).type))
    known = {field.name for field in fields}
    silver = pipeline.silver
    for name in (*silver.keys, *([silver.event_time] if silver.event_time else [])):
        if name not in known:
            raise ConfigError(
                f"topic {topic!r} has no column {name!r}, which silver.keys or silver.event-time"
                f" names; there are {', '.join(sorted(known))}{_hint_at_name(name)}"
            )
    _check_types(pipeline, topic, {field.name: field.type for field in fields})
    return merge_schemas(topic, None, pa.schema([*fields, *COORDINATES]))


def _hint_at_name(name: str) -> str:
    """Return a hint for users of a name from an earlier release."""
    new = next((own for own in names.OWN if names.former(own) == name), None)
    return f". {name} is called {new} now" if new else ""


def _check_types(pipeline: Pipeline, topic: str, types: dict[str, pa.DataType]) -> None:
    """Refuse columns that rows cannot be sorted by, since every batch would fail."""
    silver = pipeline.silver
    for key in silver.keys if silver.upsert() else ():
        if pa.types.is_nested(types[key]) or variant.is_variant(types[key]):
            raise ConfigError(
                f"topic {topic!r}: silver.keys: {key!r} is {types[key]}; rows are replaced by"
                " plain columns, not by lists, maps or structs"
            )
    kind = types[silver.event_time] if silver.event_time else None
    if kind is not None and not (pa.types.is_timestamp(kind) or kind in _WHOLE):
        raise ConfigError(
            f"topic {topic!r}: silver.event-time: {silver.event_time!r} is {kind}; it must be a"
            " timestamp, or a whole number of milliseconds"
        )


def sink_schema(pipeline: Pipeline, sink: Sink, silver: dict[str, pa.Schema]) -> pa.Schema:
    """Return the columns of the files that a batch writes for a table."""
    if sink.layer == "bronze":
        return RAW
    if sink.layer == "dead-letters":
        return DEAD
    schema: pa.Schema | None = None
    for topic in pipeline.source.topics:
        if sink.takes(topic):
            schema = merge_schemas(sink.location, schema, silver[topic])
    if schema is None:
        raise ConfigError(f"sink {sink.location!r}: topics: none of them is in source.topics")
    schema = pa.schema([_store_column(sink.format, field) for field in schema])
    if sink.layer == "late":
        return schema.append(WATERMARK)
    if not pipeline.silver.upsert():
        return schema
    return schema.append(pa.field(names.DELETED, pa.bool_()))


def table_columns(pipeline: Pipeline, sink: Sink, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table, derived from those of its batch files."""
    return table_schema(schema, pipeline.silver.upsert() if sink.layer == "silver" else None)


def _store_column(kind: str, field: pa.Field[Any]) -> pa.Field[Any]:
    """Return a column as a format stores it: JSON as VARIANT if the format supports it."""
    if not variant.is_variant(field.type) or kind == "topic":
        return field
    return field.with_type(variant.BINARY if kind == "parquet" else pa.string())


def envelope(kind: pa.DataType) -> pa.StructType | None:
    """Return the type of a Debezium change event, also inside `payload`; None if it is not one."""
    if not pa.types.is_struct(kind):
        return None
    if kind.get_field_index("payload") >= 0:
        return envelope(kind.field("payload").type)
    names = {field.name for field in kind}
    return kind if {"op", "before", "after"} <= names else None


def _value_fields(pipeline: Pipeline, topic: str, decoder: Decoder) -> list[pa.Field[Any]]:
    if pipeline.silver.debezium:
        change = envelope(decoder.type)
        if change is None or not pa.types.is_struct(change.field("after").type):
            raise ConfigError(
                f"topic {topic!r}: silver.debezium needs op, before and after in the schema"
                " (or in its field payload), of which before and after are structs"
            )
        return list(change.field("after").type)
    if pa.types.is_struct(decoder.type):
        return list(decoder.type)
    return [pa.field("value", decoder.type)]
