"""Logs as chance makes them: partitions of very different sizes, some empty, times that tie and
now and then go back, batches of any length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rookery.records.compression import CODECS
from rookery.testing.kafkalogs import NOON, Logs, pack_rows

_CODECS: Final = tuple(codec.name for codec in CODECS.values())


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a generated log; the same values make the same log."""

    rows: int
    partitions: int
    seed: int = 1
    value_bytes: int = 100
    empty: float = 0.05
    """The share of partitions without rows."""
    disorder: float = 0.01
    """The share of rows that are up to ten seconds older than those before them."""
    batch_rows: int = 500
    """The longest batch."""

    def sizes(self) -> list[int]:
        """Return how many rows each partition has: as the harmonic series, in random order."""
        chance = np.random.default_rng(self.seed)
        weights = 1.0 / np.arange(1, self.partitions + 1)
        weights[self.partitions - int(self.partitions * self.empty) :] = 0
        chance.shuffle(weights)
        sizes = np.floor(weights / weights.sum() * self.rows).astype(int)
        sizes[int(np.argmax(sizes))] += self.rows - int(sizes.sum())
        return [int(size) for size in sizes]


def fill(logs: Logs, topic: str, shape: Shape) -> None:
    """Write it, in requests that carry a batch for every partition that has more."""
    streams = {n: _batches(shape, n, size) for n, size in enumerate(shape.sizes()) if size}
    while streams:
        batches = {n: next(stream, None) for n, stream in streams.items()}
        logs.append(topic, {n: batch for n, batch in batches.items() if batch is not None})
        streams = {n: streams[n] for n, batch in batches.items() if batch is not None}


def _batches(shape: Shape, partition: int, size: int) -> Iterator[bytearray]:
    chance = np.random.default_rng([shape.seed, partition])
    rows = _rows(shape, chance, size)
    start = 0
    while start < size:
        count = int(chance.integers(1, shape.batch_rows + 1))
        yield pack_rows(rows.slice(start, count), _CODECS[partition % len(_CODECS)])
        start += count


def _rows(shape: Shape, chance: np.random.Generator, size: int) -> pa.RecordBatch:
    # Every partition covers the same hour, so that the merge always needs all of them; in steps
    # of 10 ms, so that many rows tie.
    times = NOON + np.sort(chance.integers(0, 360_000, size)) * 10
    times -= np.where(chance.random(size) < shape.disorder, chance.integers(0, 10_000, size), 0)
    columns: dict[str, pa.Array[Any]] = {
        "key": _noise(chance, size, 8),
        "value": _noise(chance, size, shape.value_bytes),
        "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
    }
    return pa.record_batch(columns)


def _noise(chance: np.random.Generator, size: int, width: int) -> pa.Array[Any]:
    data = pa.py_buffer(chance.bytes(size * width))
    return pa.Array.from_buffers(pa.binary(width), size, [None, data]).cast(pa.binary())
