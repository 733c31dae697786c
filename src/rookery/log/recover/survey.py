"""Reads everything in a store that describes the log; no decisions are made here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from rookery.cluster.state.images.image import read_image
from rookery.cluster.state.state import State
from rookery.errors import Corrupt
from rookery.formats.keys import (
    CLUSTER,
    OBJECTS,
    SEGMENT_ENDING,
    SNAPSHOTS,
    TIMES_ENDING,
    SegmentKey,
    index_key,
    is_stored,
    object_id,
    parse_object_key,
    parse_segment_key,
    parse_snapshot_key,
    split_object_id,
)
from rookery.formats.manifest import HEAD_BYTES, Manifest, manifest_length, read_head
from rookery.formats.times import Times, parse_times
from rookery.log.check.fault import FaultKind, LogFault
from rookery.log.check.objects import ObjectCheck
from rookery.log.check.progress import Progress
from rookery.log.check.rows import RowTable
from rookery.log.check.sources import Sources
from rookery.store.port import NotFound, ReadableStore, StoredObject

_AT_ONCE: Final = 16
_HEAD_READ_BYTES: Final = 64 * 1024

T = TypeVar("T")


class SharedObject(NamedTuple):
    """A shared object: its manifest, the position of its batches, and its size."""

    manifest: Manifest
    begin: int
    size: int


class FoundSegment(NamedTuple):
    """A segment: its key and its times file."""

    key: SegmentKey
    times: Times


@dataclass(slots=True)
class StoreSurvey:
    """The contents of the store."""

    snapshot: State | None = None
    cluster_id: str = ""
    """The id of the cluster that owns the store; empty if it is not marked."""
    objects: dict[int, SharedObject] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """The size of every shared object and segment by key, even if it cannot be read."""
    segments: dict[int, FoundSegment] = field(default_factory=dict)
    plain_names: list[SegmentKey] = field(default_factory=list)
    """Plain names of segments that are in use."""
    journals: dict[int, int] = field(default_factory=dict)
    """Sizes of journal files."""
    damaged_rows: set[tuple[int, int]] = field(default_factory=set)
    """Rows of the snapshot in journals that are missing or wrong: object id and position."""
    faults: list[LogFault] = field(default_factory=list)
    highest: int = 0
    """The highest entry number or incarnation found anywhere."""

    def see(self, *numbers: int) -> None:
        """Record entry numbers or incarnations."""
        self.highest = max(self.highest, *numbers)


async def survey(sources: Sources, progress: Progress) -> StoreSurvey:
    """Read snapshots, manifests and times files.

    Raises:
        Unavailable: the store or the disk cannot be reached.
    """
    findings = StoreSurvey()
    with suppress(NotFound):
        findings.cluster_id = (await sources.store.read(CLUSTER)).decode(errors="replace")
    await _read_snapshots(findings, sources.store)
    await _read_objects(findings, sources.store, progress)
    await _read_segments(findings, sources, progress)
    if sources.files is not None:
        findings.journals = dict(await sources.files.find())
        findings.see(0, *(split_object_id(journal)[0] for journal in findings.journals))
        await _check_journals(findings, sources, progress)
    return findings


async def _read_snapshots(findings: StoreSurvey, store: ReadableStore) -> None:
    """Use the newest snapshot that can be read; unreadable ones contribute their numbers."""
    keys = {parse_snapshot_key(item.key): item.key for item in await store.list(SNAPSHOTS)}
    numbers = sorted((number for number in keys if number is not None), reverse=True)
    findings.see(0, *numbers)
    for number in numbers:
        try:
            findings.snapshot = read_image(await store.read(keys[number]))
        except Corrupt as error:
            advice = "an older one is used: what happened between the two is found as far as can be"
            findings.faults.append(
                LogFault(FaultKind.SNAPSHOT, keys[number], str(error), remedy=advice)
            )
            continue
        findings.see(findings.snapshot.applied)
        return


async def _read_objects(findings: StoreSurvey, store: ReadableStore, progress: Progress) -> None:
    async def read(item: StoredObject) -> None:
        identity = parse_object_key(item.key)
        if identity is None:
            return
        findings.sizes[item.key] = item.size
        findings.see(split_object_id(identity)[0])
        try:
            headed = await _head(store, item)
        except (Corrupt, NotFound) as error:
            findings.faults.append(LogFault(FaultKind.CORRUPT, item.key, str(error)))
            return
        if headed.manifest.object_id != identity:
            text = f"it says it is object {headed.manifest.object_id}: it was copied or renamed"
            findings.faults.append(LogFault(FaultKind.CORRUPT, item.key, text))
            return
        findings.objects[identity] = headed
        findings.see(headed.manifest.seen)
        progress(headed.begin, 0)

    await _each(await store.list(OBJECTS), read)


async def _head(store: ReadableStore, item: StoredObject) -> SharedObject:
    data = await store.read(item.key, 0, _HEAD_READ_BYTES)
    length = manifest_length(data[:HEAD_BYTES])
    if length > len(data):
        data = await store.read(item.key, 0, length)
    manifest, begin = read_head(data)
    return SharedObject(manifest, begin, item.size)


async def _read_segments(findings: StoreSurvey, sources: Sources, progress: Progress) -> None:
    """Read the times files; a segment without its files cannot be used."""
    listed = dict(await sources.store.list(f"{sources.namespace}/"))
    findings.sizes |= listed
    for key in listed:
        parsed = parse_segment_key(key)
        if parsed is None:
            continue
        if parsed.generation is not None:
            findings.see(parsed.generation.incarnation)
        elif parsed.ending == SEGMENT_ENDING:
            findings.plain_names.append(parsed)

    async def read(key: str) -> None:
        try:
            identity, segment = await _segment(sources.store, key, listed)
        except (Corrupt, NotFound) as error:
            findings.faults.append(LogFault(FaultKind.CORRUPT, key, str(error)))
            return
        findings.segments[identity] = segment
        findings.see(segment.times.origin.incarnation)
        progress(listed[key], 0)

    await _each([key for key in listed if key.endswith(TIMES_ENDING)], read)


async def _segment(
    store: ReadableStore, key: str, listed: dict[str, int]
) -> tuple[int, FoundSegment]:
    times = parse_times(await store.read(key), "the times file")
    whole = key.removesuffix(TIMES_ENDING) + SEGMENT_ENDING
    times.check_key(whole)
    parsed = parse_segment_key(whole)
    has = (times.origin.incarnation, times.origin.number)
    if parsed is None or (parsed.generation is not None and parsed.generation != has):
        raise Corrupt(f"it belongs to object {has}: it was copied or renamed")
    if listed.get(whole) != times.size or index_key(whole) not in listed:
        raise Corrupt("its segment or its index is missing or incomplete")
    return object_id(*has), FoundSegment(parsed, times)


async def _check_journals(findings: StoreSurvey, sources: Sources, progress: Progress) -> None:
    """Check the snapshot's rows in journal files, for which there is no other evidence."""
    if findings.snapshot is None:
        return
    rows = RowTable.of(findings.snapshot, lambda identity: identity > 0 and not is_stored(identity))
    check = ObjectCheck(sources, findings.snapshot, rows, {}, progress, is_quick=False)
    suspects = await check.run()
    findings.damaged_rows = {(suspect.object_id, suspect.position) for suspect in suspects}


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Process several items at a time."""
    rest = iter(items)

    async def some() -> None:
        for item in rest:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(some())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
