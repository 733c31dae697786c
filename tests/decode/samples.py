"""The common part of decoder tests: columns, and readable results."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rookery.decode.open import open_decoder
from rookery.decode.port import Decoder, DecodeResult, DecoderSettings


def column(*values: bytes | None) -> pa.Array[Any]:
    return pa.array(list(values), pa.binary())


def opened(name: str, **settings: Any) -> Decoder:
    return open_decoder(name, DecoderSettings(**settings))


def decoded(decoder: Decoder, values: Sequence[bytes | None]) -> DecodeResult:
    """Decode, and check what every decoder promises."""
    result = decoder.decode(column(*values))
    assert result.values.type == decoder.type
    assert len(result.values) == len(values)
    result.values.validate(full=True)
    rows = [bad.row for bad in result.bad]
    assert rows == sorted(set(rows))
    for bad in result.bad:
        assert not result.values[bad.row].is_valid
        assert 0 < len(bad.reason) <= 300
        assert values[bad.row] is not None
    assert all(not result.values[at].is_valid for at, value in enumerate(values) if value is None)
    return result


def reasons(result: DecodeResult) -> dict[int, str]:
    return {bad.row: bad.reason for bad in result.bad}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Damage bytes the way disks and programmers do."""
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(damaged) + 1)
        match chance.randrange(5):
            case 0:
                damaged[at:at] = chance.randbytes(chance.randint(1, 9))
            case 1:
                del damaged[at : at + chance.randint(1, 9)]
            case 2 if at < len(damaged):
                damaged[at] ^= 1 << chance.randrange(8)
            case 3:
                # The longest numbers: impossible lengths.
                damaged[at:at] = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
            case _:
                del damaged[at:]
    return bytes(damaged)
