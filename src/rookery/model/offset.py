"""Special offsets (the timestamps that ListOffsets accepts), and committed offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LATEST: Final = -1
"""The end: the offset that the next record will get (or the last stable offset)."""

EARLIEST: Final = -2
"""The start of the log."""

MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp (KIP-734)."""

EARLIEST_LOCAL: Final = -4
"""The first record on the broker's own disk (KIP-405)."""

LATEST_TIERED: Final = -5
"""The last record in remote storage (KIP-1005)."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset that a group will read in a partition."""

    offset: int
    metadata: str = ""
    """The metadata that the committing client supplied."""
    leader_epoch: int = -1
