"""The progress of a stream: as numbers, as a table of partitions, and as a bar."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from rookery.consumer.order.engine import StreamEngine

_FIELDS: Final[list[tuple[str, pa.DataType]]] = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("start", pa.int64()),
    ("end", pa.int64()),
    ("position", pa.int64()),
    ("released", pa.int64()),
    ("high_watermark", pa.int64()),
    ("buffered_rows", pa.int64()),
    ("buffered_bytes", pa.int64()),
    ("state", pa.string()),
    ("max_time", pa.timestamp("ms", tz="UTC")),
    ("late", pa.int64()),
    ("lost", pa.int64()),
]
_WIDTH: Final = 30


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a stream."""

    rows: int
    """The number of rows returned."""
    bytes: int
    """The number of bytes of keys and values returned."""
    fraction: float
    """The fraction of the offsets that existed when the stream was opened."""
    frontier_ms: int | None
    """The time that the stream has reached."""
    rows_per_second: float
    seconds_left: float | None
    """Estimated from the rate so far; None if it is not known."""

    @classmethod
    def of(cls, engine: StreamEngine, elapsed_ms: int) -> Progress:
        """Return the progress of a stream after the given elapsed time."""
        starts = np.array([shelf.start for shelf in engine.shelf_of], np.int64)
        ends = np.maximum(
            np.array([shelf.replay_end for shelf in engine.shelf_of], np.int64), starts
        )
        done = np.minimum(np.maximum(engine.marks.offsets, starts), ends)
        total, passed = int((ends - starts).sum()), int((done - starts).sum())
        fraction = 1.0 if engine.is_finished or not total else passed / total
        seconds = max(elapsed_ms, 1) / 1000
        left = seconds * (1 - fraction) / fraction if fraction > 0 else None
        frontier = engine.frontier
        return cls(
            engine.marks.rows,
            engine.bytes,
            fraction,
            frontier if frontier >= 0 else None,
            engine.marks.rows / seconds,
            left,
        )


def partition_table(engine: StreamEngine) -> pa.Table:
    """Return the state of every partition."""
    rows = []
    for shelf in engine.shelf_of:
        clock = int(engine.states.clocks[shelf.index])
        rows.append(
            {
                "topic": shelf.place.topic,
                "partition": shelf.place.partition,
                "start": shelf.start,
                "end": shelf.replay_end,
                "position": shelf.position,
                "released": engine.states.find_released(shelf),
                "high_watermark": shelf.high_watermark,
                "buffered_rows": engine.states.count_pending(shelf.index),
                "buffered_bytes": shelf.held,
                "state": engine.states.state(shelf).value,
                "max_time": clock if clock >= 0 else None,
                "late": shelf.late,
                "lost": shelf.lost,
            }
        )
    return pa.Table.from_pylist(rows, pa.schema(_FIELDS))


class Bar:
    """A progress line on stderr that overwrites itself."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._last = ""

    def show(self, progress: Progress, *, is_over: bool) -> None:
        """Redraw the line if it has changed."""
        if not self._is_shown:
            return
        filled = int(progress.fraction * _WIDTH)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
        line = f"{bar} {progress.fraction:6.1%}  {progress.rows:,} rows{left}"
        if line != self._last or is_over:
            self._last = line
            sys.stderr.write(f"\r{line}\x1b[K" + ("\n" if is_over else ""))
            sys.stderr.flush()
