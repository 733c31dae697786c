"""Small files written whole: what was there before stays until the new one is on the disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rookery.formats.logfile.names import FileName, Kind, Stage

# The batches first, so that no half of a segment counts.
_SEGMENT_FILES: Final = (Kind.LOG, Kind.INDEX, Kind.TIMES, Kind.ABORTED, Kind.PRODUCERS)


def replace(path: Path, data: bytes) -> None:
    """Put a file in the place of another, as a whole or not at all, whatever stops the machine."""
    part = path.with_name(path.name + ".tmp")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, data)
        os.fdatasync(fd)
    finally:
        os.close(fd)
    part.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def mark_deleted(
    folder: Path, base_offset: int, kinds: Sequence[Kind] = _SEGMENT_FILES
) -> list[Path]:
    """Rename the files of a segment so that it no longer counts; return their new names.

    Raises:
        OSError: a file could not be renamed; it can be tried again.
    """
    marked = []
    for kind in kinds:
        path = folder / FileName(base_offset, kind).text
        if path.exists():
            name = FileName(base_offset, kind, Stage.DELETED).text
            marked.append(path.rename(folder / name))
    return marked
