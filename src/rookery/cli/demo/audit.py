"""Numbered records, and an account of those that were sent and those that were read back."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rookery.records.recordcodec import Record

_NUMBER: Final = 9
"""Digits in front of each value: the record's number in its partition."""


@dataclass(slots=True)
class SentRecords:
    """The number of records sent to a partition, and the checksum over all of them."""

    count: int = 0
    checksum: int = 0

    def value(self, text: bytes) -> bytes:
        """Return the value of the partition's next record, and count it as sent."""
        value = b"%09d %b" % (self.count, text)
        self.count += 1
        self.checksum = zlib.crc32(value, self.checksum)
        return value


@dataclass(slots=True)
class ReceivedRecords:
    """The records read back from a partition, in the order of offsets."""

    count: int = 0
    checksum: int = 0
    duplicates: int = 0
    skipped: int = 0
    """Numbers that were skipped."""
    bytes: int = 0
    reached: int = 0
    """The number that should come next."""

    def take(self, records: Iterable[Record]) -> int:
        """Count records as received; return their number."""
        before = self.count
        for record in records:
            value = record.value or b""
            self.checksum = zlib.crc32(value, self.checksum)
            self.count += 1
            self.bytes += len(value)
            self._place(int(value[:_NUMBER]))
        return self.count - before

    def _place(self, number: int) -> None:
        if number == self.reached:
            self.reached += 1
        elif number < self.reached:
            # It was received before, or comes after its successors: either way, not in order.
            self.duplicates += 1
        else:
            self.skipped += number - self.reached
            self.reached = number + 1


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """The comparison of a partition with the records sent to it."""

    partition: int
    sent: int
    received: int
    lost: int
    duplicated: int
    is_identical: bool

    @property
    def is_sound(self) -> bool:
        """Whether all records were read back once, in order and unchanged."""
        return self.is_identical and not self.lost and not self.duplicated


def compare(partition: int, sent: SentRecords, received: ReceivedRecords) -> PartitionVerdict:
    """Compare the records received from a partition with those sent to it."""
    return PartitionVerdict(
        partition=partition,
        sent=sent.count,
        received=received.count,
        lost=max(0, received.skipped + sent.count - received.reached),
        duplicated=received.duplicates,
        is_identical=(sent.count, sent.checksum) == (received.count, received.checksum),
    )
