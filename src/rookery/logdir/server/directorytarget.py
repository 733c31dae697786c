"""Holds batches for the directory in memory until their offsets are known.

A partition's file takes batches in offset order, and offsets are assigned when the entry that
commits the batches is applied. So nothing is written before that, and nothing is acknowledged
before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from rookery.cluster.state.outcome import AppendOutcome
from rookery.errors import ApiError, ErrorCode
from rookery.formats.keys import NUMBER_BITS
from rookery.log.write.flushtarget import CheckedBatch
from rookery.log.write.journal import FlushPosition


class Stash:
    """Batches by the number under which they will be committed."""

    def __init__(self) -> None:
        self._held: dict[int, Sequence[CheckedBatch]] = {}
        # The lowest bit distinguishes these from the numbers of files.
        self._numbers = (number << NUMBER_BITS | 1 for number in count(1))

    def put(self, batches: Sequence[CheckedBatch]) -> int:
        """Hold batches; return their number."""
        number = next(self._numbers)
        self._held[number] = batches
        return number

    def get(self, number: int) -> Sequence[CheckedBatch]:
        """Return the batches of a number."""
        return self._held[number]

    def drop(self, number: int) -> None:
        """Release batches."""
        self._held.pop(number, None)


class DirectoryTarget:
    """Accepts flushes; the directory's cluster log writes them."""

    journal: None = None

    def __init__(self, stash: Stash, *, is_read_only: bool) -> None:
        self._stash = stash
        self._is_read_only = is_read_only
        self.failure: str | None = None
        """Why the last write failed and what to do, from the cluster log; None if none did."""

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Hold batches until they are committed."""
        if self._is_read_only:
            raise read_only()
        size = sum(len(batch.data) for batch in batches)
        return FlushPosition(self._stash.put(batches), 0, size)

    def on_committed(self, identity: int, _outcomes: Sequence[AppendOutcome]) -> None:
        """Release written batches."""
        self._stash.drop(identity)

    def on_uncertain(self, identity: int) -> None:
        """Keep batches that may still have to be written: their entry is retried."""

    async def maintain(self) -> None:
        """Return at once: the appender repeats a failed entry, and its write with it."""

    async def flush_notes(self) -> None:
        """Return at once: the files contain everything."""

    async def close(self) -> None:
        """Return at once: the directory service closes the files."""


def read_only() -> ApiError:
    """Return the error for writes to a read-only directory."""
    return ApiError(
        ErrorCode.POLICY_VIOLATION, "this broker serves a log directory read-only (--read-only)"
    )
