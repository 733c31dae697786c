"""Objects: what lives in each, what the segments among them are called, and which must go.

    staged ──► committed ──► nothing lives in it ──► condemned ──► deleted, dropped
       └─────────── never committed ────────────────────┘

An object is condemned before it is deleted, and nothing that names a condemned object is committed
any more: a process that slept through it would otherwise acknowledge bytes that are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rookery.formats.keys import split_object_id


class SegmentName(NamedTuple):
    """What a segment's keys are made of."""

    topic: str
    partition: int
    base_offset: int
    is_plain: bool
    """Whether it has the plain name; else its object id is part of the name."""


class Objects:
    """Every object that rows point to, or that was promised or condemned."""

    __slots__ = ("condemned", "retired_names", "rows", "segments")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        """How many rows live in each object, and one more if it is staged for a sink; a negative
        one is the payload of that entry."""
        self.segments: dict[int, SegmentName] = {}
        """Segments that are staged, committed or condemned."""
        self.condemned: dict[int, int] = {}
        """Objects that no commit may name, each with the entry that condemned it."""
        self.retired_names: dict[str, None] = {}
        """Topics that are gone but had segments: their plain names may still be in the store."""

    def add_row(self, object_id: int) -> None:
        """Count one more row of an object."""
        self.rows[object_id] = self.rows.get(object_id, 0) + 1

    @property
    def oldest_payload(self) -> int | None:
        """The first entry in whose payload a row lies, which cannot be trimmed; None if none."""
        return min((-one for one in self.rows if one < 0), default=None)

    def free(self, objects: Iterable[int]) -> None:
        """Count one row less of each of these objects."""
        rows = self.rows
        for object_id in objects:
            if not object_id:
                continue  # its bytes were lost before
            rows[object_id] -= 1
            if object_id < 0 and not rows[object_id]:
                # Nobody has to delete an entry's payload: it goes when the log is trimmed.
                del rows[object_id]

    def stage(self, object_id: int, segment: SegmentName) -> None:
        """Promise a segment its name."""
        self.segments[object_id] = segment

    def condemn(self, object_ids: Iterable[int], entry: int) -> list[int]:
        """Condemn those in which nothing lives; return them."""
        gone = [one for one in object_ids if one > 0 and not self.rows.get(one)]
        for object_id in gone:
            self.condemned.setdefault(object_id, entry)
            self.rows[object_id] = 0
        return gone

    def drop(self, object_ids: Iterable[int]) -> list[int]:
        """Forget condemned objects; return those that are not, and stay."""
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
        """Find what may be condemned: nothing lives in it, and nobody is about to commit it.

        Args:
            live: the incarnations that may still commit what they have staged.
        """
        alive = frozenset(live)
        for object_id, rows in self.rows.items():
            if not rows and object_id > 0 and object_id not in self.condemned:
                yield object_id
        for object_id in self.segments:
            if object_id not in self.rows and split_object_id(object_id)[0] not in alive:
                yield object_id
