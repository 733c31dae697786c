"""Sinks: the last batch of each, and the objects staged for the next.

Staged runs are packed, 44 bytes each: a commit of a terabyte has a million of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from struct import Struct
from typing import Final, NamedTuple

from rookery.cluster.events.sinkevents import SinkPartStaged

RUN: Final = Struct("<16siqiiq")
"""A staged run: topic id, partition, position, size, records, highest timestamp."""


class SinkBatch(NamedTuple):
    """The identity of one commit."""

    sink_id: str
    query_id: str
    batch_id: int


class SinkState(NamedTuple):
    """The last batch that was committed to a sink."""

    query_id: str
    batch_id: int
    source_offsets: str
    entry: int
    """The entry that committed it."""
    stamp_ms: int


class StagedObject:
    """An object that waits for its batch to be committed."""

    __slots__ = ("batch", "packed", "parts", "staged", "until_ms")

    def __init__(self, batch: SinkBatch, parts: int, until_ms: int) -> None:
        self.batch = batch
        self.parts = parts
        self.staged = 0
        """The number of parts staged so far."""
        self.until_ms = until_ms
        """When it is dropped if it is not committed, by the stamps of entries."""
        self.packed = b""
        """Its runs, as `RUN` packs them."""

    @property
    def is_whole(self) -> bool:
        """Whether all of its parts are staged."""
        return self.staged == self.parts

    def add(self, event: SinkPartStaged) -> None:
        """Add the next part."""
        position = event.position
        packed = [self.packed]
        for run in event.runs:
            row = (run.topic_id, run.partition, position, run.size, run.records, run.max_timestamp)
            packed.append(RUN.pack(*row))
            position += run.size
        self.packed = b"".join(packed)
        self.staged += 1

    def runs(self) -> Iterator[tuple[bytes, int, int, int, int, int]]:
        """Yield the fields of each run."""
        return RUN.iter_unpack(self.packed)


class Sinks:
    """Every sink by its id, and every staged object."""

    __slots__ = ("by_id", "staged", "staged_bytes")

    def __init__(self) -> None:
        self.by_id: dict[str, SinkState] = {}
        self.staged: dict[int, StagedObject] = {}
        self.staged_bytes = 0
        """The total size of the packed runs."""

    def add(self, object_id: int, staged: StagedObject) -> None:
        """Add an object from a snapshot."""
        self.staged[object_id] = staged
        self.staged_bytes += len(staged.packed)

    def take(self, object_id: int) -> StagedObject:
        """Remove and return an object."""
        staged = self.staged.pop(object_id)
        self.staged_bytes -= len(staged.packed)
        return staged

    def find_overdue(self, now_ms: int) -> list[int]:
        """Return the objects whose batch was not committed in time.

        They are in staging order, so the search ends at the first that is not due. This matters
        because it runs for every part.
        """
        due = takewhile(lambda item: item[1].until_ms <= now_ms, self.staged.items())
        return [object_id for object_id, _ in due]

    def find_superseded(self, batch: SinkBatch) -> list[int]:
        """Return the objects staged for a sink that cannot be committed after this batch."""
        return [
            object_id
            for object_id, staged in self.staged.items()
            if staged.batch.sink_id == batch.sink_id
            # Later batches of the same query may still be committed; a write without a sink
            # affects no other.
            and (staged.batch.query_id != batch.query_id or staged.batch.batch_id <= batch.batch_id)
            and (batch.sink_id or staged.batch.query_id == batch.query_id)
        ]
