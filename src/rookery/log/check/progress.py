"""How far a check has come, and what it has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rookery.log.check.fault import LogFault, joined

MAX_FAULTS: Final = 10_000
"""More are counted, but not kept."""

Progress = Callable[[int, int], None]
"""Is told of bytes that were checked, and of the sound records in them."""


@dataclass(slots=True)
class CheckReport:
    """What a check has found."""

    entry: int = 0
    """The last entry of the cluster log that was taken into account."""
    topics: int = 0
    partitions: int = 0
    objects: int = 0
    rows: int = 0
    bytes: int = 0
    """Bytes that rows name."""
    faults: list[LogFault] = field(default_factory=list)
    notes: list[LogFault] = field(default_factory=list)
    left_out: int = 0
    """Faults beyond those that are kept."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults and not self.left_out

    def add(self, faults: list[LogFault]) -> None:
        """Take faults and notes in, those of neighbouring rows as one."""
        for fault in joined(faults):
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
