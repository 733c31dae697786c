"""What one entry makes of the files: steps that are taken in order, each once.

A step that failed is taken again when the entry is; those before it are done. In this order, what
a crash leaves behind can always be finished: what is about to be written is in the metadata and in
the transaction's own record before it is anywhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rookery.logdir.writing.appendlog import AppendLimits, AppendLog, AppendPosition, AppendRun
from rookery.logdir.writing.segmentfile import NewBatch

Key = tuple[bytes, int]
"""Topic id and partition."""


class Placement(NamedTuple):
    """Where batches of a partition went."""

    key: Key
    placed: AppendPosition


class DirectoryJob:
    """The steps of one entry."""

    def __init__(self) -> None:
        self.placements: list[Placement] = []
        self.later: list[Callable[[], None]] = []
        """What is done when nobody looks for it any more: files that go."""
        self._steps: deque[Callable[[], None]] = deque()
        self._dirty: dict[AppendLog, None] = {}
        self._logs: dict[AppendLog, None] = {}

    def add(self, step: Callable[[], None]) -> None:
        """Have something done after what was added before."""
        self._steps.append(step)

    def append(
        self, log: AppendLog, batches: Sequence[NewBatch], limits: AppendLimits, key: Key | None
    ) -> None:
        """Have batches written; who names a partition of the state has them placed there."""
        runs: list[AppendRun] = []

        def step() -> None:
            # Where segments end is known when all before it is written.
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
        """Take the steps that are left, then see that all is on the disk, if it shall be.

        Raises:
            OSError: a step failed; run it again.
        """
        while self._steps:
            self._steps[0]()
            self._steps.popleft()
        while syncs and self._dirty:
            log = next(iter(self._dirty))
            log.sync()
            del self._dirty[log]
