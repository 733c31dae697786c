"""Decodes keys and values into typed columns, with one decoder per topic.

If all topics decode to the same type, the column has that type. Otherwise it is a struct with one
field per topic, and only the field of the row's own topic is set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from rookery.consumer.output.arrow import Numbers, Sizes, take
from rookery.consumer.settings import Decoders, DecoderSpec
from rookery.decode.open import open_decoder
from rookery.decode.port import DecoderSettings
from rookery.decode.rows import nulls
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.decode.port import Array, Decoder


class Reject(NamedTuple):
    """A row that cannot be decoded."""

    row: int
    reason: str


class DecodedColumn(NamedTuple):
    """A decoded column; rows that cannot be decoded are null in it."""

    values: Array
    rejects: list[Reject]


class StreamDecoder:
    """Decodes the keys or the values of all topics of a stream."""

    def __init__(self, what: str, decoders: Decoders, topics: Sequence[str]) -> None:
        """Open the decoders.

        Raises:
            ConfigError: a decoder does not exist, or a topic has none.
            Unavailable: a schema registry is needed and cannot be reached.
        """
        self._what = what
        self._names = list(topics)
        self._decoders = [_open(what, _of(decoders, name)) for name in topics]
        types = [decoder.type for decoder in self._decoders]
        self._is_uniform = all(type_.equals(types[0]) for type_ in types)
        self.is_raw = not types or (
            self._is_uniform and all(_is_raw(decoder) for decoder in self._decoders)
        )
        """Whether the column contains the bytes unchanged."""

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        if not self._decoders:
            return pa.binary()
        if self._is_uniform:
            return self._decoders[0].type
        return pa.struct(
            list(zip(self._names, (decoder.type for decoder in self._decoders), strict=True))
        )

    def decode(self, column: Array, topics: Sizes) -> DecodedColumn:
        """Decode bytes; `topics` contains the topic number of each row."""
        if self.is_raw or not len(column):
            return DecodedColumn(column if self.is_raw else nulls(0, self.type), [])
        present = np.unique(topics).tolist()
        if len(present) == 1:
            return self._decode_with(present[0], column)
        parts = [self._of_topic(number, column, topics) for number in present]
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        values = take(pa.concat_arrays([part.values for _, part in parts]), order)
        rejects = [reject for _, part in parts for reject in part.rejects]
        return DecodedColumn(values, sorted(rejects))

    def _of_topic(self, number: int, column: Array, topics: Sizes) -> tuple[Numbers, DecodedColumn]:
        rows = np.flatnonzero(topics == number)
        decoded = self._decode_with(number, take(column, rows))
        moved = [Reject(int(rows[reject.row]), reject.reason) for reject in decoded.rejects]
        return rows, DecodedColumn(decoded.values, moved)

    def _decode_with(self, number: int, column: Array) -> DecodedColumn:
        decoder = self._decoders[number]
        decoded = decoder.decode(column)
        rejects = [Reject(bad.row, f"{self._what}: {bad.reason}") for bad in decoded.bad]
        values = decoded.values
        if not self._is_uniform:
            fields = [
                pa.field(name, each.type)
                for name, each in zip(self._names, self._decoders, strict=True)
            ]
            arrays = [
                values if place == number else nulls(len(column), field.type)
                for place, field in enumerate(fields)
            ]
            values = pa.StructArray.from_arrays(arrays, fields=fields)
        return DecodedColumn(values, rejects)


def _of(decoders: Decoders, topic: str) -> DecoderSpec:
    if isinstance(decoders, Mapping):
        return decoders.get(topic, "raw")
    return decoders


def _open(what: str, spec: DecoderSpec) -> Decoder:
    if isinstance(spec, str):
        return open_decoder("arrow" if spec == "ipc" else spec)
    if hasattr(spec, "decode") and hasattr(spec, "type"):
        return spec
    if callable(spec):
        return open_decoder("python", DecoderSettings(function=spec))
    raise ConfigError(f"{what}={spec!r}: give a decoder's name, an open decoder or a function")


def _is_raw(decoder: Decoder) -> bool:
    return type(decoder).__module__.endswith(".decoders.raw")
