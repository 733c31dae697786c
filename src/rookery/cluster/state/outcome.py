"""The outcomes of entries, events and batches."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rookery.errors import ErrorCode


class AppendOutcome(NamedTuple):
    """The outcome of one batch."""

    error: ErrorCode
    base_offset: int
    append_time_ms: int  # -1 where producers set the time
    is_duplicate: bool


class Outcome(NamedTuple):
    """The outcome of one event."""

    error: ErrorCode
    value: Any = None


class WrittenMarker(NamedTuple):
    """A marker that was written into a partition."""

    topic_id: bytes
    partition: int
    first_offset: int
    """The first offset of the transaction there; the marker's own offset if it has no records."""
    offset: int
    last_sequence: int
    """The last sequence of the transaction's records there; -1 if it has none."""
    time_ms: int
    is_append_time: bool


class EndedTransaction(NamedTuple):
    """A transaction that ended, with everything needed to replicate its end."""

    producer_id: int
    epoch: int
    is_commit: bool
    markers: list[WrittenMarker]
    offsets: dict[str, dict[tuple[bytes, int], bytes]]
    """The offsets committed with it: packed, by group, topic id and partition."""


class EntryOutcome(NamedTuple):
    """The effects of one entry."""

    number: int
    is_void: bool
    outcomes: list[Outcome]
    grown: list[tuple[bytes, int]]
    """Partitions that grew, lost records or were deleted: readers should check again."""
    marked: list[tuple[bytes, int]]
    """Partitions in which a transaction ended."""
    ended: list[EndedTransaction]
    """Transactions that ended."""
    moved: list[tuple[bytes, int]]
    """Partitions of which some bytes are now stored elsewhere."""
    dropped: list[int]
    """Objects that were deleted."""
    claims_changed: list[Any]
    """Keys that have a new coordinator, or were removed: groups by their ids."""


OK: Final = Outcome(ErrorCode.NONE)
