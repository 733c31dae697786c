"""Writes a partition's folder from its batches, in order, as a clean shutdown leaves it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from rookery.formats.logfile.checkpoints import LoggedEpoch, format_epochs
from rookery.formats.logfile.identity import format_partition_metadata
from rookery.formats.logfile.indexes import (
    Indexer,
    pack_aborted,
    pack_positions,
    pack_times,
)
from rookery.formats.logfile.names import LEADER_EPOCHS, PARTITION_METADATA, FileKind, file_name
from rookery.formats.logfile.producers import ProducerEntry, pack_producers
from rookery.formats.logfile.replay import PartitionReplay
from rookery.records.batches import BatchHeader
from rookery.records.expectation import FAR, Expectation, ExpectedExtent, OffsetRule
from rookery.records.kernel import Buffer
from rookery.records.policy import rewrite
from rookery.records.scan import corrupt

SEGMENT_BYTES: Final = 1 << 30
"""The maximum size of a segment: Kafka's default."""
_MOST_OFFSETS: Final = (1 << 31) - 1


class ExportedPartition(NamedTuple):
    """The totals of a written partition."""

    end_offset: int
    bytes: int
    records: int
    segments: int


class PartitionExporter:
    """Takes whole batches that have their offsets, and writes segments with their indexes."""

    def __init__(self, folder: Path, base_offset: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Create the folder, and start the first segment.

        Args:
            folder: the partition's folder; it must not exist yet.
            base_offset: the first segment's base offset, unless the first batch begins earlier.
            segment_bytes: the maximum size of a segment.
        """
        folder.mkdir(parents=True)
        self.folder = folder
        self.replay = PartitionReplay()
        self.end_offset = base_offset
        self.records = self.bytes = self.segments = 0
        self._segment_bytes = segment_bytes
        self._aborted = 0
        self._indexer: Indexer | None = None
        self._file: BinaryIO | None = None
        self._position = 0

    def write(self, data: Buffer) -> None:
        """Append batches.

        Raises:
            Corrupt: they are damaged, incomplete, or out of order.
        """
        # The first batch may begin before the log start.
        lowest = self.end_offset if self.segments else 0
        extent = ExpectedExtent(lowest, FAR, 0, len(data))
        rewritten = rewrite(data, Expectation.of(extent, OffsetRule.SPARSE))
        if rewritten.damage is not None:
            raise corrupt(rewritten.damage, str(self.folder))
        for header in rewritten.headers:
            batch = rewritten.data[header.position : header.end]
            self._room_for(header).write(batch)
            if self._indexer is not None:
                self._indexer.add(header._replace(position=self._position))
            self.replay.apply(batch, header)
            self._position += header.size
            self.bytes += header.size
            self.records += 0 if header.is_control else header.record_count
            self.end_offset = header.last_offset + 1

    def finish(
        self,
        topic_id: bytes,
        epochs: Iterable[LoggedEpoch],
        end_offset: int,
        producers: Iterable[ProducerEntry] = (),
    ) -> ExportedPartition:
        """Finish the log, and write the files next to the segments.

        Args:
            topic_id: the id of its topic.
            epochs: the leader epochs of its batches.
            end_offset: the offset of the next record.
            producers: known producers that no longer have a batch in the log.
        """
        if self._file is None or end_offset > self.end_offset:
            # The last offsets have no records: an empty segment prevents their reuse.
            self._begin(end_offset)
        self.end_offset = end_offset
        self._close()
        known = {entry.producer_id: entry for entry in producers} | self.replay.producers
        snapshot = self.folder / file_name(end_offset, FileKind.PRODUCERS)
        snapshot.write_bytes(pack_producers(known.values()))
        (self.folder / LEADER_EPOCHS).write_text(format_epochs(epochs))
        (self.folder / PARTITION_METADATA).write_text(format_partition_metadata(topic_id))
        return ExportedPartition(end_offset, self.bytes, self.records, self.segments)

    def _room_for(self, header: BatchHeader) -> BinaryIO:
        """Return the file for a batch; a new one if the last is full."""
        is_full = self._indexer is not None and (
            self._position + header.size > self._segment_bytes
            or header.last_offset - self._indexer.base_offset > _MOST_OFFSETS
        )
        if self._file is None or (is_full and self._position):
            base = min(header.base_offset, self.end_offset) if not self.segments else None
            return self._begin(header.base_offset if base is None else base)
        return self._file

    def _begin(self, base_offset: int) -> BinaryIO:
        self._close()
        self._indexer = Indexer(base_offset)
        self._file = (self.folder / file_name(base_offset, FileKind.LOG)).open("xb")
        self._position = 0
        self.segments += 1
        return self._file

    def _close(self) -> None:
        if self._file is None or self._indexer is None:
            return
        self._file.close()
        base = self._indexer.base_offset
        self._indexer.add_time()
        self._put(base, FileKind.INDEX, pack_positions(self._indexer.positions, base))
        self._put(base, FileKind.TIMES, pack_times(self._indexer.times, base))
        aborted = self.replay.aborted[self._aborted :]
        if aborted:
            self._put(base, FileKind.ABORTED, pack_aborted(aborted))
            self._aborted += len(aborted)
        self._file = None

    def _put(self, base_offset: int, kind: FileKind, data: bytes) -> None:
        (self.folder / file_name(base_offset, kind)).write_bytes(data)
