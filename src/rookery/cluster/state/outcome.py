"""What came of an entry, its events, and the batches in them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rookery.errors import ErrorCode


class Appended(NamedTuple):
    """What became of one batch."""

    error: ErrorCode
    base_offset: int
    append_time_ms: int  # -1 where producers set the time
    is_duplicate: bool


class Outcome(NamedTuple):
    """What became of one event."""

    error: ErrorCode
    value: Any = None


class Applied(NamedTuple):
    """What one entry did."""

    number: int
    is_void: bool
    outcomes: list[Outcome]
    grown: list[tuple[bytes, int]]
    """Partitions that grew or are gone, by topic id and index: readers should look again."""
    marked: list[tuple[bytes, int]]
    """Partitions in which a transaction ended."""
    moved: list[tuple[bytes, int]]
    """Partitions of which some bytes lie elsewhere from now on."""
    dropped: list[int]
    """Objects that were deleted."""
    claimed: list[str]
    """Groups that have a new coordinator."""


OK: Final = Outcome(ErrorCode.NONE)
