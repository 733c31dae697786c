"""What came of an entry, its events, and the batches in them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rookery.errors import ErrorCode


class AppendOutcome(NamedTuple):
    """What became of one batch."""

    error: ErrorCode
    base_offset: int
    append_time_ms: int  # -1 where producers set the time
    is_duplicate: bool


class Outcome(NamedTuple):
    """What became of one event."""

    error: ErrorCode
    value: Any = None


class WrittenMarker(NamedTuple):
    """A marker that was written into a partition."""

    topic_id: bytes
    partition: int
    first_offset: int
    """Where the transaction began there; the marker's own offset if it holds nothing."""
    offset: int
    last_sequence: int
    """Of the transaction's records there; -1 if it holds nothing."""
    time_ms: int
    is_append_time: bool


class EndedTransaction(NamedTuple):
    """A transaction that ended: all that is needed to end it in the same way again."""

    producer_id: int
    epoch: int
    is_commit: bool
    markers: list[WrittenMarker]
    offsets: dict[str, dict[tuple[bytes, int], bytes]]
    """What moved with it: packed offsets by group, topic id and partition."""


class EntryOutcome(NamedTuple):
    """What one entry did."""

    number: int
    is_void: bool
    outcomes: list[Outcome]
    grown: list[tuple[bytes, int]]
    """Partitions that grew, lost records or were deleted: readers should look again."""
    marked: list[tuple[bytes, int]]
    """Partitions in which a transaction ended."""
    ended: list[EndedTransaction]
    """Transactions that ended."""
    moved: list[tuple[bytes, int]]
    """Partitions of which some bytes lie elsewhere from now on."""
    dropped: list[int]
    """Objects that were deleted."""
    claims_changed: list[Any]
    """Keys that have a new coordinator, or were removed: groups by their ids."""


OK: Final = Outcome(ErrorCode.NONE)
