"""Reads numbers from OpenTelemetry metrics that clients push (KIP-714).

From the protobuf message `MetricsData`, it reads gauges and sums with one number for each point.
Histograms, summaries and fields that are not listed below are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from rookery.errors import Corrupt

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# MetricsData, ResourceMetrics and ScopeMetrics.
_RESOURCE_METRICS: Final = 1
_SCOPE_METRICS: Final = 2
_METRICS: Final = 2
# Metric.
_NAME, _GAUGE, _SUM = 1, 5, 7
# Gauge and Sum.
_POINTS, _TEMPORALITY = 1, 2
_DELTA: Final = 1
# NumberDataPoint.
_AS_DOUBLE, _AS_INT, _ATTRIBUTES = 4, 6, 7
# KeyValue and AnyValue.
_KEY, _VALUE = 1, 2
_STRING, _BOOL, _INT, _DOUBLE = 1, 2, 3, 4

# Reading this number of fields takes a tenth of a second.
_MAX_FIELDS: Final = 100_000

Field = tuple[int, "int | memoryview"]
"""A field's number, and its integer or its bytes."""


class Point(NamedTuple):
    """One number of a metric."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool
    """Whether the number is the change since the last push."""


def read_points(data: bytes | bytearray | memoryview) -> Iterator[Point]:
    """Yield the numbers of a `MetricsData`, in order.

    Raises:
        Corrupt: the bytes are not such a message, or it has too many fields.
    """
    walk = _Walk()
    for resource in walk.messages(memoryview(data), _RESOURCE_METRICS):
        for scope in walk.messages(resource, _SCOPE_METRICS):
            for metric in walk.messages(scope, _METRICS):
                yield from walk.metric(metric)


class _Walk:
    """One pass through a message, with a bound on the number of fields."""

    def __init__(self) -> None:
        self._left = _MAX_FIELDS

    def metric(self, data: memoryview) -> Iterator[Point]:
        name, kinds = "", []
        for number, value in self.fields(data):
            if number == _NAME:
                name = _text(value)
            elif number in {_GAUGE, _SUM} and isinstance(value, memoryview):
                kinds.append((number, value))
        for number, value in kinds:
            is_delta = number == _SUM and (_TEMPORALITY, _DELTA) in self.fields(value)
            for point in self.messages(value, _POINTS):
                parsed = self._point(name, point, is_delta=is_delta)
                if parsed is not None:
                    yield parsed

    def _point(self, name: str, data: memoryview, *, is_delta: bool) -> Point | None:
        value: float | None = None
        attributes: list[tuple[str, str]] = []
        for number, raw in self.fields(data):
            if number == _AS_DOUBLE:
                value = _unpack("<d", raw)
            elif number == _AS_INT:
                value = _unpack("<q", raw)
            elif number == _ATTRIBUTES and isinstance(raw, memoryview):
                attributes.append(self._attribute(raw))
        return None if value is None else Point(name, tuple(attributes), value, is_delta)

    def _attribute(self, data: memoryview) -> tuple[str, str]:
        key, text = "", ""
        for number, raw in self.fields(data):
            if number == _KEY:
                key = _text(raw)
            elif number == _VALUE and isinstance(raw, memoryview):
                for kind, value in self.fields(raw):
                    text = _value(kind, value)
        return key, text

    # The protobuf encoding.

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, value in self.fields(data):
            if number == wanted:
                if not isinstance(value, memoryview):
                    raise Corrupt(f"metrics: field {number} is not a message")
                yield value

    def fields(self, data: memoryview) -> Iterator[Field]:
        at, end = 0, len(data)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise Corrupt(f"metrics: more than {_MAX_FIELDS} fields")
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, at = _varint(data, at)
                yield number, value
                continue
            if kind == _BYTES:
                size, at = _varint(data, at)
            elif kind in {_FIXED64, _FIXED32}:
                size = 8 if kind == _FIXED64 else 4
            else:
                raise Corrupt(f"metrics: field {number} has the unknown type {kind}")
            if size > end - at:
                raise Corrupt(f"metrics: field {number} is cut off")
            yield number, data[at : at + size]
            at += size


def _value(kind: int, value: int | memoryview) -> str:
    if kind == _STRING:
        return _text(value)
    if kind == _BOOL:
        return "true" if value else "false"
    if kind == _INT and isinstance(value, int):
        return str(value - (1 << 64) if value >> 63 else value)
    if kind == _DOUBLE:
        return repr(_unpack("<d", value))
    return ""


def _unpack(form: str, raw: int | memoryview) -> float:
    if isinstance(raw, int) or len(raw) != 8:
        raise Corrupt("metrics: a value does not have eight bytes")
    value: float = struct.unpack(form, raw)[0]
    return value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Corrupt("metrics: a number is cut off or too long")


def _text(value: int | memoryview) -> str:
    if isinstance(value, int):
        raise Corrupt("metrics: a text is a number")
    return str(value, "utf-8", "replace")
