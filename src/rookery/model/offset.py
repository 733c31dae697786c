"""Offsets that stand for a place rather than a number (the timestamps that ListOffsets takes)."""

from __future__ import annotations

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
