"""Damage in a file of a log directory: reported and counted, without blocking the rest."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rookery.records.scan import BatchDamage


class Damage(NamedTuple):
    """A file, and its defect."""

    path: Path
    reason: str
    position: int | None = None
    """The first bad byte, if known."""
    offset: int | None = None
    """The first affected offset, if known."""
    end_offset: int | None = None
    """The next readable offset, if the file has one."""
    is_torn: bool = False
    """Whether the file is only truncated, as after a kill of Kafka."""

    @property
    def text(self) -> str:
        """All details on one line."""
        places = []
        if self.position is not None:
            places.append(f"byte {self.position}")
        if self.offset is not None:
            places.append(f"offset {self.offset}")
        return f"{self.path}: {', '.join(places)}{': ' if places else ''}{self.reason}"


def damage_of(path: Path, defect: BatchDamage, end_offset: int | None = None) -> Damage:
    """Add the file name to damage found in a batch."""
    return Damage(path, defect.reason, defect.position, defect.offset, end_offset, defect.is_torn)
