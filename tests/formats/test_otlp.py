"""Numbers from pushed metrics; other bytes raise Corrupt and nothing else."""

from __future__ import annotations

import struct

import pytest

from rookery.errors import Corrupt
from rookery.formats.otlp import Point, read_points


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def message(number: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(body)) + body


def fixed(number: int, form: str, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack(form, value)


def attribute(key: str, *value: bytes) -> bytes:
    return message(7, message(1, key.encode()), message(2, *value))


def metric(name: str, kind: int, *points: bytes, temporality: int = 0) -> bytes:
    own = b"".join(message(1, point) for point in points)
    if temporality:
        own += varint(2 << 3) + varint(temporality)
    return message(2, message(1, name.encode()), message(3, b"unit"), message(kind, own))


def data(*metrics: bytes) -> bytes:
    scope = message(2, message(1, message(1, b"scope")), *metrics)
    return message(1, message(1, b""), scope)


SAMPLE = data(
    metric(
        "latency",
        5,
        fixed(3, "<Q", 1) + fixed(4, "<d", 2.5) + attribute("node", varint(3 << 3) + varint(7)),
        fixed(6, "<q", -3) + attribute("topic", message(1, "tä".encode())),
    ),
    metric("sent", 7, fixed(6, "<q", 40), temporality=1),
    metric("total", 7, fixed(6, "<q", 41), temporality=2),
    metric("histogram", 9, fixed(4, "<d", 1.0)),
    metric("empty", 5, b""),
)


def test_gauges_and_sums_are_read() -> None:
    assert list(read_points(SAMPLE)) == [
        Point("latency", (("node", "7"),), 2.5, is_delta=False),
        Point("latency", (("topic", "tä"),), -3, is_delta=False),
        Point("sent", (), 40, is_delta=True),
        Point("total", (), 41, is_delta=False),
    ]
    assert list(read_points(b"")) == []


def test_attributes_of_other_types_become_text() -> None:
    negative = varint(3 << 3) + varint((1 << 64) - 5)
    point = (
        fixed(6, "<q", 1)
        + attribute("yes", varint(2 << 3) + b"\x01")
        + attribute("less", negative)
        + attribute("half", fixed(4, "<d", 0.5))
        + attribute("list", message(5, b""))
    )
    [parsed] = read_points(data(metric("m", 5, point)))
    assert dict(parsed.attributes) == {"yes": "true", "less": "-5", "half": "0.5", "list": ""}


def test_any_damage_is_reported_as_corrupt() -> None:
    refused = 0
    for size in range(len(SAMPLE)):
        for flipped in (0x00, 0x80, 0xFF):
            damaged = bytearray(SAMPLE)
            damaged[size] ^= flipped
            for broken in (damaged, damaged[:size]):
                try:
                    list(read_points(broken))
                except Corrupt:
                    refused += 1
    assert refused > len(SAMPLE)


@pytest.mark.parametrize("bad", [b"\x0b", b"\xff" * 11, b"\x0a\x05", b"\x08\x01"])
def test_empty_message_has_no_points(bad: bytes) -> None:
    with pytest.raises(Corrupt):
        list(read_points(bad))


def test_unterminated_fields_are_refused() -> None:
    with pytest.raises(Corrupt, match="more than 100000 fields"):
        list(read_points(b"\x18\x00" * 100_001))
