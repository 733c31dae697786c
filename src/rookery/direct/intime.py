"""Merges batches of many partitions in clock order, with a bounded amount in memory.

Some batches of every partition are loaded, and more are loaded for the partition that lags most.
The next records of a partition are never earlier than its loaded ones. So all records before the
loaded end of the lagging partition are known and can be yielded.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

HELD_BYTES: Final = 128 * 1024 * 1024
"""The size of the loaded, decoded batches; at least one batch of every partition is loaded."""
_YIELD_ROWS: Final = 32_768
"""The approximate number of rows that are sorted together."""
_SAMPLED: Final = 64
_FAR: Final = (1 << 63) - 1
Clocks = np.ndarray[Any, np.dtype[np.int64]]


class TimedPiece(NamedTuple):
    """Consecutive records of a partition with their clocks, which never decrease."""

    batch: pa.RecordBatch
    clocks: Clocks


def in_time(
    partitions: Sequence[Iterator[TimedPiece]], columns: list[str], held_bytes: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the records of partitions in clock order; equal clocks keep the order of partitions.

    Args:
        partitions: the pieces of each partition; none is empty.
        columns: the columns to yield.
        held_bytes: the number of bytes to keep loaded; 0: `HELD_BYTES`.
    """
    queues = [_Queue(partition) for partition in partitions]
    lagging = [(-1, index) for index in range(len(queues))]
    most = held_bytes or HELD_BYTES
    while lagging:
        _load(queues, lagging, most)
        # After the last loaded clock of this partition, more of its records may follow.
        clock, last = lagging[0] if lagging else (_FAR, len(queues))
        taken = [
            piece
            for index, queue in enumerate(queues)
            for piece in queue.take(clock, "right" if index <= last else "left")
        ]
        yield from _merge(taken, columns)


def _load(queues: Sequence[_Queue], lagging: list[tuple[int, int]], most: int) -> None:
    """Load the partitions that lag most until enough is loaded; `lagging` is a heap of them."""
    held = sum(queue.size for queue in queues)
    while lagging and (held < most or not queues[lagging[0][1]].size):
        _, index = heapq.heappop(lagging)
        if (piece := queues[index].load()) is not None:
            held += piece.batch.nbytes
            heapq.heappush(lagging, (int(piece.clocks[-1]), index))


class _Queue:
    """The loaded pieces of a partition."""

    def __init__(self, pieces: Iterator[TimedPiece]) -> None:
        self._pieces = pieces
        self._loaded: deque[TimedPiece] = deque()

    @property
    def size(self) -> int:
        return sum(piece.batch.nbytes for piece in self._loaded)

    def load(self) -> TimedPiece | None:
        piece = next(self._pieces, None)
        if piece is not None:
            self._loaded.append(piece)
        return piece

    def take(self, clock: int, side: Any) -> Iterator[TimedPiece]:
        """Take the records before a clock; with side "right", also those equal to it."""
        while self._loaded:
            batch, clocks = self._loaded[0]
            count = int(np.searchsorted(clocks, clock, side))
            if count:
                yield TimedPiece(batch.slice(0, count), clocks[:count])
            if count < len(clocks):
                self._loaded[0] = TimedPiece(batch.slice(count), clocks[count:])
                return
            self._loaded.popleft()


def _merge(pieces: Sequence[TimedPiece], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield rows in clock order, one stretch of time after another; the sort is stable.

    The clocks of each piece never decrease. So a stretch of time is one slice of each piece, small
    enough to stay in the processor's caches while it is sorted.
    """
    begins = [0] * len(pieces)
    for bound in _bounds([piece.clocks for piece in pieces]):
        slices, times = [], []
        for index, (batch, own) in enumerate(pieces):
            begin = begins[index]
            end = len(own) if bound == _FAR else int(np.searchsorted(own, bound))
            if end > begin:
                slices.append(batch.slice(begin, end - begin).select(columns))
                times.append(own[begin:end])
                begins[index] = end
        if slices:
            order = np.argsort(np.concatenate(times), kind="stable")
            table = pa.Table.from_batches(slices).combine_chunks().take(order)
            yield from table.to_batches(max_chunksize=65_536)


def _bounds(clocks: Sequence[Clocks]) -> list[int]:
    """Choose time bounds, the last after all rows, with about `_YIELD_ROWS` rows between them."""
    if not clocks:
        return []
    some = np.sort(np.concatenate([own[::_SAMPLED] for own in clocks]))
    step = _YIELD_ROWS // _SAMPLED
    return [*np.unique(some[step::step]).tolist(), _FAR]
