"""Replaces small files atomically: the old file stays until the new one is on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rookery.formats.logfile.names import FileKind, FileName, Stage
from rookery.store.syncfolder import sync_folder

_CHUNK_BYTES: Final = 1 << 20
_MAX_CUTS: Final = 1000
# The batches come first, so that a partial segment never counts.
_SEGMENT_FILES: Final = (
    FileKind.LOG,
    FileKind.INDEX,
    FileKind.TIMES,
    FileKind.ABORTED,
    FileKind.PRODUCERS,
)


def replace(path: Path, data: bytes) -> None:
    """Replace a file atomically, even if the machine crashes."""
    part = path.with_name(path.name + ".tmp")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, data)
        os.fdatasync(fd)
    finally:
        os.close(fd)
    part.rename(path)
    sync_folder(path.parent)


def cut(path: Path, size: int) -> Path | None:
    """Truncate a file; return the file with the cut bytes, None if they were all zeros.

    Raises:
        OSError: the cut bytes could not be saved; the file is unchanged.
    """
    if _is_zero(path, size):
        os.truncate(path, min(size, path.stat().st_size))
        return None
    name = f"{path.name}.cut-{size}"
    names = (name, *(f"{name}-{number}" for number in range(2, _MAX_CUTS)))
    aside = next(free for candidate in names if not (free := path.with_name(candidate)).exists())
    try:
        with path.open("rb") as file, aside.open("xb") as copy:
            file.seek(size)
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    os.truncate(path, size)
    return aside


def _is_zero(path: Path, position: int) -> bool:
    with path.open("rb") as file:
        file.seek(position)
        while chunk := file.read(_CHUNK_BYTES):
            if any(chunk):
                return False
    return True


def mark_deleted(
    folder: Path, base_offset: int, kinds: Sequence[FileKind] = _SEGMENT_FILES
) -> list[Path]:
    """Rename the files of a segment so that it no longer counts; return their new names.

    Raises:
        OSError: a file could not be renamed; it can be retried.
    """
    marked = []
    for kind in kinds:
        path = folder / FileName(base_offset, kind).text
        if path.exists():
            name = FileName(base_offset, kind, Stage.DELETED).text
            marked.append(path.rename(folder / name))
    return marked
