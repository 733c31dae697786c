"""Virtual offsets of one physical partition, counted from its log.

Walking the log in order, a batch of a slot takes the next offsets of that slot. The marker that
ends a transaction takes one offset in each slot in which the transaction has written. So every
instance that walks the log gets the same offsets, and none of them has to be stored.

The log is divided into *stretches* of about one megabyte. The index keeps the counters at the start
of each stretch: enough to find the stretch with an offset of a slot, and to read it again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.model.control import ControlRecordType
from rookery.proxy.nodes.writeorder import BatchStart
from rookery.proxy.virtual.rules import UntaggedPolicy
from rookery.proxy.virtual.tags import NO_SLOT, deliver_batch, read_slot
from rookery.records import batches, recordcodec
from rookery.records.batches import BatchHeader
from rookery.wire.buffer import Buffer

STRETCH_BYTES: Final = 1 << 20

OpenTransactions = Mapping[int, Mapping[int, int]]
"""By producer id and slot: the first virtual offset of the transaction."""


class StretchStart(NamedTuple):
    """Where a stretch starts."""

    offset: int
    """The physical offset of its first batch."""
    epoch: int
    """The leader epoch of the batch before it; -1 if there is none."""
    counters: tuple[int, ...]
    """The next virtual offset of each slot."""
    transactions: OpenTransactions
    """Those that are open."""


class SlotBatch(NamedTuple):
    """One batch of a slot, as consumers get it."""

    first: int
    """Its first virtual offset."""
    end: int
    """The virtual offset after its last."""
    data: bytes


class BatchPlace(NamedTuple):
    """The virtual place of a batch."""

    slot: int
    offset: int
    start: BatchStart | None
    """For a batch of a transaction: producer, and sequence in the log."""


class AbortedRange(NamedTuple):
    """Where an aborted transaction has written in one slot."""

    first: int
    """Its first virtual offset."""
    marker: int
    """The virtual offset of its marker."""
    producer_id: int
    stable: int
    """The last stable offset after the marker: later markers end what begins there or later."""


class Stretch:
    """A part of the log in memory: its batches by slot."""

    def __init__(self, start: StretchStart) -> None:
        self.start = start
        self.offset = start.offset
        """The physical offset after its last batch."""
        self.epoch = start.epoch
        """The leader epoch of its last batch."""
        self.counters = list(start.counters)
        self.transactions = _copy(start.transactions)
        self.walked_bytes = 0
        """The bytes of its batches in the log."""
        self.aborted: dict[int, list[AbortedRange]] = {}
        """By slot: the transactions that were aborted here, in the order of their markers."""
        self._batches: dict[int, list[SlotBatch]] = {}
        self._places: dict[int, BatchPlace] = {}

    def take(self, records: Buffer, untagged: UntaggedPolicy, end: int | None = None) -> None:
        """Walk batches that follow.

        Args:
            records: the bytes that the broker has sent; batches before the known end are skipped.
            untagged: how batches without a tag are treated.
            end: the physical offset before which to stop.

        Raises:
            Corrupt: a batch is damaged or not allowed; those before it are added.
            ApiError: a batch has an old format.
        """
        for header in batches.check_fetched(records):
            if header.last_offset < self.offset:
                continue
            if header.base_offset < self.offset:
                raise Corrupt(f"the batch at offset {header.base_offset} overlaps {self.offset}")
            if end is not None and header.base_offset >= end:
                break
            if header.is_control:
                self._take_marker(records, header)
            else:
                self._take_data(records, header, read_slot(header, len(self.counters), untagged))
            self.offset, self.epoch = header.last_offset + 1, header.partition_leader_epoch
            self.walked_bytes += header.size

    def stable(self, slot: int) -> int:
        """Return the last stable offset of a slot: where its first open transaction begins."""
        firsts = [each[slot] for each in self.transactions.values() if slot in each]
        return min(firsts, default=self.counters[slot])

    def _take_data(self, records: Buffer, header: BatchHeader, slot: int) -> None:
        if slot == NO_SLOT:
            return
        first, start = self._append(records, header, slot), None
        if header.is_transactional:
            start = BatchStart(header.producer_id, header.producer_epoch, header.base_sequence)
            self.transactions.setdefault(header.producer_id, {}).setdefault(slot, first)
        self._places[header.base_offset] = BatchPlace(slot, first, start)

    def _take_marker(self, records: Buffer, header: BatchHeader) -> None:
        """End a transaction. Its marker can have a later epoch, so the id alone names it."""
        kinds = [recordcodec.control(each).type for each in recordcodec.read(records, header)]
        if kinds not in ([ControlRecordType.ABORT], [ControlRecordType.COMMIT]):
            return
        firsts = self.transactions.pop(header.producer_id, {})
        for slot, first in firsts.items():
            marker = self._append(records, header, slot)
            if kinds == [ControlRecordType.ABORT]:
                aborted = AbortedRange(first, marker, header.producer_id, self.stable(slot))
                self.aborted.setdefault(slot, []).append(aborted)

    def _append(self, records: Buffer, header: BatchHeader, slot: int) -> int:
        """Append a batch to a slot; return its virtual offset."""
        first = self.counters[slot]
        end = self.counters[slot] = first + header.last_offset_delta + 1
        data = deliver_batch(records, header, first)
        self._batches.setdefault(slot, []).append(SlotBatch(first, end, data))
        return first

    def find(self, slot: int, offset: int) -> Sequence[SlotBatch]:
        """Return the batches of a slot from the one with a virtual offset on."""
        own = self._batches.get(slot, [])
        return own[bisect_right(own, offset, key=lambda batch: batch.end) :]

    def place(self, physical_offset: int) -> BatchPlace | None:
        """Return the place of the batch with a physical base offset; None if it has no slot."""
        return self._places.get(physical_offset)

    def end(self) -> StretchStart:
        """Return where the next stretch starts."""
        counters = tuple(self.counters)
        return StretchStart(self.offset, self.epoch, counters, _copy(self.transactions))


class SlotIndex:
    """The starts of all stretches, and the open stretch at the end."""

    def __init__(self, slots: int, untagged: UntaggedPolicy) -> None:
        """Begin at the start of the log, offset 0."""
        self.untagged = untagged
        self.starts = [StretchStart(0, -1, (0,) * slots, {})]
        self.open = Stretch(self.starts[0])
        self._aborted: dict[int, list[AbortedRange]] = {}

    @property
    def offset(self) -> int:
        """The physical offset up to which the log is known."""
        return self.open.offset

    def counter(self, slot: int) -> int:
        """Return the next virtual offset of a slot."""
        return self.open.counters[slot]

    def stable(self, slot: int) -> int:
        """Return the last stable offset of a slot."""
        return self.open.stable(slot)

    def find_aborted(self, slot: int, offset: int, end: int) -> list[AbortedRange]:
        """Return the aborted transactions of a slot that have batches between two offsets."""
        ranges: list[AbortedRange] = []
        for source in (self._aborted, self.open.aborted):
            known = source.get(slot, [])
            for at in range(bisect_left(known, offset, key=_marker_of), len(known)):
                if known[at].first < end:
                    ranges.append(known[at])
                if known[at].stable >= end:
                    break
        return sorted(ranges)

    def take(self, records: Buffer) -> None:
        """Walk batches that follow.

        Raises:
            Corrupt, ApiError: as `Stretch.take`.
        """
        self.open.take(records, self.untagged)

    def close_stretch(self) -> Stretch | None:
        """Begin a new stretch if the open one is long enough; return the closed one."""
        if self.open.walked_bytes < STRETCH_BYTES:
            return None
        closed = self.open
        self.starts.append(closed.end())
        for slot, ranges in closed.aborted.items():
            self._aborted.setdefault(slot, []).extend(ranges)
        self.open = Stretch(self.starts[-1])
        return closed

    def find(self, slot: int, offset: int) -> int:
        """Return the number of the stretch with a virtual offset of a slot."""
        return bisect_right(self.starts, offset, key=lambda start: start.counters[slot]) - 1

    def find_physical(self, offset: int) -> int:
        """Return the number of the stretch with a physical offset."""
        return bisect_right(self.starts, offset, key=lambda start: start.offset) - 1

    def truncate(self, end: int, epoch: int) -> int:
        """Drop stretches that a log that was cut does not have; walk on from the last that it has.

        Args:
            end: the physical offset at which the log differs, at the latest.
            epoch: of the last batch before it that the log has.

        Returns:
            The number of stretches that are left, the open one included.
        """
        left = self.find_physical(end) + 1
        while self.starts[left - 1].epoch > epoch and left > 1:
            left -= 1
        del self.starts[left:]
        self.open = Stretch(self.starts[-1])
        for slot, ranges in self._aborted.items():
            del ranges[bisect_left(ranges, self.open.counters[slot], key=_marker_of) :]
        return left


def _copy(transactions: OpenTransactions) -> dict[int, dict[int, int]]:
    return {producer_id: dict(firsts) for producer_id, firsts in transactions.items()}


def _marker_of(aborted: AbortedRange) -> int:
    return aborted.marker
