"""The digest of the state: a rolling checksum over the outcomes of all valid entries.

Every entry carries its writer's digest, so that replicas detect when they differ. The input of the
digest depends only on the feature level: at a given level, all programs must compute the same
digest (docs/designs/0010-digests-and-upgrades.md).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from rookery.cluster.state.outcome import AppendOutcome, Outcome
from rookery.records.crc import checksum

PACKED: Final = 2
"""The first feature level at which outcomes are packed by field instead of as text."""

_FORMER_NAMES: Final = {
    "AppendOutcome": "Appended",
    "EndedTransaction": "Ended",
    "GroupOffset": "CommittedOffset",
    "SinkBatch": "Batch",
    "SinkRange": "Ranged",
    "TransactionOwner": "Writer",
    "WrittenMarker": "Marked",
}
"""The names at level 1 of classes that were renamed since. A class that is renamed gets a row."""
_APPENDED_FIELDS: Final = len(AppendOutcome._fields)
_HEAD: Final = struct.Struct("<qI")
_SIZE: Final = struct.Struct("<I")


def advance(digest: int, level: int, number: int, outcomes: Sequence[Outcome]) -> int:
    """Return the digest after a valid entry."""
    if level >= PACKED:
        packed = [_HEAD.pack(number, len(outcomes)), *map(_packed, outcomes)]
        return checksum(b"".join(packed), digest)
    return checksum(b";".join((b"%d" % number, *map(_text, outcomes))), digest)


def pack(value: Any) -> bytes:
    """Encode a value by its type and content; names of classes and fields do not matter.

    Raises:
        TypeError: outcomes cannot contain values of this type.
    """
    if value is None:
        return b"n"
    if isinstance(value, int):  # also bool and the codes of errors
        data = int(value).to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"i" + _SIZE.pack(len(data)) + data
    if isinstance(value, str):
        data = value.encode()
        return b"s" + _SIZE.pack(len(data)) + data
    if isinstance(value, bytes):
        return b"b" + _SIZE.pack(len(value)) + value
    if isinstance(value, list | tuple):
        return _pack_all(value)
    raise TypeError(f"an outcome cannot have a {type(value).__name__}")


def _pack_all(values: Sequence[Any]) -> bytes:
    size = _SIZE.pack(len(values))
    with suppress(struct.error):  # not all are whole numbers of 64 bits
        # Most lists contain flags or codes, one for each partition of a request.
        return b"q" + size + struct.pack(f"<{len(values)}q", *values)
    return b"l" + size + b"".join(map(pack, values))


def _packed(outcome: Outcome) -> bytes:
    error, value = outcome
    if _is_appended(value):
        return b"a" + _SIZE.pack(len(value)) + _fields(value)
    return pack(error) + pack(value)


def _text(outcome: Outcome) -> bytes:
    """Encode an outcome as feature level 1 does: as text, which includes class names."""
    error, value = outcome
    if _is_appended(value):
        return _fields(value)
    text = value if isinstance(value, str) else _former_repr(value)
    return f"{int(error)}:{text}".encode()


def _former_repr(value: Any) -> str:
    """Return the `repr` of a value with the class names that level 1 was introduced with."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        name = type(value).__name__
        fields = zip(value._fields, map(_former_repr, value), strict=True)
        return f"{_FORMER_NAMES.get(name, name)}({', '.join(f'{k}={v}' for k, v in fields)})"
    if type(value) is list:
        return f"[{', '.join(map(_former_repr, value))}]"
    if type(value) is tuple:
        inner = ", ".join(map(_former_repr, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _is_appended(value: Any) -> bool:
    return type(value) is list and bool(value) and type(value[0]) is AppendOutcome


def _fields(value: list[AppendOutcome]) -> bytes:
    # This runs for every batch: packing one by one would cost more than all other work for it.
    return struct.pack(f"<{len(value) * _APPENDED_FIELDS}q", *chain.from_iterable(value))
