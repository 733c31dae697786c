"""What is wrong with a file of a log directory: told, counted, and never in the way of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rookery.records.scan import BatchDamage


class Damage(NamedTuple):
    """A file, and what is wrong with it."""

    path: Path
    reason: str
    position: int | None = None
    """The first bad byte, if one is known."""
    offset: int | None = None
    """The first offset that is in doubt, if one is known."""
    end_offset: int | None = None
    """The next offset that can be read, if there is one in the file."""
    is_torn: bool = False
    """Whether the file only ends too early, as it does when Kafka was killed."""

    @property
    def text(self) -> str:
        """All of it on one line."""
        places = []
        if self.position is not None:
            places.append(f"byte {self.position}")
        if self.offset is not None:
            places.append(f"offset {self.offset}")
        return f"{self.path}: {', '.join(places)}{': ' if places else ''}{self.reason}"


def damage_of(path: Path, found: BatchDamage, end_offset: int | None = None) -> Damage:
    """Name the file that damage was found in."""
    return Damage(path, found.reason, found.position, found.offset, end_offset, found.is_torn)
