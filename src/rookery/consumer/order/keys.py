"""A row's sort key, computed from its own time and the times of the rows before it.

The clock of a partition is the highest time of its rows so far. A row's key is its time, but at
least the clock before it minus the lateness allowance. With no allowance, the keys of a partition
therefore never decrease, and the order of its offsets is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.output.arrow import Numbers


class RowKeys(NamedTuple):
    """The keys of consecutive rows of a partition."""

    keys: Numbers
    clocks: Numbers
    """The clock after each row."""
    began: int
    """The clock before the first row."""

    @property
    def clock(self) -> int:
        """The clock after the last row."""
        return int(self.clocks[-1]) if len(self.clocks) else self.began

    @property
    def before(self) -> Numbers:
        """The clock before each row."""
        before = np.empty_like(self.clocks)
        before[:1] = self.began
        before[1:] = self.clocks[:-1]
        return before


def compute_keys(times: Numbers, clock: int, lateness_ms: int, max_time_ms: int) -> RowKeys:
    """Compute the keys of rows.

    Args:
        times: in milliseconds; NO_TIME where there is none.
        clock: the clock before the first row.
        lateness_ms: how late a row may be and still be put in order.
        max_time_ms: rows with a later time are treated as errors: they do not advance the clock.
    """
    if lateness_ms == 0 and len(times) and int(times.max()) <= max_time_ms:
        # NO_TIME is below every time, so the running maximum is the key even if times are missing.
        clocks = np.maximum.accumulate(times)
        if clocks[0] < clock:
            np.maximum(clocks, clock, out=clocks)
        return RowKeys(clocks, clocks, clock)
    counted = np.where(times <= max_time_ms, times, NO_TIME)
    clocks = np.maximum.accumulate(np.maximum(counted, clock))
    row_keys = RowKeys(clocks, clocks, clock)
    before = row_keys.before
    keys = np.maximum(counted, before - lateness_ms)
    # A row without a valid time takes the clock's.
    return row_keys._replace(keys=np.where(counted == NO_TIME, before, keys))


def lateness(keys: Numbers, times: Numbers, max_time_ms: int) -> Numbers:
    """Return how late each row is; negative if its time is above the maximum; otherwise 0."""
    if np.array_equal(keys, times) and (not len(times) or times.max() <= max_time_ms):
        return np.broadcast_to(np.int64(0), len(times))
    late: Numbers = np.maximum(keys - times, 0)
    late[times == NO_TIME] = 0
    is_mistaken = times > max_time_ms
    if is_mistaken.any():
        late[is_mistaken] = max_time_ms - times[is_mistaken]
    return late
