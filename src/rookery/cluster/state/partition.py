"""One partition: its offsets, the location of its bytes, its producers and leader epochs.

Extents are rows of packed columns: base offset, object, position, size, time and kind, 37 bytes a
row. A row may hold several batches that are contiguous in one object. A row's offsets end where
those of the next row begin.

The marker that ends a transaction has no stored bytes until it is rewritten: its row holds all its
fields, so that every broker builds the same marker.

A batch is written before its offset is assigned, so the bytes of a new row contain no valid
offsets: its batches take consecutive offsets. A rewrite puts offsets, leader epochs and times into
the bytes. Such a row is final, and may have gaps where compaction removed records.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import IntFlag
from typing import Final, NamedTuple

from rookery.cluster.state import aborts
from rookery.records.crc import checksum

# A row that has reached this size takes no further batches, which bounds how much a reader of one
# offset must scan.
_ROW_BYTES: Final = 1024 * 1024

MARKER_BYTES: Final = 78
"""The size of every batch that ends a transaction."""
PRODUCER_IDS: Final = 1 << 47
"""Ids below this can have transactions: a marker's id and epoch share a column."""
_EPOCH_BITS: Final = 16
_EPOCH_MASK: Final = (1 << _EPOCH_BITS) - 1


class RowKind(IntFlag):
    """The form of a row's bytes; none of these flags: as producers sent them."""

    APPEND_TIME = 1
    """Readers receive the row's time in place of the producers'."""
    FINAL = 2
    """The bytes contain the final offsets, epochs and times."""
    SEGMENT = 4
    """The row is a whole segment, which also has an index and a time index."""
    MARKER = 8
    """The row is the end of a transaction, and is in no object."""
    COMMIT = 16
    """… which was committed."""


class Row(NamedTuple):
    """One extent, as a reader sees it."""

    base_offset: int
    end_offset: int
    object_id: int  # negative: the payload of that entry; 0: a marker, or its bytes are lost
    position: int
    size: int
    max_timestamp: int
    kind: int

    @property
    def is_append_time(self) -> bool:
        """Whether readers receive the row's time in place of the producers'."""
        return bool(self.kind & RowKind.APPEND_TIME)

    @property
    def is_final(self) -> bool:
        """Whether offsets, epochs and times are in the bytes."""
        return bool(self.kind & RowKind.FINAL)

    @property
    def is_segment(self) -> bool:
        """Whether the row is a whole segment."""
        return bool(self.kind & RowKind.SEGMENT)

    @property
    def is_marker(self) -> bool:
        """Whether the row is the end of a transaction; it is in no object."""
        return bool(self.kind & RowKind.MARKER)

    @property
    def is_lost(self) -> bool:
        """Whether the bytes are known to be lost."""
        return not self.object_id and not self.kind & RowKind.MARKER

    @property
    def producer(self) -> tuple[int, int]:
        """The producer id and epoch of a marker."""
        return self.position >> _EPOCH_BITS, self.position & _EPOCH_MASK


class BatchPosition(NamedTuple):
    """The location of a batch's bytes."""

    object_id: int
    position: int
    size: int


class Partition:
    """The replicated state of one partition."""

    __slots__ = (
        "aborted", "append_time", "base_offsets", "cleaned_to", "epochs", "index", "kinds",
        "leader", "leader_epoch", "log_start", "named_to", "next_offset", "objects", "ongoing",
        "positions", "producers", "size_bytes", "sizes", "times",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.leader = -1
        """A hint: the live broker that clients should use; any other broker can serve them too."""
        self.leader_epoch = -1
        self.epochs: list[tuple[int, int]] = []
        """Each epoch and its start offset."""
        self.log_start = 0
        self.next_offset = 0
        """Also the high watermark: committed data is durable."""
        self.append_time = -1
        self.cleaned_to = 0
        """Below this offset, compaction has kept only the last record of every key."""
        self.named_to = -1
        """The highest offset whose segment got a plain name: later ones must be higher."""
        self.size_bytes = 0
        self.base_offsets = array("q")
        self.objects = array("q")
        self.positions = array("q")
        self.sizes = array("i")
        self.times = array("q")
        self.kinds = array("b")
        self.producers: dict[int, bytes] = {}
        self.ongoing: dict[int, int] = {}
        """The first offset of each producer's open transaction, the oldest first."""
        self.aborted = array("q")
        """Aborted transactions, as `state.aborts` packs them."""

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every record is known to be committed or aborted."""
        first = next(iter(self.ongoing.values()), self.next_offset)
        return max(first, self.log_start)

    def append(
        self, place: BatchPosition, records: int, time_ms: int, *, is_append_time: bool
    ) -> bool:
        """Append a batch; return whether it needed a new row."""
        object_id, position, size = place
        self.size_bytes += size
        base = self.next_offset
        self.next_offset = base + records
        if self._extends(place, time_ms, is_append_time=is_append_time):
            self.sizes[-1] += size
            self.times[-1] = max(self.times[-1], time_ms)
            return False
        self.base_offsets.append(base)
        self.objects.append(object_id)
        self.positions.append(position)
        self.sizes.append(size)
        self.times.append(time_ms)
        self.kinds.append(is_append_time)
        return True

    def mark(
        self,
        producer_id: int,
        epoch: int,
        time_ms: int,
        *,
        is_commit: bool,
        is_append_time: bool,
    ) -> int:
        """Append the marker that ends a producer's transaction; return its offset."""
        offset = self.next_offset
        if is_append_time:
            time_ms = self.append_time = max(self.append_time, time_ms)
        self.base_offsets.append(offset)
        self.objects.append(0)
        self.positions.append(producer_id << _EPOCH_BITS | epoch)
        self.sizes.append(MARKER_BYTES)
        self.times.append(time_ms)
        self.kinds.append(RowKind.MARKER | is_commit * RowKind.COMMIT | is_append_time)
        self.size_bytes += MARKER_BYTES
        self.next_offset = offset + 1
        return offset

    def _extends(self, place: BatchPosition, time_ms: int, *, is_append_time: bool) -> bool:
        """Whether a batch directly follows the last row and can be added to it."""
        sizes = self.sizes
        return (
            bool(sizes)
            and self.objects[-1] == place.object_id
            and self.positions[-1] + sizes[-1] == place.position
            and sizes[-1] + place.size <= _ROW_BYTES
            and self.kinds[-1] == is_append_time
            and (not is_append_time or self.times[-1] == time_ms)
        )

    def lead(self, leader: int) -> None:
        """Set another leader; its epoch begins at the next offset."""
        if leader == self.leader:
            return
        self.leader = leader
        self.leader_epoch += 1
        if self.epochs and self.epochs[-1][1] == self.next_offset:
            # Nothing was written in the last epoch: no batch will ever carry it.
            self.epochs.pop()
        self.epochs.append((self.leader_epoch, self.next_offset))

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written."""
        index = bisect_right(self.epochs, offset, key=lambda epoch: epoch[1]) - 1
        return self.epochs[index][0] if index >= 0 else 0

    def row_of(self, offset: int) -> int:
        """Return the index of the row that holds an offset, or of the first one after it."""
        index = bisect_right(self.base_offsets, offset) - 1
        return max(index, 0)

    def row(self, index: int) -> Row:
        """Return one row."""
        after = index + 1
        bases = self.base_offsets
        return Row(
            bases[index],
            bases[after] if after < len(bases) else self.next_offset,
            self.objects[index],
            self.positions[index],
            self.sizes[index],
            self.times[index],
            self.kinds[index],
        )

    def begin_at(self, offset: int) -> list[int]:
        """Move the log start; return the objects of the rows that are dropped."""
        self.log_start = offset
        self.aborted = aborts.after(self.aborted, offset)
        bases = self.base_offsets
        gone = 0
        while gone < len(bases) and self._end_of(gone) <= offset:
            gone += 1
        if not gone:
            return []
        freed = self.objects[:gone].tolist()
        self.size_bytes -= sum(self.sizes[:gone])
        for column in self.columns:
            del column[:gone]
        return freed

    def forget_epochs(self, before: int) -> None:
        """Drop the leader epochs that ended at or below an offset and at or below every row."""
        first = min(before, self.base_offsets[0] if self.base_offsets else before)
        covering = bisect_right(self.epochs, first, key=lambda epoch: epoch[1]) - 1
        if covering > 0:
            del self.epochs[:covering]

    @property
    def columns(self) -> tuple[array[int], ...]:
        """The rows by column, as a snapshot stores them."""
        return (
            self.base_offsets,
            self.objects,
            self.positions,
            self.sizes,
            self.times,
            self.kinds,
        )

    def span(self, base_offset: int, end_offset: int) -> range | None:
        """Find the rows that cover exactly these offsets; None if there are no such whole rows."""
        bases = self.base_offsets
        first, after = bisect_left(bases, base_offset), bisect_left(bases, end_offset)
        if first >= after or bases[first] != base_offset or self._end_of(after - 1) != end_offset:
            return None
        return range(first, after)

    def fingerprint(self, span: range) -> int:
        """Return a checksum of the locations of some rows; it is equal if none has moved."""
        crc = 0
        for column in (self.base_offsets, self.objects, self.positions, self.sizes):
            crc = checksum(column_bytes(column[span.start : span.stop]), crc)
        return crc

    def replace(self, span: range, rows: Sequence[Row]) -> list[int]:
        """Replace rows by others with the same offsets; return the objects of the old rows."""
        at = slice(span.start, span.stop)
        freed = self.objects[at].tolist()
        self.size_bytes += sum(row.size for row in rows) - sum(self.sizes[at])
        self.base_offsets[at] = array("q", [row.base_offset for row in rows])
        self.objects[at] = array("q", [row.object_id for row in rows])
        self.positions[at] = array("q", [row.position for row in rows])
        self.sizes[at] = array("i", [row.size for row in rows])
        self.times[at] = array("q", [row.max_timestamp for row in rows])
        self.kinds[at] = array("b", [row.kind for row in rows])
        return freed

    def lose(self, base_offset: int) -> int:
        """Keep a row's offsets but drop its bytes; return its object, 0 if it had none."""
        index = self._exactly(base_offset)
        if index is None or self.kinds[index] & RowKind.MARKER:
            return 0
        object_id = self.objects[index]
        self.size_bytes -= self.sizes[index]
        self.objects[index] = self.positions[index] = self.sizes[index] = 0
        return object_id

    def _exactly(self, base_offset: int) -> int | None:
        """Find the row that begins at an offset."""
        index = bisect_left(self.base_offsets, base_offset)
        is_there = index < len(self.base_offsets) and self.base_offsets[index] == base_offset
        return index if is_there else None

    def _end_of(self, index: int) -> int:
        after = index + 1
        return self.base_offsets[after] if after < len(self.base_offsets) else self.next_offset


def column_bytes(column: array[int]) -> bytes:
    """Return a column as bytes that are the same on every machine: little-endian."""
    if sys.byteorder == "little":
        return column.tobytes()
    swapped = array(column.typecode, column)
    swapped.byteswap()
    return swapped.tobytes()
