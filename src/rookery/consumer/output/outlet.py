"""Builds output batches: when rows are due, limits of size, late and undecodable rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rookery.clock import Clock
from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.faults import LateRow, MissingTimestamp, Undecodable
from rookery.consumer.order.keys import lateness
from rookery.consumer.order.ready import OrderedRows, ReadyRows
from rookery.consumer.output.arrow import Flags, Numbers, column
from rookery.consumer.output.shape import BatchShape
from rookery.consumer.settings import StreamSettings, ms
from rookery.model.partition import TopicPartition

# Arrow's binary columns have 31-bit offsets, and one more record must fit.
_MAX_BYTES: Final = 1 << 30


class RowsInHand(NamedTuple):
    """Rows that are about to be returned."""

    rows: OrderedRows
    is_late: Flags
    data: pa.RecordBatch
    late: pa.RecordBatch | None
    rejected: pa.RecordBatch | None


class ReplayPace:
    """When rows are due in a replay at the recorded speed: the first one at once."""

    def __init__(self, speed: float | None, clock: Clock) -> None:
        self._speed = speed
        self._clock = clock
        self._began: tuple[int, int] | None = None

    def may_go(self, ready: ReadyRows) -> bool:
        """Return whether the first waiting row is due."""
        return self._speed is None or self.limit(ready, 1) > 0

    def limit(self, ready: ReadyRows, size: int) -> int:
        """Return how many of the first rows are due."""
        if self._speed is None or not size:
            return size
        keys = ready.peek(size).keys
        first = int(keys[0])
        now = self._clock.monotonic_ms()
        if self._began is None:
            if first == NO_TIME:
                return int(np.count_nonzero(keys == NO_TIME))
            self._began = now, first
        began, key = self._began
        due = key + int((now - began) * self._speed)
        return int(np.searchsorted(keys, due, "right"))


class Outlet:
    """The rows that are ready, and how they are returned."""

    def __init__(
        self,
        shape: BatchShape,
        places: list[TopicPartition],
        settings: StreamSettings,
        clock: Clock,
        max_time_ms: int,
    ) -> None:
        self._shape = shape
        self._places = places
        self._settings = settings
        self._max_time_ms = max_time_ms
        self._pace = ReplayPace(settings.speed, clock)
        self._left_rows = settings.max_rows
        self._left_bytes = settings.max_bytes
        self._ready_since: int | None = None
        self.ready = ReadyRows()
        """The rows that are ready to be returned."""
        self.bytes = 0
        """The number of bytes of keys and values that were returned."""

    @property
    def is_spent(self) -> bool:
        """Whether the requested number of rows or bytes was returned."""
        return self._left_rows == 0 or (self._left_bytes is not None and self._left_bytes <= 0)

    def is_due(self, now: int, *, is_last: bool, has_moved: bool) -> bool:
        """Return whether a batch must be returned now.

        Args:
            now: the time in monotonic milliseconds.
            is_last: whether waiting is of no use, since no rows or no room can come.
            has_moved: whether more rows have just become ready.
        """
        if not self._may_go():
            self._ready_since = None
            return False
        if self._ready_since is None:
            self._ready_since = now
        is_late = now - self._ready_since >= ms(self._settings.batch_wait)
        is_full = self.ready.size >= self._settings.batch_rows
        return is_full or is_last or (not has_moved and is_late)

    def _may_go(self) -> bool:
        return self.ready.size > 0 and not self.is_spent and self._pace.may_go(self.ready)

    def next(self, most: int | None = None) -> RowsInHand:
        """Build the next batch without removing its rows; account for them with `count`.

        Raises:
            LateRow, MissingTimestamp, Undecodable: the first row must not be returned.
        """
        rows = self._fit(self.ready.peek(self._size() if most is None else most))
        late = lateness(rows.keys, rows.ordering, self._max_time_ms)
        count = self._before_refused(rows, late)
        if count < len(rows):
            rows, late = rows.at(slice(count)), late[:count]
        is_late = late > 0
        side: pa.RecordBatch | None = None
        taken, shown = rows, None
        if self._settings.late in {"drop", "side"} and is_late.any():
            shown = np.flatnonzero(~is_late)
            if self._settings.late == "side":
                side = self._shape.build(rows.at(np.flatnonzero(is_late)), late[is_late])[0]
            taken, late = rows.at(shown), late[shown]
        data, rejects = self._shape.build(taken, late)
        if rejects and self._settings.on_decode_error == "raise":
            # The rows before the bad row are returned first.
            bad = rejects[0].row if shown is None else int(shown[rejects[0].row])
            self._raise_if_first(rows, bad, rejects[0].reason)
            return self.next(bad)
        rejected: pa.RecordBatch | None = None
        if rejects and self._settings.on_decode_error == "side":
            rejected = self._shape.build_rejects(taken, rejects)
            data = _without(data, [reject.row for reject in rejects])
        return RowsInHand(rows, is_late, data, side, rejected)

    def count(self, rows: OrderedRows) -> None:
        """Count rows that are returned; the others begin to wait."""
        self._ready_since = None
        size = rows.total()
        self.bytes += size
        if self._left_rows is not None:
            self._left_rows -= len(rows)
        if self._left_bytes is not None:
            self._left_bytes -= size

    def _size(self) -> int:
        size = min(self._settings.batch_rows, self.ready.size)
        if self._left_rows is not None:
            size = min(size, self._left_rows)
        return self._pace.limit(self.ready, size)

    def _fit(self, rows: OrderedRows) -> OrderedRows:
        """Return as many rows as fit into a batch, but at least one."""
        limit = min(self._settings.batch_bytes, _MAX_BYTES)
        if self._left_bytes is not None:
            limit = min(limit, self._left_bytes)
        if rows.total() <= limit:
            return rows
        total = np.cumsum(rows.sizes())
        return rows.at(slice(max(int(np.searchsorted(total, limit, "right")), 1)))

    def _before_refused(self, rows: OrderedRows, late: Numbers) -> int:
        """Return the number of rows before one that must raise; raise if it is the first."""
        count = len(rows)
        if self._settings.late == "raise" and (late > 0).any():
            count = int(np.argmax(late > 0))
            if not count:
                raise LateRow(self._place(rows, 0), int(rows.offsets[0]), int(late[0]))
        is_missing = rows.ordering[:count] == NO_TIME
        if self._settings.missing_timestamp == "raise" and is_missing.any():
            count = int(np.argmax(is_missing))
            if not count:
                text = "it has no time; see missing_timestamp"
                raise MissingTimestamp(self._place(rows, 0), int(rows.offsets[0]), text)
        return count

    def _raise_if_first(self, rows: OrderedRows, row: int, reason: str) -> None:
        if not row:
            text = f"{reason}; see on_decode_error"
            raise Undecodable(self._place(rows, 0), int(rows.offsets[0]), text)

    def _place(self, rows: OrderedRows, row: int) -> TopicPartition:
        return self._places[int(rows.indices[row])]


def _without(data: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    mask = np.ones(data.num_rows, np.bool_)
    mask[rows] = False
    return data.take(column(np.flatnonzero(mask), pa.int64()))
