"""One partition's folder: its segments as one log, from log start to high watermark."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rookery.errors import Corrupt
from rookery.formats.logfile.checkpoints import LoggedEpoch, parse_epochs
from rookery.formats.logfile.identity import parse_partition_metadata
from rookery.formats.logfile.indexes import LoggedAbort
from rookery.formats.logfile.names import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    FileKind,
    FileName,
    parse_file_name,
)
from rookery.formats.logfile.producers import ProducerEntry, parse_producers
from rookery.formats.logfile.replay import PartitionReplay
from rookery.logdir.damage import Damage
from rookery.logdir.files import read_text
from rookery.logdir.segment import LogFileSegment, SegmentBatch
from rookery.model.partition import TopicPartition
from rookery.records import recordcodec


class Checkpoints(NamedTuple):
    """The values of the directory's checkpoint files for one partition; None if missing."""

    log_start: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    first_dirty: int | None = None
    """The cleaner's next offset: everything below is compacted."""


class TimedOffset(NamedTuple):
    """A record that was found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class PartitionLog:
    """A partition on disk, read-only."""

    def __init__(
        self,
        folder: Path,
        name: TopicPartition,
        checkpoints: Checkpoints = Checkpoints(),  # noqa: B008 (it cannot change)
        *,
        is_clean: bool = True,
        is_alone: bool = True,
    ) -> None:
        """List the folder; only the end of the last segment is read.

        Args:
            folder: the folder of its files.
            name: the partition.
            checkpoints: the values of the log directory's checkpoints.
            is_clean: whether Kafka was shut down cleanly, so that the files are complete.
            is_alone: whether no other broker must agree on what is committed.
        """
        self.folder = folder
        self.name = name
        self.checkpoints = checkpoints
        self.is_clean = is_clean
        self.is_alone = is_alone
        self.leftovers: list[FileName] = []
        """Files that Kafka had not yet deleted or renamed."""
        self.snapshots: list[int] = []
        """The offsets of producer snapshots, in ascending order."""
        self._damage: list[Damage] = []
        self.segments = self._list()
        self.topic_id = self._topic_id()
        self.epochs = self._epochs()
        self.log_start = max(
            checkpoints.log_start or 0, self.segments[0].base_offset if self.segments else 0
        )
        self.log_end = self._find_end()

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that consumers can see."""
        known = self.checkpoints.high_watermark
        end = self.log_end if self.is_alone or known is None else min(known, self.log_end)
        return max(end, self.log_start)

    @property
    def size_bytes(self) -> int:
        """Bytes of all log files."""
        return sum(segment.size for segment in self.segments)

    @property
    def damage(self) -> list[Damage]:
        """The known damage; `check` finds all of it."""
        damage = list(self._damage)
        for segment in self.segments:
            # A crash can only cut off a batch at the end of the last segment.
            is_last = segment is self.segments[-1]
            damage += [
                defect._replace(is_torn=defect.is_torn and is_last) for defect in segment.damage
            ]
        return damage

    def check(self) -> None:
        """Read every segment, so that `damage` is complete."""
        for segment in self.segments:
            for _ in segment.batches():
                pass

    def batches(self, offset: int | None = None, end: int | None = None) -> Iterator[SegmentBatch]:
        """Yield the valid batches between two offsets, by default up to the high watermark.

        The first one may begin before the offset, since batches are not cut. Damaged batches are
        skipped. Each batch is valid until the next one is requested.
        """
        start = self.log_start if offset is None else offset
        stop = self.high_watermark if end is None else end
        for segment in self.segments[self._segment_of(start) :]:
            if segment.base_offset >= stop:
                return
            for batch in segment.batches(start):
                if batch.header.base_offset >= stop:
                    return
                yield batch

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from an offset on: always the first one, others up to the limit."""
        parts: list[bytes] = []
        size = 0
        for batch in self.batches(offset):
            if parts and size + batch.header.size > max_bytes:
                break
            parts.append(bytes(batch.data))
            size += batch.header.size
        return b"".join(parts)

    def offset_for_time(self, timestamp: int) -> TimedOffset | None:
        """Find the first record with this timestamp or a later one; None if there is none."""
        for segment in self.segments:
            is_last = segment is self.segments[-1]
            times = segment.times
            if not is_last and times and times[-1].timestamp < timestamp:
                continue
            start = max(segment.offset_for_time(timestamp), self.log_start)
            for batch in self.batches(start, None if is_last else self._end_of(segment)):
                first = _first_from(batch, timestamp, self.log_start, self.high_watermark)
                if first is not None:
                    return first
        return None

    def replay(self) -> PartitionReplay:
        """Rebuild the producers and transactions of the whole log.

        The newest valid snapshot has the state at its offset; the batches after it provide the
        rest.
        """
        start, known, earlier = self._snapshot()
        replay = PartitionReplay(known or ())
        replay.aborted = earlier
        for batch in self.batches(start, self.log_end) if start < self.log_end else ():
            # A snapshot is taken between two batches; without one, the log may begin within a
            # batch.
            if known is None or batch.header.base_offset >= start:
                replay.apply(batch.data, batch.header)
        return replay

    # Files that are read immediately.

    def _list(self) -> list[LogFileSegment]:
        segments: dict[int, LogFileSegment] = {}
        for path in sorted(self.folder.iterdir()):
            name = parse_file_name(path.name)
            if name is None:
                continue
            if name.stage is not None:
                self.leftovers.append(name)
            elif name.kind is FileKind.LOG:
                segments[name.base_offset] = LogFileSegment(self.folder, name.base_offset)
            elif name.kind is FileKind.PRODUCERS:
                self.snapshots.append(name.base_offset)
        return [segments[base] for base in sorted(segments)]

    def _topic_id(self) -> bytes | None:
        path = self.folder / PARTITION_METADATA
        try:
            text = read_text(path)
            return None if text is None else parse_partition_metadata(text, str(path))
        except Corrupt as error:
            self._note(path, error)
            return None

    def _epochs(self) -> list[LoggedEpoch]:
        path = self.folder / LEADER_EPOCHS
        try:
            text = read_text(path)
            return [] if text is None else parse_epochs(text, str(path))
        except Corrupt as error:
            self._note(path, error)
            return []

    def _find_end(self) -> int:
        """Find the offset after the last valid batch; after a crash, check all doubtful segments.

        Kafka syncs up to the recovery point from time to time. A machine crash can lose anything
        after it, even in the middle of a segment.
        """
        if not self.segments:
            return self.log_start
        doubtful = self.segments[-1:]
        if not self.is_clean:
            doubtful = self.segments[self._segment_of(self.checkpoints.recovery_point or 0) :]
        ends = [segment.find_end(is_checked=not self.is_clean) for segment in doubtful]
        return max(*ends, self.log_start)

    def _snapshot(self) -> tuple[int, list[ProducerEntry] | None, list[LoggedAbort]]:
        """Return the newest valid producer snapshot, and the transactions aborted before it."""
        for offset in reversed(self.snapshots):
            path = self.folder / FileName(offset, FileKind.PRODUCERS).text
            if offset > self.log_end:
                continue
            try:
                known = parse_producers(path.read_bytes(), str(path))
                listed = [abort for segment in self.segments for abort in segment.read_aborted()]
            except Corrupt as error:
                self._note(path, error)
                continue
            return offset, known, [abort for abort in listed if abort.last_offset < offset]
        return self.log_start, None, []

    def _segment_of(self, offset: int) -> int:
        at = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return max(at - 1, 0)

    def _end_of(self, segment: LogFileSegment) -> int:
        after = self._segment_of(segment.base_offset) + 1
        return self.segments[after].base_offset if after < len(self.segments) else self.log_end

    def _note(self, path: Path, error: Corrupt) -> None:
        self._damage.append(Damage(path, error.reason))


def _first_from(batch: SegmentBatch, timestamp: int, start: int, end: int) -> TimedOffset | None:
    """Find a batch's first record at or after a timestamp, between two offsets."""
    header = batch.header
    if header.max_timestamp < timestamp:
        return None  # as in Kafka, transaction markers are found, too
    epoch = header.partition_leader_epoch
    for record in recordcodec.read(batch.data, header._replace(position=0)):
        if record.timestamp >= timestamp and start <= record.offset < end:
            return TimedOffset(record.offset, record.timestamp, epoch)
    return None
