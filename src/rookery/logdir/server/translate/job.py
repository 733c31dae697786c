"""The file changes of one entry: steps that run in order, each once.

A failed step is repeated when the entry is retried; earlier steps are done. This order makes every
crash recoverable: the metadata and the transaction's own record announce a change before it is
written anywhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rookery.logdir.writer.appendlog import AppendLimits, AppendLog, AppendPosition, AppendRun
from rookery.logdir.writer.segmentfile import NewBatch

Key = tuple[bytes, int]
"""Topic id and partition."""


class Placement(NamedTuple):
    """The location of a partition's batches."""

    key: Key
    placed: AppendPosition


class DirectoryJob:
    """The steps of one entry."""

    def __init__(self) -> None:
        self.placements: list[Placement] = []
        self.later: list[Callable[[], None]] = []
        """Work to do after the files are no longer in use, such as deletions."""
        self._steps: deque[Callable[[], None]] = deque()
        self._dirty: dict[AppendLog, None] = {}
        self._logs: dict[AppendLog, None] = {}

    def add(self, step: Callable[[], None]) -> None:
        """Add a step after all earlier ones."""
        self._steps.append(step)

    def append(
        self, log: AppendLog, batches: Sequence[NewBatch], limits: AppendLimits, key: Key | None
    ) -> None:
        """Add a write of batches; with a key, their location is recorded for that partition."""
        runs: list[AppendRun] = []

        def step() -> None:
            # Segment boundaries are known only after everything before is written.
            if not runs:
                runs.extend(log.plan(batches, limits))
            self._dirty[log] = self._logs[log] = None
            while runs:
                placed = log.write(runs[0])
                del runs[0]
                if key is not None:
                    self.placements.append(Placement(key, placed))

        self._steps.append(step)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self._steps and not self._dirty

    @property
    def written(self) -> list[AppendLog]:
        """The logs that were written to."""
        return list(self._logs)

    def run(self, *, syncs: bool) -> None:
        """Run the remaining steps, then sync to disk if requested.

        Raises:
            OSError: a step failed; run the job again.
        """
        while self._steps:
            self._steps[0]()
            self._steps.popleft()
        while syncs and self._dirty:
            log = next(iter(self._dirty))
            log.sync()
            del self._dirty[log]
