"""Batches on their way into the directory: held in memory until their offsets are known.

A partition's file takes batches in the order of their offsets, which are born when the entry that
commits them is applied. So nothing is written before that, and nothing acknowledged before it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from rookery.cluster.state.outcome import AppendOutcome
from rookery.errors import ApiError, ErrorCode
from rookery.formats.keys import NUMBER_BITS
from rookery.log.write.flushtarget import CheckedBatch, NoFlushTarget
from rookery.log.write.journal import FlushPosition


class Stash:
    """Batches by the number under which they will be committed."""

    def __init__(self) -> None:
        self._held: dict[int, Sequence[CheckedBatch]] = {}
        # The lowest bit tells these from the numbers of files.
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
        """Let batches go."""
        self._held.pop(number, None)


class DirectoryTarget(NoFlushTarget):
    """Takes flushes; the cluster log of the directory writes them."""

    def __init__(self, stash: Stash, *, is_read_only: bool) -> None:
        self._stash = stash
        self._is_read_only = is_read_only
        self.trouble: str | None = None
        """Why the last write failed and what to do; None while writing works."""

    @property
    def failure(self) -> str | None:
        """Why the last write failed and what to do; None while writing works."""
        return self.trouble

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Hold batches until they are committed."""
        if self._is_read_only:
            raise read_only()
        size = sum(len(batch.data) for batch in batches)
        return FlushPosition(self._stash.put(batches), 0, size)

    def settle(self, identity: int, _outcomes: Sequence[AppendOutcome]) -> None:
        """Let batches go that are written."""
        self._stash.drop(identity)

    def doubt(self, identity: int) -> None:
        """Keep batches that may have to be written yet: their entry is tried on."""


def read_only() -> ApiError:
    """Return the error for who wants to write where nothing is written."""
    return ApiError(
        ErrorCode.POLICY_VIOLATION, "this broker serves a log directory read-only (--read-only)"
    )
