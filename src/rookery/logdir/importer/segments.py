"""Groups a partition's unchanged batches into Rookery segments, with offsets, times and epochs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rookery.cluster.state.state import State
from rookery.errors import Corrupt
from rookery.formats.logfile.checkpoints import LoggedEpoch
from rookery.formats.segmentwriter import SegmentWriter
from rookery.logdir.damage import Damage
from rookery.logdir.partition import PartitionLog
from rookery.logdir.segment import SegmentBatch


@dataclass(slots=True)
class SegmentBatches:
    """The batches of a segment that is not yet finished."""

    writer: SegmentWriter
    end_offset: int
    is_last: bool = False
    records: int = 0


@dataclass(slots=True)
class SegmentCutter:
    """Cuts a partition's log into consecutive segments."""

    log: PartitionLog
    segment_bytes: int
    skip_damaged: bool
    epochs: list[LoggedEpoch] = field(default_factory=list)
    """The leader epochs in the batches, for a partition whose epoch checkpoint is lost."""
    cleaned_to: int = 0
    """The offset after the last gap."""
    last_timestamp: int = -1

    def cut(self, start: int | None) -> Iterator[SegmentBatches]:
        """Yield segments from an offset on; from the log start, if none is given.

        Raises:
            Corrupt: a batch is damaged, and must not be skipped.
        """
        end = self.log.high_watermark
        begin = self.log.log_start if start is None else start
        ready: SegmentBatches | None = None
        for batch in self._batches(begin, end):
            header = batch.header
            if start is not None and header.base_offset < start:
                continue  # already imported: segments end after whole batches
            if ready is None:
                base = min(begin, header.base_offset) if start is None else begin
                ready = SegmentBatches(SegmentWriter(base), base)
            elif self._is_full(ready, batch):
                yield ready
                ready = SegmentBatches(SegmentWriter(ready.end_offset), ready.end_offset)
            self._look(ready, batch)
            ready.writer.add(bytes(batch.data))
            ready.end_offset = header.last_offset + 1
            ready.records += 0 if header.is_control else header.record_count
        if ready is not None:
            # A batch is not cut at the high watermark, and the last offsets may be missing.
            ready.end_offset = max(ready.end_offset, end)
            ready.is_last = True
            yield ready

    def _is_full(self, ready: SegmentBatches, batch: SegmentBatch) -> bool:
        size = ready.writer.size + batch.header.size
        return size > self.segment_bytes or not ready.writer.has_room(batch.header)

    def _look(self, ready: SegmentBatches, batch: SegmentBatch) -> None:
        header = batch.header
        is_sparse = header.record_count <= header.last_offset_delta
        if header.base_offset > ready.end_offset or is_sparse:
            self.cleaned_to = header.last_offset + 1
        self.last_timestamp = max(self.last_timestamp, header.max_timestamp)
        epoch = header.partition_leader_epoch
        if epoch >= 0 and (not self.epochs or epoch > self.epochs[-1].epoch):
            self.epochs.append(LoggedEpoch(epoch, header.base_offset))

    def _batches(self, start: int, end: int) -> Iterator[SegmentBatch]:
        seen = len(self.damage)
        for batch in self.log.batches(start, end):
            if len(self.damage) > seen and not self.skip_damaged:
                break
            yield batch
        if len(self.damage) > seen and not self.skip_damaged:
            raise Corrupt(
                f"{self.damage[seen].text}; --skip-damaged imports the other batches: readers "
                "then skip these offsets"
            )

    @property
    def damage(self) -> list[Damage]:
        """Damaged batches so far; a torn tail does not count, since it was never acknowledged."""
        return [
            defect
            for defect in self.log.damage
            if defect.position is not None and not defect.is_torn
        ]


def end_in(state: State, topic_id: bytes, partition: int) -> int | None:
    """Return the end offset of a partition in the cluster; None if it was always empty."""
    known = state.topics.partition(topic_id, partition)
    if known is None or (not known.next_offset and not known.base_offsets):
        return None
    return known.next_offset
