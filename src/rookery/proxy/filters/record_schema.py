"""Refuses produced records that do not have a schema: of JSON, Avro or Protobuf.

As in Kafka, one bad record refuses its whole batch, with INVALID_RECORD and the index and the
reason of each bad record. Other partitions of the request are served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from rookery.decode.open import open_decoder
from rookery.decode.port import Array, Decoder, DecoderSettings
from rookery.errors import ConfigError, ErrorCode
from rookery.proxy.edits.jsonschema import JsonSchema
from rookery.proxy.edits.producefilter import ProduceFilter, RefusedRecords
from rookery.proxy.edits.topicchoice import TOPICS, read_choice, read_text, read_texts
from rookery.proxy.filterapi import FilterContext
from rookery.records import kernel
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.records.recordcodec import Record, payload
from rookery.records.recordedit import EDIT_LIMIT

_MAX_REPORTED: Final = 100
"""How many bad records of a batch are named."""
_JSON_SCHEMA: Final = "json_schema"
_FORMATS: Final = ("json", _JSON_SCHEMA, "avro", "protobuf")

Value = bytes | None
FindBad = Callable[[Sequence[Value]], dict[int, str]]
"""Returns the rows that do not have a schema, each with the reason."""


class RecordSchema(ProduceFilter):
    """Checks records."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "format": "json, json_schema, avro or protobuf.",
        "schema_file": "The schema: columns as in SQL for json (`id bigint, name string`), "
        "a JSON Schema, an Avro schema, or a FileDescriptorSet of protoc.",
        "message": "The full name of the Protobuf message; by default the first of the file.",
        "required": "The names of columns that must not be null or missing.",
        "part": "value or key; by default the value.",
        "topics": TOPICS,
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        kind = read_choice(self.options, "format", _FORMATS)
        part = read_choice(self.options, "part", ("key", "value"), "value")
        self._field = Record._fields.index(part)
        self._required = read_texts(self.options, "required")
        self._find_bad = self._open(kind, Path(read_text(self.options, "schema_file")))

    def _open(self, kind: str, path: Path) -> FindBad:
        try:
            data = path.read_bytes()
            schema = data if kind == "protobuf" else data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"schema_file: {path}: {error}") from error
        if isinstance(schema, str) and kind == _JSON_SCHEMA:
            if self._required:
                raise ConfigError("required: is for columns; use `required` of the JSON Schema")
            return partial(_find_mismatches, JsonSchema(schema))
        return partial(self._find_undecodable, self._open_decoder(kind, schema))

    def _open_decoder(self, kind: str, schema: bytes | str) -> Decoder:
        message = self.options.get("message")
        if message is not None and not isinstance(message, str):
            raise ConfigError("message: must be a text")
        decoder = open_decoder(kind, DecoderSettings(schema=schema, message=message))
        names = {decoder.type.field(at).name for at in range(decoder.type.num_fields)}
        if missing := sorted(set(self._required) - names):
            raise ConfigError(f"required: the schema has no column {missing[0]!r}")
        return decoder

    def edit_batch(
        self, context: FilterContext, topic: str, records: Buffer, header: BatchHeader
    ) -> bytes | None:
        """Refuse a batch with a bad record; a record without the part, such as a tombstone, passes.

        Raises:
            RefusedRecords: some records do not have the schema.
        """
        if header.is_control:
            return None
        rows = kernel.decode(payload(records, header, EDIT_LIMIT), header, Record)
        values: list[Any] = [row[self._field] for row in rows]
        bad = self._find_bad(values)
        if bad:
            reason = f"{len(bad)} of {len(values)} records do not have the schema"
            shown = sorted(bad.items())[:_MAX_REPORTED]
            raise RefusedRecords(ErrorCode.INVALID_RECORD, reason, shown)
        return None

    def _find_undecodable(self, decoder: Decoder, values: Sequence[Value]) -> dict[int, str]:
        """Return the rows that cannot be decoded, or lack a column, each with the reason."""
        decoded = decoder.decode(pa.array(values, pa.binary()))
        bad = {row.row: row.reason for row in decoded.bad}
        for name in self._required:
            for row in _nulls(decoded.values, name):
                bad.setdefault(row, f"{name} is null or missing")
        return bad


def _find_mismatches(schema: JsonSchema, values: Sequence[Value]) -> dict[int, str]:
    """Return the rows that do not have a JSON Schema, each with the reason."""
    return {
        row: reason
        for row, value in enumerate(values)
        if value is not None and (reason := schema.reason(value)) is not None
    }


def _nulls(values: Array, name: str) -> list[int]:
    """Return the rows that have a value, but no value in a column."""
    wrong = pc.and_(pc.is_valid(values), pc.is_null(pc.struct_field(values, [name])))
    rows: list[int] = pc.indices_nonzero(wrong).to_pylist()
    return rows
