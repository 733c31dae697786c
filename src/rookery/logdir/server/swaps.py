"""Completes an interrupted swap of Kafka's cleaner.

The cleaner writes new segments as `.cleaned`, renames them to `.swap` when all are complete, and
only then deletes the old ones. So a `.swap` replaces the segments whose offsets it holds, unless a
later segment was still being cleaned. Swaps must be completed before anything is deleted: the old
segments may already be deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rookery.formats.logfile.names import (
    FileKind,
    FileName,
    Stage,
    parse_file_name,
    parse_folder_name,
)
from rookery.logdir.segment import LogFileSegment
from rookery.logdir.writer.smallfiles import mark_deleted

log = logging.getLogger(__name__)

_FILES: Final = (FileKind.INDEX, FileKind.TIMES, FileKind.ABORTED, FileKind.LOG)
"""The files of a segment; the `.log`, which makes it count, comes last."""


def settle_swaps(paths: Iterable[Path]) -> None:
    """Replace the source segments by `.swap` files.

    Raises:
        OSError: a write to the disk failed.
    """
    for path in paths:
        for folder in sorted(path.iterdir()):
            name = parse_folder_name(folder.name)
            if name is not None and name.stage is None and folder.is_dir():
                _settle(folder)


def _settle(folder: Path) -> None:
    files = [name for path in folder.iterdir() if (name := parse_file_name(path.name))]
    cleaned = (file.base_offset for file in files if file.stage is Stage.CLEANED)
    limit = min(cleaned, default=1 << 63)
    swaps = sorted(
        file.base_offset
        for file in files
        if file.stage is Stage.SWAP and file.kind is FileKind.LOG and file.base_offset < limit
    )
    for base in swaps:
        end = _end(folder, base)
        log.warning("%s: an interrupted compaction up to offset %d is completed", folder, end)
        for file in files:
            if file.kind is FileKind.LOG and file.stage is None and base <= file.base_offset < end:
                mark_deleted(folder, file.base_offset, _FILES[::-1])
        for kind in _FILES:
            swapped = folder / FileName(base, kind, Stage.SWAP).text
            if swapped.exists():
                swapped.rename(folder / FileName(base, kind).text)


def _end(folder: Path, base: int) -> int:
    """Return the offset after a swapped segment."""
    segment = LogFileSegment(folder, base)
    segment.path = folder / FileName(base, FileKind.LOG, Stage.SWAP).text
    return max((header.last_offset + 1 for header in segment.headers()), default=base + 1)
