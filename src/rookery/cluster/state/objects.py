"""Objects: their row counts, the names of segments, and the objects to be deleted.

    staged ──► committed ──► nothing lives in it ──► condemned ──► deleted, dropped
       └─────────── never committed ────────────────────┘

An object is condemned before it is deleted, and no commit may name a condemned object. Otherwise a
process that was suspended could acknowledge bytes that no longer exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rookery.formats.keys import split_object_id


class SegmentName(NamedTuple):
    """The components of a segment's keys."""

    topic: str
    partition: int
    base_offset: int
    is_plain: bool
    """Whether it has the plain name; otherwise its object id is part of the name."""


class Objects:
    """Every object that rows refer to, or that is staged or condemned."""

    __slots__ = ("condemned", "retired_names", "rows", "segments")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        """The number of rows in each object, plus one if it is staged for a sink; a negative id is
        the payload of that entry."""
        self.segments: dict[int, SegmentName] = {}
        """Segments that are staged, committed or condemned."""
        self.condemned: dict[int, int] = {}
        """Objects that no commit may name, each with the entry that condemned it."""
        self.retired_names: dict[str, None] = {}
        """Deleted topics that had segments: their plain names may still be in the store."""

    def add_row(self, object_id: int) -> None:
        """Increase the row count of an object."""
        self.rows[object_id] = self.rows.get(object_id, 0) + 1

    @property
    def oldest_payload(self) -> int | None:
        """The first entry whose payload holds a row, which cannot be trimmed; None if none."""
        return min((-row for row in self.rows if row < 0), default=None)

    def free(self, objects: Iterable[int]) -> None:
        """Decrease the row count of each of these objects."""
        rows = self.rows
        for object_id in objects:
            if not object_id:
                continue  # its bytes were lost before
            rows[object_id] -= 1
            if object_id < 0 and not rows[object_id]:
                # An entry's payload needs no deletion: it disappears when the log is trimmed.
                del rows[object_id]

    def stage(self, object_id: int, segment: SegmentName) -> None:
        """Reserve a name for a segment."""
        self.segments[object_id] = segment

    def condemn(self, object_ids: Iterable[int], entry: int) -> list[int]:
        """Condemn the objects without rows; return them."""
        gone = [
            object_id for object_id in object_ids if object_id > 0 and not self.rows.get(object_id)
        ]
        for object_id in gone:
            self.condemned.setdefault(object_id, entry)
            self.rows[object_id] = 0
        return gone

    def drop(self, object_ids: Iterable[int]) -> list[int]:
        """Remove condemned objects; return those that are not condemned and stay."""
        kept = []
        for object_id in object_ids:
            if object_id not in self.condemned:
                kept.append(object_id)
                continue
            del self.condemned[object_id]
            self.rows.pop(object_id, None)
            self.segments.pop(object_id, None)
        return kept

    def empty(self, live: Iterable[int]) -> Iterator[int]:
        """Yield the objects that may be condemned: they hold no rows and await no commit.

        Args:
            live: the incarnations that may still commit the objects they have staged.
        """
        alive = frozenset(live)
        for object_id, rows in self.rows.items():
            if not rows and object_id > 0 and object_id not in self.condemned:
                yield object_id
        for object_id in self.segments:
            if object_id not in self.rows and split_object_id(object_id)[0] not in alive:
                yield object_id
