"""Reads ahead of whoever reads on and on: the blocks that his next rows lie in.

The rows know what comes next better than the bytes do: what lies behind a row in a shared object
is another partition's, and what comes behind a segment lies in another object.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

from rookery.clock import loop_seconds
from rookery.cluster.state.partition import Partition, Row
from rookery.formats.keys import is_stored
from rookery.log.runs import body
from rookery.log.segmentindex import Layouts

_ROWS: Final = 64
_MAX_DOUBLINGS: Final = 16
# Who has not read on for so long has stopped, and needs no share.
_ACTIVE_S: Final = 5.0


class Objects(Protocol):
    """Where the bytes of journals and stored objects are read from."""

    async def views(self, object_id: int, position: int, size: int) -> list[memoryview]:
        """Return bytes of an object, in pieces. Raises Corrupt, Conflict or Unavailable."""

    def want(self, object_id: int, position: int, size: int) -> None:
        """Begin to read what will be asked for soon, as far as there is room for it."""

    def drop(self, object_id: int, position: int, size: int) -> None:
        """Forget bytes that are damaged."""

    def name(self, object_id: int) -> str:
        """Return what an object is called, for messages."""

    @property
    def ahead_bytes(self) -> int:
        """How far ahead of one reader objects in the store are read."""

    @property
    def all_ahead_bytes(self) -> int:
        """How much may have been read ahead of all readers together and not be asked for yet."""

    @property
    def stored_block_bytes(self) -> int:
        """How much of an object in the store is read at once."""


class Ahead:
    """Tells a cache what will be wanted."""

    def __init__(self, objects: Objects, layouts: Layouts | None) -> None:
        self._objects = objects
        self._layouts = layouts
        # The partitions that are being read on and on, and when last; the latest comes last.
        self._active: OrderedDict[int, float] = OrderedDict()

    def read(self, partition: Partition, row: Row, position: int, streak: int) -> None:
        """Read on behind a position of a row, the further the longer the reader has read on."""
        objects = self._objects
        doublings = min(streak, _MAX_DOUBLINGS)
        left = min(self._share(partition), objects.stored_block_bytes << doublings)
        end = body(row)[1]
        objects.want(row.object_id, position, min(end - position, left))
        left -= end - position
        bases = partition.base_offsets
        index = partition.row_of(row.end_offset)
        if index < len(bases) and bases[index] < row.end_offset:
            return  # there is nothing behind it
        for at in range(index, min(index + _ROWS, len(bases))):
            if left <= 0:
                return
            row = partition.row(at)
            if row.object_id <= 0 or not is_stored(row.object_id):
                return
            begin, end = body(row)
            objects.want(row.object_id, begin, min(end - begin, left))
            if row.is_segment and self._layouts is not None:
                self._layouts.want(row)
            left -= end - begin

    def _share(self, partition: Partition) -> int:
        """Return how far ahead of one of several readers to read.

        Else the first of them would have all the room, and the others wait for every block.
        """
        objects, active = self._objects, self._active
        now = loop_seconds()
        active[id(partition)] = now
        active.move_to_end(id(partition))
        while next(iter(active.values())) < now - _ACTIVE_S:
            active.popitem(last=False)
        share = objects.all_ahead_bytes // len(active)
        return max(min(objects.ahead_bytes, share), objects.stored_block_bytes)
