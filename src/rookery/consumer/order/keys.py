"""A row's place in time: its key, from its own time and those of the rows before it.

The clock of a partition is the highest time of its rows so far. A row's key is its time, but no
less than the clock before it minus the lateness allowance: so with no allowance the keys of a
partition never go down, and the order of its offsets is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.output.arrow import Numbers


class RowKeys(NamedTuple):
    """The keys of some rows that follow each other in a partition."""

    keys: Numbers
    clocks: Numbers
    """The clock behind each row."""
    began: int
    """The clock before the first one."""

    @property
    def clock(self) -> int:
        """The clock behind the last one."""
        return int(self.clocks[-1]) if len(self.clocks) else self.began

    @property
    def before(self) -> Numbers:
        """The clock before each row."""
        before = np.empty_like(self.clocks)
        before[:1] = self.began
        before[1:] = self.clocks[:-1]
        return before


def keyed(times: Numbers, clock: int, lateness_ms: int, max_time_ms: int) -> RowKeys:
    """Return the keys of rows.

    Args:
        times: in milliseconds; NO_TIME where there is none.
        clock: before the first row.
        lateness_ms: how far back a row may lie and still be put in its place.
        max_time_ms: rows above it are mistaken: they do not move the clock.
    """
    if lateness_ms == 0 and len(times) and int(times.max()) <= max_time_ms:
        # NO_TIME is below everything, so the running maximum is the key, whatever is missing.
        clocks = np.maximum.accumulate(times)
        if clocks[0] < clock:
            np.maximum(clocks, clock, out=clocks)
        return RowKeys(clocks, clocks, clock)
    counted = np.where(times <= max_time_ms, times, NO_TIME)
    clocks = np.maximum.accumulate(np.maximum(counted, clock))
    found = RowKeys(clocks, clocks, clock)
    before = found.before
    keys = np.maximum(counted, before - lateness_ms)
    # A row without a sound time of its own takes the clock's.
    return found._replace(keys=np.where(counted == NO_TIME, before, keys))


def lateness(keys: Numbers, times: Numbers, max_time_ms: int) -> Numbers:
    """Return by how much each row comes too late; below 0 if its time is a mistake; else 0."""
    if np.array_equal(keys, times) and (not len(times) or times.max() <= max_time_ms):
        return np.broadcast_to(np.int64(0), len(times))
    late: Numbers = np.maximum(keys - times, 0)
    late[times == NO_TIME] = 0
    is_mistaken = times > max_time_ms
    if is_mistaken.any():
        late[is_mistaken] = max_time_ms - times[is_mistaken]
    return late
