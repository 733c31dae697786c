"""The progress and the report of a check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rookery.log.check.fault import LogFault, join_adjacent

MAX_FAULTS: Final = 10_000
"""Further faults are counted but not kept."""

Progress = Callable[[int, int], None]
"""Receives the number of bytes checked and of sound records in them."""


@dataclass(slots=True)
class CheckReport:
    """The result of a check."""

    entry: int = 0
    """The last entry of the cluster log that was taken into account."""
    topics: int = 0
    partitions: int = 0
    objects: int = 0
    rows: int = 0
    bytes: int = 0
    """Bytes that rows reference."""
    faults: list[LogFault] = field(default_factory=list)
    notes: list[LogFault] = field(default_factory=list)
    left_out: int = 0
    """Number of faults that were not kept."""

    @property
    def is_clean(self) -> bool:
        """Whether there are no faults."""
        return not self.faults and not self.left_out

    def add(self, faults: list[LogFault]) -> None:
        """Add faults and notes; those of adjacent rows are joined."""
        for fault in join_adjacent(faults):
            kept = self.notes if fault.is_note else self.faults
            if len(kept) < MAX_FAULTS:
                kept.append(fault)
            elif not fault.is_note:
                self.left_out += 1

    def as_json(self) -> dict[str, object]:
        """Return it for scripts."""
        return {
            "clean": self.is_clean,
            "entry": self.entry,
            "topics": self.topics,
            "partitions": self.partitions,
            "objects": self.objects,
            "rows": self.rows,
            "bytes": self.bytes,
            "faults": [fault.as_json() for fault in self.faults],
            "faults_left_out": self.left_out,
            "notes": [note.as_json() for note in self.notes],
        }
