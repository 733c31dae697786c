"""Sets aside unplaced objects and journal files, where the caretaker does not sweep them."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rookery.cluster.state.state import State
from rookery.errors import Conflict, Corrupt, Unavailable
from rookery.formats.journal import HEADER_BYTES
from rookery.formats.keys import OBJECTS, is_stored, journal_name, object_key
from rookery.log.check.progress import Progress
from rookery.log.check.sources import Sources
from rookery.log.check.unnamedobjects import UNPLACED
from rookery.log.read.files import JournalFiles
from rookery.log.read.runs import batches_of
from rookery.log.recover.survey import StoreSurvey
from rookery.records.expectation import FAR, Expectation, ExpectedExtent, OffsetRule

FOLDER: Final = "unplaced"
"""The subfolder of the journal folder that keeps files with unplaced batches."""
_STEP_BYTES: Final = 4 * 1024 * 1024


class Leftover(NamedTuple):
    """A journal file with batches after the end that the snapshot knows."""

    object_id: int
    name: str
    batches: int
    records: int
    """An upper bound: some may have been rewritten or deleted before the log was lost."""


async def journal_leftovers(
    sources: Sources, findings: StoreSurvey, progress: Progress
) -> list[Leftover]:
    """Find batches in journal files after the snapshot; their partitions are not recorded."""
    if sources.files is None:
        return []
    ends = _known_ends(findings.snapshot)
    leftovers = []
    for object_id, size in sorted(findings.journals.items()):
        start = ends.get(object_id, HEADER_BYTES)
        if findings.snapshot is not None and object_id in findings.snapshot.objects.condemned:
            continue
        counts = await _count(sources.files, object_id, start, size, progress)
        if counts[0]:
            leftovers.append(Leftover(object_id, journal_name(object_id), *counts))
    return leftovers


async def set_aside(sources: Sources, objects: list[int], leftovers: list[Leftover]) -> None:
    """Copy objects and link journal files; existing copies are not changed."""
    for object_id in objects:
        key = object_key(object_id)
        with suppress(Conflict):
            await sources.store.create(
                UNPLACED + key.removeprefix(OBJECTS), [await sources.store.read(key)]
            )
    if sources.folder is not None:
        names = [leftover.name for leftover in leftovers]
        await asyncio.to_thread(_link, sources.folder, names)


def _known_ends(snapshot: State | None) -> dict[int, int]:
    """Return the end of the snapshot's rows in each journal."""
    ends: dict[int, int] = {}
    for topic in snapshot.topics if snapshot is not None else ():
        for partition in topic.partitions:
            columns = zip(partition.objects, partition.positions, partition.sizes, strict=True)
            for object_id, position, size in columns:
                if object_id > 0 and not is_stored(object_id):
                    ends[object_id] = max(ends.get(object_id, HEADER_BYTES), position + size)
    return ends


async def _count(
    files: JournalFiles, object_id: int, position: int, size: int, progress: Progress
) -> tuple[int, int]:
    """Return the number of whole batches and records that follow in a journal file."""
    count = records = 0
    # Their offsets are not recorded.
    extent = ExpectedExtent(0, FAR, position, size - position)
    expected = Expectation.of(extent, OffsetRule.UNCHECKED)
    with suppress(Corrupt):
        async for scan in batches_of(partial(files.read, object_id), expected, _STEP_BYTES):
            count += len(scan.headers)
            records += scan.record_count
            progress(scan.end, 0)
    return count, records


def _link(folder: Path, names: list[str]) -> None:
    if not names:
        return
    aside = folder / FOLDER
    try:
        aside.mkdir(exist_ok=True)
        for name in names:
            if not (aside / name).exists():
                _keep(folder / name, aside / name)
    except OSError as error:
        raise Unavailable(f"cannot set journal files aside in {aside}: {error.strerror}") from error


def _keep(source: Path, target: Path) -> None:
    """Link a file, which takes no space; copy it where links are not possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
