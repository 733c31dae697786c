"""Decoders as column functions, for any DataFrame with a binary column.

    from rookery.spark.functions import decode

    rows = df.select(decode("value", "json", schema="id long, name string").alias("row"))
    rows.where("row._error is null").select("row.value.*")

The functions run as Arrow UDFs, in classic Spark and over Connect. Executors need rookery
installed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from rookery.decode import variant
from rookery.decode.open import open_decoder
from rookery.decode.port import Array, Decoder, DecoderSettings, Function
from rookery.decode.registry import RegistrySettings, SchemaRegistry, UnknownSchema
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column

VALUE, ERROR = "value", "_error"


def decode(  # noqa: PLR0913 (each is a setting of some decoder)
    column: Column | str,
    decoder: str,
    *,
    schema: str | bytes | pa.Schema | None = None,
    registry: str | RegistrySettings | None = None,
    subject: str | None = None,
    version: int | None = None,
    message: str | None = None,
    function: str | Function | None = None,
) -> Column:
    """Decode a binary column to a struct of `value` and `_error`, one of which is null.

    The type is known before any row is read. It comes from `schema`, or from the registry, which is
    queried for the subject's version when this function is called. Times of day become
    microseconds, because Spark has no other column type for them. Unsigned numbers become wider
    types.

    Args:
        column: the column to decode.
        decoder: `raw`, `utf8`, `json`, `avro`, `protobuf`, `arrow` or `python`.
        schema: DDL or an Arrow schema (json, arrow, python), `variant` (json: Spark's VARIANT for
            any value), Avro's JSON, or a FileDescriptorSet.
        registry: a schema registry's address or settings, if values are framed.
        subject: the subject of the reader schema, if `schema` is not given.
        version: the version of the subject; the latest by default.
        message: the full name of a Protobuf message.
        function: for `python`: a function of a binary Arrow array, or `package.module:name`.

    Raises:
        ConfigError: an argument is invalid; the text names it.
        Unavailable: the registry cannot be reached.
    """
    from pyspark.sql import functions  # noqa: PLC0415 (commands that use no Spark start faster)
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415

    asked = None if registry is None else SchemaRegistry(registry)
    settings = DecoderSettings(schema, asked, subject, version, message, function)
    task = _Task(decoder, _pin_version(settings))
    kind = from_arrow_type(task.type)
    udf: Any = cast("Any", functions).arrow_udf(_as_function(task), kind)
    decoded = cast("Column", udf(functions.col(column) if isinstance(column, str) else column))
    return _parse(decoded) if isinstance(schema, str) and _is_variant(decoder, schema) else decoded


def _is_variant(decoder: str, schema: str) -> bool:
    return decoder == "json" and variant.is_named(schema)


def _parse(decoded: Column) -> Column:
    """Convert text that is known to be JSON to Spark's VARIANT, with Spark's own parser."""
    from pyspark.sql import functions  # noqa: PLC0415

    text, error = decoded[VALUE], decoded[ERROR]
    value = functions.try_parse_json(text)
    refused = functions.when(
        text.isNotNull() & value.isNull(), "Spark's parser refuses what others take for JSON"
    )
    return functions.struct(value.alias(VALUE), functions.coalesce(error, refused).alias(ERROR))


def _as_function(task: _Task) -> Any:
    def run(column: Array) -> Array:
        return task(column)

    # Spark recognises an Arrow UDF by its annotations, and must be able to resolve them.
    run.__annotations__ = {"column": pa.Array, "return": pa.Array}
    return run


def _pin_version(settings: DecoderSettings) -> DecoderSettings:
    """Resolve the latest version to a number, so that all executors use the same one."""
    if settings.registry is None or settings.subject is None or settings.version is not None:
        return settings
    try:
        return replace(settings, version=settings.registry.latest(settings.subject).version)
    except UnknownSchema as error:
        raise ConfigError(f"{error}; check subject") from None


class _Task:
    """The function that an executor runs for each batch; only its settings are serialised."""

    def __init__(self, decoder: str, settings: DecoderSettings) -> None:
        from pyspark import cloudpickle  # noqa: PLC0415

        # The settings as bytes are a cache key: a process that runs many tasks opens the decoder
        # once.
        self._settings: bytes = cast("Any", cloudpickle).dumps((decoder, settings))
        self.type = pa.struct([(VALUE, storable(_open(self._settings).type)), (ERROR, pa.string())])

    def __call__(self, column: Array) -> Array:
        result = _open(self._settings).decode(column)
        reasons: list[str | None] = [None] * len(column)
        for bad in result.bad:
            reasons[bad.row] = bad.reason
        kind = self.type.field(VALUE).type
        return pa.StructArray.from_arrays(
            [as_storable(result.values, kind), pa.array(reasons, pa.string())],
            fields=list(self.type),
        )


@lru_cache(maxsize=64)
def _open(settings: bytes) -> Decoder:
    from pyspark import cloudpickle  # noqa: PLC0415

    return open_decoder(*cloudpickle.loads(settings))


def storable(kind: pa.DataType) -> pa.DataType:  # noqa: PLR0911 (one for each kind of type)
    """Return the nearest type that Spark supports."""
    if variant.is_variant(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, storable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(storable(kind.key_type), storable(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(storable(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    for test, other in (
        (pa.types.is_uint8, pa.int16()),
        (pa.types.is_uint16, pa.int32()),
        (pa.types.is_uint32, pa.int64()),
        (pa.types.is_uint64, pa.decimal128(20, 0)),
        (pa.types.is_float16, pa.float32()),
        (pa.types.is_time, pa.int64()),
        (pa.types.is_fixed_size_binary, pa.binary()),
        (pa.types.is_large_binary, pa.binary()),
        (pa.types.is_large_string, pa.string()),
        (pa.types.is_null, pa.string()),
    ):
        if test(kind):
            return other
    return kind


def as_storable(values: Array, kind: pa.DataType) -> Array:  # noqa: PLR0911 (see `storable`)
    """Cast a column to the type that `storable` returned for it."""
    if values.type == kind:
        return values
    if variant.is_variant(values.type):
        return variant.as_text(values)
    if pa.types.is_struct(kind):
        columns = [
            as_storable(cast("Any", values).field(at), field.type) for at, field in enumerate(kind)
        ]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        pairs = cast("Any", values)
        return _around(
            values,
            kind,
            pa.StructArray.from_arrays(
                [as_storable(pairs.keys, kind.key_type), as_storable(pairs.items, kind.item_type)],
                fields=[kind.key_field, kind.item_field],
            ),
        )
    if pa.types.is_large_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    if pa.types.is_list(kind):
        return _around(values, kind, as_storable(cast("Any", values).values, kind.value_type))
    if pa.types.is_time(values.type):
        # 32-bit times hold milliseconds; both kinds become microseconds.
        return values.cast(pa.time64("us"), safe=False).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(kind, safe=False)
    return values.cast(kind)


def _around(values: Array, kind: pa.DataType, items: Array) -> Array:
    """Return lists or maps with other items; offsets and nulls stay the same."""
    is_valid, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(values), [is_valid, offsets], offset=values.offset, children=[items]
    )
