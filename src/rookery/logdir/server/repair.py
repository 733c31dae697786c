"""Repairs a directory before it is written: remains of a crash, or of Kafka's cleaner.

- bytes at the end of a segment that are not a valid batch are moved into a file next to it;
- indexes that do not fit their segment are written again;
- copies that Kafka's cleaner had not finished are deleted;
- files and folders that Kafka had marked as deleted are deleted, or kept until that is confirmed.
"""

from __future__ import annotations

import logging
from pathlib import Path

from rookery.errors import ConfigError
from rookery.formats.logfile.indexes import Indexer, pack_positions, pack_times
from rookery.formats.logfile.names import FileKind, Stage, parse_file_name
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.openedsegment import OpenedSegment
from rookery.logdir.server.trash import delete
from rookery.logdir.writer.smallfiles import cut

log = logging.getLogger(__name__)


def repair(loaded: LoadedDirectory, *, deletes: bool) -> None:
    """Repair the loaded directory.

    Args:
        loaded: the loaded directory.
        deletes: whether to delete files that Kafka had marked as deleted.

    Raises:
        ConfigError: damaged bytes could not be saved to another file.
        OSError: a write to the disk failed.
    """
    for key, opened in loaded.opened.items():
        for segment in opened:
            repair_segment(segment)
        if not loaded.directory.is_clean and key in loaded.logs:
            # Its indexes and producers must be written before the log counts as complete.
            loaded.logs[key].is_touched = True
    _remove_marked(loaded, deletes=deletes)


def _remove_marked(loaded: LoadedDirectory, *, deletes: bool) -> None:
    leftovers = loaded.directory.leftovers.items()
    marked = [folder for folder, name in leftovers if name.stage is Stage.DELETE]
    for partition in loaded.directory.partitions.values():
        for path in partition.folder.iterdir():
            file = parse_file_name(path.name)
            if file is not None and file.stage is Stage.CLEANED:
                # The source segments still exist.
                delete(path)
            elif file is not None and file.stage is Stage.DELETED:
                marked.append(path)
    if deletes:
        for path in marked:
            delete(path)
    elif marked:
        log.warning(
            "%d files and folders that Kafka marked as deleted are kept, such as %s; "
            "--confirm-retention deletes them",
            len(marked),
            marked[0],
        )


def repair_segment(opened: OpenedSegment) -> None:
    """Cut off incomplete batches, and rewrite indexes that do not match."""
    segment = opened.segment
    size = segment.size
    if size > opened.size:
        aside = _cut(segment.path, opened.size)
        log.warning(
            "%s: %d bytes from offset %d on are not a valid batch and were cut off; %s",
            segment.path,
            size - opened.size,
            opened.end_offset,
            f"they are kept in {aside}" if aside else "all of them were zero",
        )
    if opened.indexes is not None:
        _write_indexes(opened, opened.indexes)


def _cut(path: Path, size: int) -> Path | None:
    try:
        return cut(path, size)
    except OSError as error:
        raise ConfigError(
            f"log-dir: {path}: the damaged bytes at its end must be set aside first, which failed: "
            f"{error.strerror}; free space, or serve the directory with --read-only"
        ) from error


def _write_indexes(opened: OpenedSegment, indexes: Indexer) -> None:
    base = opened.segment.base_offset
    positions, times = pack_positions(indexes.positions, base), pack_times(indexes.times, base)
    for kind, data in ((FileKind.INDEX, positions), (FileKind.TIMES, times)):
        path = opened.segment.beside(kind)
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
