"""Fuzz the codecs: nothing but our own errors may come out, and never more than the limit.

Run `python fuzz/compression.py -max_total_time=60`.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["rookery"]):
    from rookery.errors import Error
    from rookery.records.compression import CODECS

_LIMIT = 1 << 18
_PACKED = [codec for codec in CODECS.values() if codec.id]
# Without their beginnings no input would get far.
_BEGINNINGS = {
    1: b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
    2: b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01",
    3: b"\x04\x22\x4d\x18\x60\x40\x82",
    4: b"\x28\xb5\x2f\xfd",
}


def TestOneInput(data: bytes) -> None:  # noqa: N802 (atheris wants this name)
    """Let the first byte choose a codec and what is done with the rest."""
    if not data:
        return
    codec, way, rest = _PACKED[data[0] % 4], data[0] // 4 % 4, data[1:]
    if way == 0:
        rest = _BEGINNINGS[codec.id] + rest
    elif way == 1:
        packed = codec.compress(rest)
        if codec.decompress(packed, len(rest)) != rest:
            raise AssertionError(f"{codec.name} does not give back what it was given")
        rest = packed[: len(packed) // 2] + rest[:4] + packed[len(packed) // 2 :]
    try:
        result = codec.decompress(rest, _LIMIT)
    except Error:
        return
    if len(result) > _LIMIT:
        raise AssertionError(f"{codec.name} passed its limit")


if __name__ == "__main__":
    atheris.Setup(sys.argv, TestOneInput)
    atheris.Fuzz()
