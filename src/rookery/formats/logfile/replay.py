"""Derives the state of producers and transactions from a partition's batches, in order.

A broker writes this state to `.snapshot` and `.txnindex` from time to time. A process that opens a
log reads the newest snapshot and replays the batches after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from rookery.formats.logfile.indexes import LoggedAbort
from rookery.formats.logfile.producers import NO_OFFSET, ProducerEntry
from rookery.model.control import ControlRecordType
from rookery.records import recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer

REMEMBERED: Final = 5
"""The number of batches of each producer for which duplicates are detected."""


class SequencedBatch(NamedTuple):
    """A batch of an idempotent producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class PartitionReplay:
    """Producers, open transactions and aborted ones of one partition."""

    def __init__(self, known: Iterable[ProducerEntry] = ()) -> None:
        """Start with the contents of a snapshot."""
        self.producers: dict[int, ProducerEntry] = {}
        self.batches: dict[int, deque[SequencedBatch]] = {}
        """The last batches of each producer in its current epoch, oldest first."""
        self.open: dict[int, int] = {}
        """The first offset of the open transaction of each producer, oldest first."""
        self.aborted: list[LoggedAbort] = []
        """Aborted transactions, in the order in which they ended."""
        for entry in known:
            self._restore(entry)
        self.open = dict(sorted(self.open.items(), key=lambda item: item[1]))

    def first_unstable(self) -> int | None:
        """Return the first offset of the oldest open transaction; None if none is open."""
        return next(iter(self.open.values()), None)

    def apply(self, batch: Buffer, header: BatchHeader) -> None:
        """Apply the next batch, given as the bytes of that batch alone.

        Raises:
            Corrupt: a marker cannot be read.
        """
        if not header.has_producer_id:
            return
        if not header.is_control:
            self.add(header)
            return
        for record in recordcodec.read(batch, header._replace(position=0)):
            marker = recordcodec.control(record)
            if marker.coordinator_epoch is not None:
                is_abort = marker.type == ControlRecordType.ABORT
                self.end(header, marker.coordinator_epoch, is_abort=is_abort)

    def add(self, header: BatchHeader) -> None:
        """Apply a batch of records."""
        known = self.producers.get(header.producer_id)
        kept = self.batches.setdefault(header.producer_id, deque(maxlen=REMEMBERED))
        if known is not None and known.epoch != header.producer_epoch:
            kept.clear()
        # Kafka counts records that compaction removed: the sequence follows the offsets.
        kept.append(
            SequencedBatch(
                header.base_sequence, header.last_sequence, header.base_offset, header.last_offset
            )
        )
        if header.is_transactional:
            self.open.setdefault(header.producer_id, header.base_offset)
        self.producers[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            header.last_sequence,
            header.last_offset,
            header.last_offset_delta,
            header.max_timestamp,
            known.coordinator_epoch if known else -1,
            self.open.get(header.producer_id, NO_OFFSET),
        )

    def end(self, header: BatchHeader, coordinator_epoch: int, *, is_abort: bool) -> None:
        """Apply the marker that ends a producer's transaction."""
        producer_id, offset = header.producer_id, header.base_offset
        first = self.open.pop(producer_id, None)
        if first is not None and is_abort:
            stable = self.first_unstable()
            self.aborted.append(
                LoggedAbort(producer_id, first, offset, offset + 1 if stable is None else stable)
            )
        known = self.producers.get(producer_id)
        if known is None or known.epoch != header.producer_epoch:
            # Each transaction may have its own epoch: sequences start again after it.
            self.batches.pop(producer_id, None)
            known = ProducerEntry(producer_id, header.producer_epoch, -1, NO_OFFSET, 0, 0)
        self.producers[producer_id] = known._replace(
            timestamp=header.max_timestamp,
            coordinator_epoch=coordinator_epoch,
            first_offset=NO_OFFSET,
        )

    def _restore(self, entry: ProducerEntry) -> None:
        self.producers[entry.producer_id] = entry
        if entry.first_offset != NO_OFFSET:
            self.open[entry.producer_id] = entry.first_offset
        if entry.last_sequence >= 0 and entry.last_offset >= 0:
            first = (entry.last_sequence - entry.offset_delta) & 0x7FFFFFFF
            base = entry.last_offset - entry.offset_delta
            batch = SequencedBatch(first, entry.last_sequence, base, entry.last_offset)
            self.batches[entry.producer_id] = deque([batch], maxlen=REMEMBERED)
