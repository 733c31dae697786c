"""Reads a cluster's metadata from a directory's `__cluster_metadata-0`.

It reads the newest complete snapshot, then the log from its end on. Damaged parts are skipped and
reported: most of a cluster's metadata is better than none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rookery.errors import Corrupt
from rookery.formats.kraft.entries import CLUSTER_METADATA, ControlEntry, MetadataEntry, read_batch
from rookery.formats.kraft.image import MetadataImage
from rookery.formats.kraft.snapshots import SnapshotName, is_whole, parse_snapshot_name
from rookery.logdir.damage import Damage
from rookery.logdir.partition import PartitionLog
from rookery.logdir.segment import SegmentBatch
from rookery.model.partition import TopicPartition
from rookery.records.expectation import FAR, Expectation, ExpectedExtent, OffsetRule
from rookery.records.policy import rewrite
from rookery.records.scan import corrupt

MAX_SNAPSHOT_BYTES: Final = 1 << 30
"""A snapshot is read whole; that of a million partitions is a tenth of this."""

_PARTITION: Final = TopicPartition(CLUSTER_METADATA, 0)


class MetadataLog:
    """A folder with a cluster's metadata, read only."""

    def __init__(self, folder: Path, *, is_clean: bool = True) -> None:
        """Read the whole folder."""
        self.folder = folder
        self.image = MetadataImage()
        self.snapshot: SnapshotName | None = None
        """The snapshot that the image starts from, if there is one."""
        self.log = PartitionLog(folder, _PARTITION, is_clean=is_clean)
        self._damage: list[Damage] = []
        self._restore()
        for batch in self.log.batches(self.image.next_offset, self.log.log_end):
            self._apply(batch)

    @property
    def damage(self) -> list[Damage]:
        """The parts that could not be read."""
        return self._damage + self.log.damage

    def _restore(self) -> None:
        """Start with the newest complete snapshot."""
        names = [parse_snapshot_name(path.name) for path in self.folder.iterdir()]
        for name in sorted((each for each in names if each is not None), reverse=True):
            path = self.folder / name.text
            try:
                entries = read_snapshot(path)
            except Corrupt as error:
                self._damage.append(Damage(path, error.reason))
                continue
            for entry in entries:
                self.image.apply(entry)
            # Offsets within a snapshot start at 0; it replaces all offsets before its end.
            self.image.next_offset, self.image.epoch = name
            self.snapshot = name
            return

    def _apply(self, batch: SegmentBatch) -> None:
        header = batch.header
        if header.last_offset < self.image.next_offset:
            return
        try:
            for entry in read_batch(batch.data, header):
                if entry.offset >= self.image.next_offset:
                    self.image.apply(entry)
        except Corrupt as error:
            segment = max(
                (each for each in self.log.segments if each.base_offset <= header.base_offset),
                key=lambda each: each.base_offset,
            )
            self._damage.append(
                Damage(segment.path, str(error), header.position, self.image.next_offset)
            )
            self.image.next_offset = header.last_offset + 1


def read_snapshot(path: Path) -> list[MetadataEntry | ControlEntry]:
    """Read a `.checkpoint` of the metadata log.

    Raises:
        Corrupt: it is damaged, or truncated; the text begins with its path.
    """
    if path.stat().st_size > MAX_SNAPSHOT_BYTES:
        raise Corrupt(f"is larger than {MAX_SNAPSHOT_BYTES} bytes", name=str(path))
    data = memoryview(path.read_bytes())
    extent = ExpectedExtent(0, FAR, 0, len(data))
    rewritten = rewrite(data, Expectation.of(extent, OffsetRule.SPARSE))
    if rewritten.damage is not None:
        raise corrupt(rewritten.damage, str(path))
    entries: list[MetadataEntry | ControlEntry] = []
    for header in rewritten.headers:
        try:
            entries += read_batch(data[header.position : header.end], header)
        except Corrupt as error:
            raise Corrupt(f"byte {header.position}: {error}", name=str(path)) from error
    if not is_whole(entries):
        reason = "is not whole: it lacks the record that begins or ends a snapshot"
        raise Corrupt(reason, name=str(path))
    return entries
