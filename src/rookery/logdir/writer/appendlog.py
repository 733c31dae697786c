"""One partition's log for appending: segments, epochs and producers; it assigns no offsets.

    append ──► fits the segment? ──no──► roll: complete its indexes, snapshot of the producers
                  │ yes                                                    │
                  └──► after the last batch ◄─── a new segment ◄───────────┘

The batches already contain their offsets. A failed write can be repeated over the same bytes until
`append` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rookery.formats.logfile.checkpoints import LoggedEpoch, format_epochs
from rookery.formats.logfile.identity import format_partition_metadata
from rookery.formats.logfile.indexes import LoggedAbort
from rookery.formats.logfile.names import LEADER_EPOCHS, PARTITION_METADATA, FileKind, file_name
from rookery.formats.logfile.producers import pack_producers
from rookery.formats.logfile.replay import PartitionReplay
from rookery.logdir.writer.segmentfile import NewBatch, SegmentContents, SegmentFile
from rookery.logdir.writer.smallfiles import mark_deleted, replace
from rookery.model.partition import TopicPartition
from rookery.records.batches import BatchHeader
from rookery.store.syncfolder import sync_folder
from rookery.wire.buffer import Buffer

_INT_MAX: Final = (1 << 31) - 1


class AppendLimits(Protocol):
    """The limits that decide when a segment is full."""

    @property
    def segment_bytes(self) -> int:
        """The maximum size of a segment."""

    @property
    def segment_ms(self) -> int:
        """The maximum time between the first and any later batch of a segment."""


class HeldSegment(NamedTuple):
    """An existing segment: its base offset, size, largest timestamp and file number."""

    base_offset: int
    size: int
    largest: int
    object_id: int


class DroppedSegment(NamedTuple):
    """A segment that no longer counts, and its files under their new names."""

    held: HeldSegment
    files: list[Path]


class AppendRun(NamedTuple):
    """Batches that go into one segment."""

    batches: list[NewBatch]
    rolls: bool
    """Whether that is a new segment."""


class AppendPosition(NamedTuple):
    """The location of adjacent batches."""

    base_offset: int
    end_offset: int
    object_id: int
    position: int
    size: int
    max_timestamp: int


class AppendLog:
    """The files of one partition."""

    def __init__(
        self, folder: Path, name: TopicPartition, topic_id: bytes, number: Callable[[Path], int]
    ) -> None:
        """Set up without creating anything.

        Args:
            folder: the folder of the files, existing or not.
            name: the partition.
            topic_id: its topic's id.
            number: assigns a file the number that readers use.
        """
        self.folder = folder
        self.name = name
        self.topic_id = topic_id
        self.next_offset = 0
        self.epochs: list[LoggedEpoch] = []
        self.replay = PartitionReplay()
        """Its producers and open transactions, up to the last batch."""
        self.recovery_point = 0
        """Everything below it is on disk."""
        self.closed: list[HeldSegment] = []
        """The segments before the active one."""
        self._number = number
        self._active: SegmentFile | None = None
        self._active_id = 0
        self._is_made = False
        self._has_new_file = False
        self.before_write: Callable[[], None] | None = None
        """Work to do before the first write."""
        self.is_touched = False
        """Whether a clean shutdown must complete the files."""

    def adopt(self, held: Sequence[HeldSegment], last: SegmentContents | None) -> None:
        """Take over the existing segments, and continue the last one."""
        if not held or last is None:
            return
        *self.closed, active = held
        self._active = SegmentFile(self.folder, active.base_offset, last)
        self._active_id = active.object_id
        self._is_made = True

    @property
    def held(self) -> list[HeldSegment]:
        """All segments, the oldest first."""
        active = self._active
        if active is None:
            return self.closed
        last = HeldSegment(
            active.base_offset, active.size, active.largest.timestamp, self._active_id
        )
        return [*self.closed, last]

    # Writing.

    def plan(self, batches: Sequence[NewBatch], limits: AppendLimits) -> list[AppendRun]:
        """Split batches where a segment is full; usually there is no split."""
        active = self._active
        size, first_time, base = 0, -1, self.next_offset
        if active is not None:
            size, first_time, base = active.size, active.first_time, active.base_offset
        runs = [AppendRun([], rolls=False)]
        for batch in batches:
            header = batch.header
            waited = header.max_timestamp - first_time if first_time >= 0 else 0
            if size and (
                size + header.size > limits.segment_bytes
                or waited > limits.segment_ms
                or header.last_offset - base > _INT_MAX
            ):
                runs.append(AppendRun([], rolls=True))
                size, first_time, base = 0, -1, header.base_offset
            runs[-1].batches.append(batch)
            size += header.size
            first_time = header.max_timestamp if first_time < 0 else first_time
        return [run for run in runs if run.batches]

    def write(self, run: AppendRun) -> AppendPosition:
        """Write a run after the last batch.

        Raises:
            OSError: the write failed; it can be repeated.
        """
        self.make()
        if self.before_write is not None:
            self.before_write()
            self.before_write = None
        first, last = run.batches[0].header, run.batches[-1].header
        if run.rolls:
            self.roll(first.base_offset)
        active = self._active
        assert active is not None  # noqa: S101 (it was made above)
        position = active.append(run.batches)
        self.is_touched = True
        for header, data in run.batches:
            self._learn(header, data)
        self.next_offset = last.last_offset + 1
        largest = max(header.max_timestamp for header, _ in run.batches)
        size = active.size - position
        return AppendPosition(
            first.base_offset, self.next_offset, self._active_id, position, size, largest
        )

    def _learn(self, header: BatchHeader, data: Buffer) -> None:
        """Record the epochs, producers and transactions of a batch."""
        epoch = header.partition_leader_epoch
        if epoch >= 0 and (not self.epochs or epoch > self.epochs[-1].epoch):
            self.epochs.append(LoggedEpoch(epoch, header.base_offset))
            self._write_epochs()
        if header.has_producer_id:
            self.replay.apply(data, header)
            for entry in self.replay.aborted:
                self._note_aborted(entry)
            self.replay.aborted = []

    def _note_aborted(self, entry: LoggedAbort) -> None:
        if self._active is not None:
            self._active.abort(entry)

    def roll(self, base_offset: int) -> None:
        """Finish the segment and start another, unless that is already the active one."""
        if self._active is not None:
            if self._active.base_offset == base_offset:
                return
            self._active.finish()
            self._active.close()
            self.closed = self.held
            self._active = None
            self.recovery_point = base_offset
        self.write_snapshot(base_offset)
        self._begin(base_offset)

    def write_snapshot(self, offset: int) -> None:
        """Write the producer snapshot at an offset."""
        if self.replay.producers:
            data = pack_producers(self.replay.producers.values())
            replace(self.folder / file_name(offset, FileKind.PRODUCERS), data)

    def make(self) -> None:
        """Create the folder, its metadata file and the first segment, if needed."""
        if self._is_made:
            return
        self.folder.mkdir(exist_ok=True)
        if not (self.folder / PARTITION_METADATA).exists():
            text = format_partition_metadata(self.topic_id)
            replace(self.folder / PARTITION_METADATA, text.encode())
        if not (self.folder / LEADER_EPOCHS).exists():
            self._write_epochs()
        if self._active is None:
            self._begin(self.next_offset)
        sync_folder(self.folder.parent)
        self._is_made = True

    def sync(self) -> None:
        """Return after all written data is on disk."""
        if self._active is None:
            return
        self._active.sync()
        if self._has_new_file:
            sync_folder(self.folder)
            self._has_new_file = False
        self.recovery_point = self.next_offset

    def finish(self) -> None:
        """Leave the files as a clean shutdown of Kafka does."""
        if self._active is None:
            return
        if self.is_touched:
            self._active.finish()
            self.write_snapshot(self.next_offset)
        self._active.close()
        self.recovery_point = self.next_offset

    def drop_before(self, offset: int) -> list[DroppedSegment]:
        """Rename the segments that end at or before an offset, as Kafka does before deleting them.

        Raises:
            OSError: a file could not be renamed; it can be retried.
        """
        if self._active is not None and self._active.size and offset >= self.next_offset:
            self.roll(self.next_offset)
        bases = [held.base_offset for held in self.held][1:]
        gone = [held for held, after in zip(self.closed, bases, strict=False) if after <= offset]
        dropped = [
            DroppedSegment(held, mark_deleted(self.folder, held.base_offset)) for held in gone
        ]
        del self.closed[: len(gone)]
        return dropped

    def close(self) -> None:
        """Close the active file."""
        if self._active is not None:
            self._active.close()

    def _begin(self, base_offset: int) -> None:
        self._active = SegmentFile(self.folder, base_offset)
        self._active.open()
        self._active_id = self._number(self._active.path)
        self._has_new_file = True

    def _write_epochs(self) -> None:
        replace(self.folder / LEADER_EPOCHS, format_epochs(self.epochs).encode())
