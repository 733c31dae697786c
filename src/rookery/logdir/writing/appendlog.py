"""One partition's log as it is written: segments, epochs, producers, and nothing decided here.

    append ──► fits the segment? ──no──► roll: complete its indexes, snapshot of the producers
                  │ yes                                                    │
                  └──► behind the last batch ◄── a new segment ◄───────────┘

Offsets come from elsewhere, in the bytes of the batches. What was written can be written again
over the same bytes until `append` returns.
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
from rookery.logdir.writing.segmentfile import Begun, NewBatch, SegmentFile
from rookery.logdir.writing.smallfiles import mark_deleted, replace, sync_folder
from rookery.model.partition import TopicPartition
from rookery.records.batch import BatchHeader
from rookery.wire.buffer import Buffer

_INT_MAX: Final = (1 << 31) - 1


class AppendLimits(Protocol):
    """What decides when a segment is full."""

    @property
    def segment_bytes(self) -> int:
        """So large it becomes at most."""

    @property
    def segment_ms(self) -> int:
        """So much later than its first batch none of its batches may be."""


class HeldSegment(NamedTuple):
    """A segment that is there: its first offset, its size, its largest time, its file's number."""

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
    """Whether that is a new one."""


class AppendPosition(NamedTuple):
    """Where batches went that lie one behind the other."""

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
        """Know a folder; nothing is made yet.

        Args:
            folder: where the files are, or will be.
            name: the partition.
            topic_id: its topic's id.
            number: gives a file the number by which readers know it.
        """
        self.folder = folder
        self.name = name
        self.topic_id = topic_id
        self.next_offset = 0
        self.epochs: list[LoggedEpoch] = []
        self.replay = PartitionReplay()
        """Its producers and open transactions, up to the last batch."""
        self.recovery_point = 0
        """All below it is on the disk."""
        self.closed: list[HeldSegment] = []
        """The segments before the one that is written."""
        self._number = number
        self._active: SegmentFile | None = None
        self._active_id = 0
        self._is_made = False
        self._has_new_file = False
        self.before_write: Callable[[], None] | None = None
        """What has to be done before the first write."""
        self.is_touched = False
        """Whether anything was written that a stop in order has to complete."""

    def adopt(self, held: Sequence[HeldSegment], last: Begun | None) -> None:
        """Take over what is there: all segments, and of the last one what has to be known."""
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
        """Cut batches where a segment is full; most often nowhere."""
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
        """Write a run behind the last batch.

        Raises:
            OSError: the disk did not take it; it can be written again.
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
        """Take in what a batch says of epochs, producers and transactions."""
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
        """Complete the segment and begin another; nothing, if that is the one that is written."""
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
        """Write what is known of producers at an offset."""
        if self.replay.producers:
            data = pack_producers(self.replay.producers.values())
            replace(self.folder / file_name(offset, FileKind.PRODUCERS), data)

    def make(self) -> None:
        """Make the folder, say whose it is, and begin the first segment, if need be."""
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
        """Return when what was written is on the disk."""
        if self._active is None:
            return
        self._active.sync()
        if self._has_new_file:
            sync_folder(self.folder)
            self._has_new_file = False
        self.recovery_point = self.next_offset

    def finish(self) -> None:
        """Leave the files as Kafka does when it is stopped in order."""
        if self._active is None:
            return
        if self.is_touched:
            self._active.finish()
            self.write_snapshot(self.next_offset)
        self._active.close()
        self.recovery_point = self.next_offset

    def drop_before(self, offset: int) -> list[DroppedSegment]:
        """Rename the segments that hold nothing from an offset on, as Kafka does before it deletes.

        Raises:
            OSError: a file could not be renamed; it can be tried again.
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
        """Let go of the file that is written."""
        if self._active is not None:
            self._active.close()

    def _begin(self, base_offset: int) -> None:
        self._active = SegmentFile(self.folder, base_offset)
        self._active.open()
        self._active_id = self._number(self._active.path)
        self._has_new_file = True

    def _write_epochs(self) -> None:
        replace(self.folder / LEADER_EPOCHS, format_epochs(self.epochs).encode())
