"""Puts batches of many partitions in the order of their clocks, with little of them in memory.

Of every partition some batches are loaded, more of the one that is furthest behind. What comes next
of a partition is no earlier than what is loaded of it; so all that lies before the end of what is
loaded of that one is known, and can go.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

HELD_BYTES: Final = 128 * 1024 * 1024
"""What is loaded, decoded; but at least one batch of every partition."""
_YIELD_ROWS: Final = 32_768
"""Rows that are put in order at once, about."""
_SAMPLED: Final = 64
_FAR: Final = (1 << 63) - 1
Clocks = np.ndarray[Any, np.dtype[np.int64]]


class TimedPiece(NamedTuple):
    """Records that follow each other in a partition, with their clocks, which go up."""

    batch: pa.RecordBatch
    clocks: Clocks


def in_time(
    partitions: Sequence[Iterator[TimedPiece]], columns: list[str], held_bytes: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the records of partitions by their clocks; of equal ones, the first partition's first.

    Args:
        partitions: what each has; none of the pieces is empty.
        columns: those wanted.
        held_bytes: how much is loaded; 0: `HELD_BYTES`.
    """
    queues = [_Queue(one) for one in partitions]
    behind = [(-1, index) for index in range(len(queues))]
    most = held_bytes or HELD_BYTES
    while behind:
        _load(queues, behind, most)
        # Behind the last clock of this one, more of it may come.
        clock, last = behind[0] if behind else (_FAR, len(queues))
        taken = [
            piece
            for index, queue in enumerate(queues)
            for piece in queue.take(clock, "right" if index <= last else "left")
        ]
        yield from _merged(taken, columns)


def _load(queues: Sequence[_Queue], behind: list[tuple[int, int]], most: int) -> None:
    """Load what is furthest behind, until enough is loaded; `behind` is a heap of what has more."""
    held = sum(queue.size for queue in queues)
    while behind and (held < most or not queues[behind[0][1]].size):
        _, index = heapq.heappop(behind)
        if (piece := queues[index].load()) is not None:
            held += piece.batch.nbytes
            heapq.heappush(behind, (int(piece.clocks[-1]), index))


class _Queue:
    """What is loaded of a partition."""

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
        """Take what lies before a clock, or (right) what has it, too."""
        while self._loaded:
            batch, clocks = self._loaded[0]
            count = int(np.searchsorted(clocks, clock, side))
            if count:
                yield TimedPiece(batch.slice(0, count), clocks[:count])
            if count < len(clocks):
                self._loaded[0] = TimedPiece(batch.slice(count), clocks[count:])
                return
            self._loaded.popleft()


def _merged(pieces: Sequence[TimedPiece], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield rows by their clocks, those of some time at once; of equal ones, the first stays first.

    The clocks of each piece go up. So what is of a stretch of time is one slice of each of them:
    little enough to stay in the processor's caches while it is put in order.
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
    """Choose times, the last behind all, between which about as many rows lie as are yielded."""
    if not clocks:
        return []
    some = np.sort(np.concatenate([own[::_SAMPLED] for own in clocks]))
    step = _YIELD_ROWS // _SAMPLED
    return [*np.unique(some[step::step]).tolist(), _FAR]
