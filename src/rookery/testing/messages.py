"""Random messages, for tests of every API and version."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from rookery.errors import ErrorCode
from rookery.wire.codec import table_of
from rookery.wire.message import Message, Type
from rookery.wire.table import FieldStep, WireTable

M = TypeVar("M", bound=Message)

_CODES: Final = list(ErrorCode)
_LETTERS: Final = "abcxyz019.-_äß漢🐦"


def random_message(message: type[M], version: int, seed: int | Random) -> M:
    """Build a message with random values in all fields that `version` has.

    Fields that the version does not have hold their defaults, so that a message read back from
    its bytes equals the one that was written.
    """
    random = seed if isinstance(seed, Random) else Random(seed)
    return _struct(table_of(message, version), random)  # type: ignore[return-value] # the table makes this very class


def _struct(table: WireTable, random: Random) -> Message:
    values: dict[str, Any] = {step.name: _value(step, random) for step in table.steps}
    for step in table.tagged.values():
        if random.random() < 0.6:
            values[step.name] = _value(step, random)
        elif not step.factory:
            values[step.name] = step.default
    for step in table.absent:
        values[step.name] = step.factory() if step.factory else step.default
    made = table.message(**values)
    if table.flexible and random.random() < 0.2:
        made.unknown_tags = {9000 + random.randrange(100): random.randbytes(random.randrange(9))}
    return made


def _value(step: FieldStep, random: Random) -> Any:
    if step.nullable and random.random() < 0.2:
        return None
    if step.type is Type.STRUCT and step.table is not None:
        return _struct(step.table, random)
    if step.type is Type.ARRAY and step.table is not None:
        return [_struct(step.table, random) for _ in range(_count(random))]
    if step.type is Type.ARRAY:
        make = _MAKE[step.element or Type.I32]
        return [make(random) for _ in range(_count(random))]
    return _MAKE[step.type](random)


def _count(random: Random) -> int:
    return random.choice((0, 1, 1, 2, 3))


def _integer(low: int, high: int) -> Callable[[Random], int]:
    edges = (low, high, 0, 1)
    return lambda random: random.choice((*edges, random.randint(low, high)))


def _text(random: Random) -> str:
    return "".join(random.choices(_LETTERS, k=random.choice((0, 1, 5, 40))))


_MAKE: Final[dict[Type, Callable[[Random], Any]]] = {
    Type.BOOL: lambda random: random.random() < 0.5,
    Type.I8: _integer(-(2**7), 2**7 - 1),
    Type.I16: _integer(-(2**15), 2**15 - 1),
    Type.I32: _integer(-(2**31), 2**31 - 1),
    Type.I64: _integer(-(2**63), 2**63 - 1),
    Type.U16: _integer(0, 2**16 - 1),
    Type.U32: _integer(0, 2**32 - 1),
    Type.F64: lambda random: random.uniform(-1e9, 1e9),
    Type.UUID: lambda random: random.randbytes(16),
    Type.ERROR: lambda random: random.choice(_CODES),
    Type.STRING: _text,
    Type.BYTES: lambda random: random.randbytes(random.choice((0, 1, 50))),
    Type.RECORDS: lambda random: random.randbytes(random.choice((0, 1, 50, 3000))),
}
