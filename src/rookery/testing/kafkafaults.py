"""Faults in responses of Kafka brokers: error codes and flipped bits.

Faults work on parsed answers, so that exactly one partition can be hit while its neighbours in
the same answer stay as they are. `rookery.testing.kafkaproxy` carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from rookery.errors import ErrorCode
from rookery.records.batches import HEADER_SIZE
from rookery.wire.message import Message, Parts
from rookery.wire.messages.fetch import FetchResponse, PartitionData
from rookery.wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse

# The CRC covers the bytes after it, so it must detect a flipped bit there.
_CRC_END: Final = 21

Names: TypeAlias = dict[bytes, str]
"""Topics by id, as learned from the metadata that passed through."""
Row: TypeAlias = PartitionData | ListOffsetsPartitionResponse
"""One partition's part of an answer to Fetch or ListOffsets."""


@dataclass
class KafkaFault:
    """Changes answers: all conditions hold."""

    change: Callable[[Row], bool]
    """Changes one partition's part; returns False where it does not fit."""
    topic: str
    partition: int | None = None
    """Which one; None for all."""
    times: int | None = 1
    """The maximum number of times; None: until it is removed."""
    done: int = 0
    """The number of changed answers."""

    @property
    def is_spent(self) -> bool:
        """Whether it has changed its maximum of answers."""
        return self.times is not None and self.done >= self.times

    def strike(self, response: Message, names: Names) -> None:
        """Change an answer, up to the maximum."""
        for topic, row in _rows(response, names):
            if self.is_spent:
                return
            if topic == self.topic and self.partition in (None, row.partition_index):
                self.done += self.change(row)


def fail_fetch(code: ErrorCode) -> Callable[[Row], bool]:
    """Return a change that refuses a partition of a Fetch, as a failing broker does."""

    def change(row: Row) -> bool:
        if not isinstance(row, PartitionData) or row.error_code is not ErrorCode.NONE:
            return False
        row.error_code = code
        row.high_watermark = row.last_stable_offset = row.log_start_offset = -1
        row.aborted_transactions = None
        row.records = b""
        return True

    return change


def fail_offsets(code: ErrorCode) -> Callable[[Row], bool]:
    """Return a change that refuses a partition of a ListOffsets."""

    def change(row: Row) -> bool:
        if isinstance(row, PartitionData):
            return False
        row.error_code, row.offset = code, -1
        return True

    return change


def flip(row: Row) -> bool:
    """Flip one bit in the middle of the first batch that a Fetch returns, after its CRC."""
    if not isinstance(row, PartitionData):
        return False
    assert not isinstance(row.records, Parts)  # noqa: S101 (pieces are for writing; it was read)
    records = bytearray(row.records or b"")
    if len(records) <= HEADER_SIZE:
        return False
    size = min(len(records), 12 + int.from_bytes(records[8:12], "big"))
    records[max(_CRC_END, (HEADER_SIZE + size) // 2)] ^= 0x10
    row.records = records
    return True


def _rows(response: Message, names: Names) -> Iterator[tuple[str, Row]]:
    if isinstance(response, FetchResponse):
        for fetched in response.responses:
            for data in fetched.partitions:
                yield fetched.topic or names.get(fetched.topic_id, ""), data
    elif isinstance(response, ListOffsetsResponse):
        for topic in response.topics:
            for row in topic.partitions:
                yield topic.name, row
