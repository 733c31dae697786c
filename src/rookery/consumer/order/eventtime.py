"""The source of a row's time: the record, a header, or a field of its key or value."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa

from rookery.consumer import gather
from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.order.block import RowBlock
from rookery.consumer.order.table import KEY, VALUE, strings
from rookery.consumer.output.arrow import Numbers, compute, take
from rookery.consumer.output.shape import TIMESTAMP, BatchShape
from rookery.consumer.positions import to_ms
from rookery.decode.port import Array
from rookery.errors import ConfigError

_INT64_BYTES: Final = 8


class EventTime:
    """Extracts the times that order rows, if they are not the record timestamps."""

    def __init__(self, event_time: str, shape: BatchShape) -> None:
        """Set the source: `record`, `header:<name>`, or a path such as `value.created_at`.

        Raises:
            ConfigError: the field does not exist, or is not a time.
        """
        self._shape = shape
        self._header = event_time.removeprefix("header:") if ":" in event_time else ""
        self._path = [] if self._header or event_time == "record" else event_time.split(".")
        if self._path:
            self._check()

    def needs(self) -> set[str]:
        """Return the parts of records that must be decoded."""
        if self._header:
            return {"headers"}
        return set(self._path[:1])

    def stamp(self, block: RowBlock, index: int) -> None:
        """Set the times that order a block's rows; -1 and invalid times count as none."""
        if self._header:
            block.event_times = _of_headers(block.arrays["headers"], self._header)
        elif self._path:
            block.event_times = self._of_field(block, index)

    def _check(self) -> None:
        decoding = self._shape.key if self._path[0] == "key" else self._shape.value
        kind = decoding.type
        for name in self._path[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                path = ".".join(self._path)
                raise ConfigError(f"event_time={path!r}: {kind} has no field {name!r}")
            kind = kind.field(name).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or _is_text(kind)):
            path = ".".join(self._path)
            raise ConfigError(
                f"event_time={path!r} is {kind}; a time is a timestamp, milliseconds as a number, "
                "or either as text"
            )

    def _of_field(self, block: RowBlock, index: int) -> Numbers:
        source = self._path[0]
        decoding = self._shape.key if source == "key" else self._shape.value
        raw = gather.binary(strings(block.table, KEY if source == "key" else VALUE))
        topics = np.full(len(raw), self._shape.topic_number(index), np.int32)
        column = decoding.decode(raw, topics).values
        for name in self._path[1:]:
            column = compute.struct_field(column, name)
        return _milliseconds(column)


def _of_headers(headers: Array, name: str) -> Numbers:
    """Return the time in the last header with the given name, for each row."""
    pairs = compute.list_flatten(headers)
    rows = np.asarray(compute.list_parent_indices(headers))
    names = compute.struct_field(pairs, "key")
    is_wanted = np.asarray(compute.equal(names, name).fill_null(False))  # noqa: FBT003
    times = np.full(len(headers), NO_TIME, np.int64)
    values = take(compute.struct_field(pairs, "value"), np.flatnonzero(is_wanted))
    # If a row has several such headers, the last one wins.
    times[rows[is_wanted]] = _of_bytes(values)
    return times


def _of_bytes(values: Array) -> Numbers:
    """Parse header values: eight bytes, or text."""
    times = np.full(len(values), NO_TIME, np.int64)
    for row, value in enumerate(values.to_pylist()):
        if value is None:
            continue
        if len(value) == _INT64_BYTES and not value.isdigit():
            times[row] = int.from_bytes(value, "big", signed=True)
        else:
            times[row] = _of_text(value)
    times[times == -1] = NO_TIME
    return times


def _of_text(value: bytes) -> int:
    try:
        text = value.decode()
        return int(text) if text.lstrip("-").isdigit() else to_ms(datetime.fromisoformat(text))
    except (ValueError, ConfigError):
        return NO_TIME


def _milliseconds(column: Array) -> Numbers:
    if _is_text(column.type):
        return _of_bytes(column.cast(pa.binary()))
    if pa.types.is_timestamp(column.type):
        column = column.cast(TIMESTAMP, safe=False)
    numbers = column.cast(pa.int64())
    times: Numbers = np.asarray(compute.fill_null(numbers, NO_TIME)).astype(np.int64)
    return np.where(times == -1, NO_TIME, times)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind)
