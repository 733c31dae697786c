"""Proofs that a job kept all records: the number of rows and keys, and a sum of row hashes.

The sum does not depend on the order of rows, so moved records can be compared with their source.
Keys are counted by a sketch (HyperLogLog) of 16 KiB: the same keys yield the same sketch, and a
topic of any size can be counted in any number of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rookery.direct.latest import MAX_BYTES, KeyShare, TooManyKeysError, latest
from rookery.records import murmur

Hashes: TypeAlias = npt.NDArray[np.uint64]

COLUMNS: Final = ("timestamp", "key", "value", "headers")
"""The hashed columns of a row; with `offset` before them, its position as well."""

_BITS: Final = 14
_REGISTERS: Final = 1 << _BITS
_MASK64: Final = (1 << 64) - 1
_MOST: Final = 2**31 - 1
_FACTORS: Final = {
    "offset": np.uint64(0xD6E8FEB86659FD93),
    "timestamp": np.uint64(0xA0761D6478BD642F),
    "key": np.uint64(0x9E3779B97F4A7C15),
    "value": np.uint64(0xE7037ED1A0B428DB),
    "headers": np.uint64(0x8EBC6AF09C88C6E3),
}


@dataclass(frozen=True, slots=True)
class Proof:
    """A summary of rows."""

    rows: int = 0
    checksum: int = 0
    sketch: bytes = field(default=b"", repr=False)
    """The sketch of the keys; empty: no keys."""
    exact_keys: int = -1
    """The exact number of keys; -1: unknown."""

    def __add__(self, other: Proof) -> Proof:
        exact = -1
        if self.exact_keys >= 0 and other.exact_keys >= 0:
            exact = self.exact_keys + other.exact_keys
        return Proof(
            self.rows + other.rows,
            (self.checksum + other.checksum) & _MASK64,
            _join(self.sketch, other.sketch),
            exact,
        )

    @property
    def keys(self) -> int:
        """The number of keys; an estimate, unless it is known exactly."""
        return self.exact_keys if self.exact_keys >= 0 else _estimate(self.sketch)

    def text(self) -> str:
        """Format it as readable text; without keys if none were examined."""
        sign = "" if self.exact_keys >= 0 else "≈"
        keys = f" {sign}{self.keys:,} keys," if sign != "≈" or self.sketch else ""
        return f"{self.rows:,} rows,{keys} checksum {self.checksum:016x}"

    def as_json(self) -> dict[str, object]:
        """Return it for scripts."""
        return {"rows": self.rows, "keys": self.keys, "checksum": f"{self.checksum:016x}"}


_NOTHING: Final = Proof(exact_keys=0)


def prove_latest(rows: Callable[[], Iterable[pa.RecordBatch]], max_bytes: int = MAX_BYTES) -> Proof:
    """Sum up the last row of every key, unless it is a tombstone, and all rows without a key.

    Args:
        rows: reads all rows. If there are too many keys, it is called once for each share of them.
        max_bytes: the memory limit for the last row's hash of each key.
    """
    count = 1
    while True:
        shares = (KeyShare(index, count) for index in range(count))
        try:
            return sum((_prove_share(rows(), share, max_bytes) for share in shares), _NOTHING)
        except TooManyKeysError:
            # The fewer the shares, the sooner the limit is hit: all failed attempts together read
            # less than all rows once.
            count *= 2


def _prove_share(batches: Iterable[pa.RecordBatch], share: KeyShare, max_bytes: int) -> Proof:
    total = _NOTHING

    def keyed() -> Iterator[pa.RecordBatch]:
        nonlocal total
        for batch in map(_hash, batches):
            is_keyed = batch.column("key").is_valid()
            if batch.column("key").null_count:
                if share.index == 0:
                    total += _sum(batch.filter(pc.invert(is_keyed)))
                batch = batch.filter(is_keyed)  # noqa: PLW2901 (the rest of it)
            yield batch

    for batch in latest(keyed(), share, max_bytes):
        total += _sum(batch)
    return total


def _sum(batch: pa.RecordBatch) -> Proof:
    checksum = int(batch.column("hash").to_numpy().sum(dtype=np.uint64))
    keys = batch.num_rows - batch.column("key").null_count
    return Proof(batch.num_rows, checksum, exact_keys=keys)


def _hash(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return keys and hashes, and whether there is a value: nothing else must be kept."""
    is_there = batch.column("value").is_valid()
    value: Any = pc.if_else(is_there, is_there, pa.scalar(None, pa.bool_()))
    columns: dict[str, Any] = {
        "key": batch.column("key"),
        "value": value,
        "hash": pa.array(row_hashes(batch)),
    }
    return pa.record_batch(columns)


def prove(batches: Iterable[pa.RecordBatch]) -> Proof:
    """Sum up rows by all hashed columns that exist."""
    rows, checksum = 0, 0
    registers = np.zeros(_REGISTERS, np.uint8)
    for batch in batches:
        if batch.num_rows:
            rows += batch.num_rows
            checksum += int(row_hashes(batch).sum(dtype=np.uint64))
            _note_keys(registers, batch)
    return Proof(rows, checksum & _MASK64, registers.tobytes() if registers.any() else b"")


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """Hash every row."""
    total = np.zeros(batch.num_rows, np.uint64)
    for name, factor in _FACTORS.items():
        if name in batch.schema.names:
            total += _mix(_column(batch.column(name)) * factor)
    return _mix(total)


def _column(column: pa.Array[Any]) -> Hashes:
    """Return a number for each value; only null is 0."""
    kind = column.type
    if pa.types.is_list(kind):
        return _lists(column)
    if pa.types.is_timestamp(kind):
        # Truncated as in written records: Kafka's timestamps have millisecond precision.
        column = column.cast(pa.timestamp("ms", tz=kind.tz), safe=False).cast(pa.int64())
        kind = column.type
    if pa.types.is_integer(kind):
        numbers = column.fill_null(-2).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers.view(np.uint64) + np.uint64(3)
    return _texts(column)


def spread(column: pa.Array[Any], count: int) -> npt.NDArray[np.int32]:
    """Return a number below `count` for every binary or text value; a null counts as empty."""
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    _, offsets, data = column.buffers()
    if not len(column) or offsets is None:
        return np.zeros(len(column), np.int32)
    view = memoryview(data) if data is not None else b""
    buckets = murmur.partitions(
        memoryview(offsets), view, column.offset, len(column), is_large, count
    )
    return np.frombuffer(buckets, np.int32)


def _texts(column: pa.Array[Any]) -> Hashes:
    """Hash binary or text values; a null is 0."""
    hashes = spread(column, _MOST).astype(np.uint64) + np.uint64(1)
    if column.null_count:
        hashes *= column.is_valid().to_numpy(zero_copy_only=False)
    return hashes


def _lists(column: pa.Array[Any]) -> Hashes:
    """Hash headers, dependent on their order; no headers and null are equal."""
    sizes = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    total = np.zeros(len(column), np.uint64)
    values: Any = pc.list_flatten(column)
    if not len(values):
        return total
    rows = np.repeat(np.arange(len(column)), sizes)
    place = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    names, contents = values.field("key"), values.field("value")
    hashes = _texts(names) * _FACTORS["key"] + _texts(contents) * _FACTORS["value"]
    np.add.at(total, rows, _mix(hashes + place.astype(np.uint64)))
    return total


def _mix(hashes: Hashes) -> Hashes:
    """Spread the bits of numbers over all 64 (splitmix64's last steps)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


# Keys.


def _note_keys(registers: npt.NDArray[np.uint8], batch: pa.RecordBatch) -> None:
    if "key" not in batch.schema.names:
        return
    column = batch.column("key")
    hashes = _texts(column)
    if column.null_count:
        hashes = hashes[hashes > 0]
    if not len(hashes):
        return
    mixed = _mix(hashes)
    rest = mixed >> np.uint64(_BITS)
    # The position of the lowest set bit, by its power of two, which floats represent exactly.
    lowest = (rest & (~rest + np.uint64(1))) | np.uint64(1 << 50)
    lowest &= ~lowest + np.uint64(1)
    ranks = (np.frexp(lowest.astype(np.float64))[1]).astype(np.uint8)
    np.maximum.at(registers, (mixed & np.uint64(_REGISTERS - 1)).astype(np.intp), ranks)


def _join(left: bytes, right: bytes) -> bytes:
    if not left or not right:
        return left or right
    return np.maximum(np.frombuffer(left, np.uint8), np.frombuffer(right, np.uint8)).tobytes()


def _estimate(sketch: bytes) -> int:
    """Estimate the number of keys in a sketch: near exact for few keys, within 1 % for many."""
    if not sketch:
        return 0
    registers = np.frombuffer(sketch, np.uint8)
    empty = int((registers == 0).sum())
    raw = (
        0.7213
        / (1 + 1.079 / _REGISTERS)
        * _REGISTERS**2
        / float(np.exp2(-registers.astype(float)).sum())
    )
    if raw <= 2.5 * _REGISTERS and empty:
        return round(_REGISTERS * float(np.log(_REGISTERS / empty)))
    return round(raw)
