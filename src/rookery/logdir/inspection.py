"""Describes a log directory partition by partition, for operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rookery.formats.logfile.producers import ProducerEntry
from rookery.logdir.directory import LogDirectory
from rookery.logdir.partition import PartitionLog
from rookery.logdir.segment import SegmentBatch
from rookery.model.partition import TopicPartition
from rookery.records.batches import NO_TIMESTAMP
from rookery.records.recordcodec import read

Progress = Callable[[int, int], None]
"""Called with the bytes and records that were read."""


@dataclass(slots=True)
class PartitionInspection:
    """One partition, after all of its batches were read."""

    name: TopicPartition
    topic_id: bytes | None
    log_start: int
    high_watermark: int
    log_end: int
    last_stable: int
    """From this offset on, some records may be uncommitted."""
    size_bytes: int
    segments: int
    batches: int | None = None
    records: int | None = None
    """The existing records, without markers; None, like batches, if they were not read."""
    first_timestamp: int = NO_TIMESTAMP
    last_timestamp: int = NO_TIMESTAMP
    producers: list[ProducerEntry] = field(default_factory=list)
    open_transactions: dict[int, int] = field(default_factory=dict)
    """The first offset of each producer id's open transaction."""
    aborted_transactions: int = 0
    damage: int = 0


def inspect(
    directory: LogDirectory,
    *,
    is_quick: bool = False,
    progress: Progress = lambda _bytes, _records: None,
) -> Iterator[PartitionInspection]:
    """Describe every partition in turn; unless `is_quick`, every byte is read and checked."""
    for log in directory.partitions.values():
        yield _view(log, progress, is_quick=is_quick)


def _view(log: PartitionLog, progress: Progress, *, is_quick: bool) -> PartitionInspection:
    view = PartitionInspection(
        log.name,
        log.topic_id,
        log.log_start,
        log.high_watermark,
        log.log_end,
        log.high_watermark,
        log.size_bytes,
        len(log.segments),
    )
    if not is_quick:
        _count(log, view, progress)
        replay = log.replay()
        view.producers = list(replay.producers.values())
        view.open_transactions = dict(replay.open)
        view.aborted_transactions = len(replay.aborted)
        unstable = replay.first_unstable()
        view.last_stable = log.high_watermark if unstable is None else unstable
    view.damage = len(log.damage)
    return view


def _count(log: PartitionLog, view: PartitionInspection, progress: Progress) -> None:
    """Read every batch, including those below the log start: damage there is reported too."""
    view.batches = view.records = 0
    for segment in log.segments:
        for batch in segment.batches():
            progress(batch.header.size, batch.header.record_count)
            _add(log, view, batch)


def _add(log: PartitionLog, view: PartitionInspection, batch: SegmentBatch) -> None:
    header = batch.header
    if header.last_offset < log.log_start or header.base_offset >= log.high_watermark:
        return
    view.batches = (view.batches or 0) + 1
    if header.is_control:
        return
    view.records = (view.records or 0) + _visible(batch, log.log_start, log.high_watermark)
    view.last_timestamp = max(view.last_timestamp, header.max_timestamp)
    first = header.max_timestamp if header.has_delete_horizon else header.base_timestamp
    if first >= 0 and (view.first_timestamp < 0 or first < view.first_timestamp):
        view.first_timestamp = first


def _visible(batch: SegmentBatch, start: int, end: int) -> int:
    """Count the records of a batch between two offsets; decode it only if it crosses one."""
    header = batch.header
    if start <= header.base_offset and header.last_offset < end:
        return header.record_count
    records = read(batch.data, header._replace(position=0))
    return sum(start <= record.offset < end for record in records)
