"""Decodes fetched chunks, filters out unwanted rows and assigns sort keys."""

from __future__ import annotations

from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.faults import CorruptBatch, RecordTooLarge
from rookery.consumer.fetch.shelf import ENDLESS, Shelf, Shelves
from rookery.consumer.order.block import Chunk, RowBlock, decode_chunk, keep, make_settings
from rookery.consumer.order.eventtime import EventTime
from rookery.consumer.order.merge import Merge
from rookery.consumer.order.table import ORDER
from rookery.consumer.output.shape import BatchShape
from rookery.consumer.settings import StreamSettings
from rookery.errors import ApiError, Corrupt, Error


class Intake:
    """Moves rows from the shelves to the merge."""

    def __init__(
        self, shelves: Shelves, merge: Merge[RowBlock], shape: BatchShape, settings: StreamSettings
    ) -> None:
        self._shelves = shelves
        self._merge = merge
        self._settings = settings
        self._event_time = EventTime(settings.event_time, shape)
        needed = shape.needs() | self._event_time.needs()
        self._reading = make_settings(needed, settings.max_batch_bytes)

    def take(self, shelf: Shelf) -> int | None:
        """Take in a partition's next chunk; return its number of rows, or None if there is none."""
        chunk = self._shelves.pop(shelf)
        if chunk is None:
            return None
        try:
            blocks = decode_chunk(chunk, self._reading, shelf.index)
            many = [self._filter(shelf, block) for block in blocks]
        except (Corrupt, ApiError) as error:
            self._on_fault(shelf, chunk, error)
            return 0
        except Error:
            # The data is not at fault (a registry is down, say): the next try decodes the chunk
            # again.
            with self._shelves.lock:
                shelf.chunks.appendleft(chunk)
            raise
        sizes: list[int] = []
        rows = 0
        for kept in many:
            if kept.left:
                placed = self._merge.add(shelf.index, kept, kept.ordering, kept.offsets)
                kept.table[:, ORDER] = placed.keys
                if self._settings.lateness:
                    kept.before = placed.before
                    kept.size += kept.before.nbytes
                sizes.append(kept.size)
                rows += kept.left
        shelf.decoded_to = chunk.end
        self._shelves.open(shelf, chunk, sizes)
        self._merge.set_done(shelf.index, is_done=shelf.is_done)
        return rows

    def _filter(self, shelf: Shelf, block: RowBlock) -> RowBlock:
        """Filter out rows that were not requested."""
        self._event_time.stamp(block, shelf.index)
        has_times = shelf.min_time_ms != NO_TIME or shelf.end_time_ms != ENDLESS
        if not has_times and self._settings.missing_timestamp != "drop":
            return block
        times = block.ordering
        is_missing = times == NO_TIME
        mask = (times >= shelf.min_time_ms) | is_missing
        mask &= times < shelf.end_time_ms
        if self._settings.missing_timestamp == "drop":
            mask &= ~is_missing
        return block if mask.all() else keep(block, mask)

    def _on_fault(self, shelf: Shelf, chunk: Chunk, error: Corrupt | ApiError) -> None:
        """Reset the partition to the start of the chunk, so that the next try reads it again."""
        if isinstance(error, Corrupt) and self._settings.on_corrupt == "skip":
            shelf.lost += chunk.end - chunk.begin
            shelf.decoded_to = chunk.end
            self._shelves.open(shelf, chunk, [])
            return
        with self._shelves.lock:
            freed = chunk.size + sum(queued.size for queued in shelf.chunks)
            shelf.chunks.clear()
            self._shelves.charge(shelf, -freed)
            shelf.position, shelf.leader_epoch = chunk.begin, -1
            if isinstance(error, Corrupt):
                shelf.fault = CorruptBatch(shelf.place, chunk.begin, str(error))
            else:
                shelf.fault = RecordTooLarge(shelf.place, chunk.begin, error.text)
