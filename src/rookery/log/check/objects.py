"""Checks the objects of rows: whether they exist, are long enough, and are intact.

Several objects are checked concurrently, each in pieces of a few MiB. Memory use therefore does not
depend on the size of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from rookery.cluster.state.state import State
from rookery.errors import Corrupt, Unavailable
from rookery.formats.keys import index_key, is_stored, journal_name, times_key
from rookery.formats.manifest import HEAD_BYTES, manifest_length
from rookery.log.check.contents import RowError, check_head, check_row
from rookery.log.check.fault import FaultKind, LogFault
from rookery.log.check.progress import Progress
from rookery.log.check.rows import OffsetSpan, PlacedRow, RowTable
from rookery.log.check.segments import SegmentCheck
from rookery.log.check.sources import Bytes, Sources
from rookery.log.read.files import MissingObject
from rookery.log.read.objects import key_of

_AT_ONCE: Final = 8
_READ_BYTES: Final = 4 * 1024 * 1024
# A request takes as much time as reading this number of additional bytes.
_GAP_BYTES: Final = 128 * 1024
_HEAD_READ_BYTES: Final = 64 * 1024


class Suspect(NamedTuple):
    """A possible fault of a row, which may also have been moved during the check."""

    fault: LogFault
    span: OffsetSpan
    object_id: int
    position: int


class ObjectCheck:
    """Checks some rows of one version of the state."""

    def __init__(
        self,
        sources: Sources,
        state: State,
        rows: RowTable,
        sizes: Mapping[str, int],
        progress: Progress,
        *,
        is_quick: bool,
    ) -> None:
        """Prepare the check.

        Args:
            sources: the handles to read from.
            state: the version that the rows are of; it must not change meanwhile.
            rows: the rows to check.
            sizes: known sizes of objects and files by name; others are looked up.
            progress: receives the number of bytes and sound records checked.
            is_quick: read no bytes.
        """
        self._sources = sources
        self._state = state
        self._rows = rows
        self._sizes = sizes
        self._progress = progress
        self._is_quick = is_quick
        self._bytes = Bytes(sources, lambda: state)
        self._suspects: list[Suspect] = []

    async def run(self) -> list[Suspect]:
        """Check all rows; return possible faults."""
        objects = iter(self._rows.objects)

        async def work() -> None:
            for object_id in objects:
                if object_id:
                    await self._check(object_id)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            # The caller can handle one error, and the others say the same.
            raise errors.exceptions[0] from None
        return self._suspects

    def _name(self, object_id: int) -> str:
        if object_id < 0:
            return f"entry {-object_id}"
        if not is_stored(object_id):
            return journal_name(object_id)
        return key_of(self._state, self._sources.namespace, object_id)

    async def _check(self, object_id: int) -> None:
        key, rows = self._name(object_id), self._rows.in_object(object_id)
        self._check_overlaps(key, rows)
        if object_id < 0:
            await self._check_payload(key, rows)
            return
        end = max(placed.row.position + placed.row.size for placed in rows)
        size = await self._size(object_id, key, end)
        if size is None:
            self._suspect_all(FaultKind.MISSING, key, "it is not there", rows)
            return
        whole = [placed for placed in rows if placed.row.position + placed.row.size <= size]
        short = [placed for placed in rows if placed.row.position + placed.row.size > size]
        self._suspect_all(FaultKind.SHORT, key, f"it ends after {size} bytes", short)
        if not whole:
            return
        if whole[0].row.is_segment:
            await self._check_segment(key, whole[0], size)
        elif not self._is_quick:
            await self._check_contents(key, whole, size)

    async def _check_contents(self, key: str, rows: list[PlacedRow], size: int) -> None:
        try:
            if is_stored(rows[0].row.object_id):
                await self._check_head(key, rows, size)
            await self._check_rows(key, rows)
        except MissingObject:
            self._suspect_all(FaultKind.MISSING, key, "it is not there", rows)

    async def _size(self, object_id: int, key: str, end: int) -> int | None:
        """Return an object's size; one that is absent or short in the list may have grown since."""
        size = self._sizes.get(key)
        if size is not None and size >= end:
            return size
        if is_stored(object_id):
            return await self._sources.store.size(key)
        journals = await self._sources.files.find() if self._sources.files else []
        return next((journal.size for journal in journals if journal.object_id == object_id), None)

    def _check_overlaps(self, key: str, rows: list[PlacedRow]) -> None:
        for placed, other in pairwise(rows):
            if placed.row.position + placed.row.size > other.row.position:
                text = f"its bytes from {other.row.position} on belong to two rows"
                self._suspect(LogFault(FaultKind.OFFSETS, key, text, other.where), other)

    async def _check_payload(self, key: str, rows: list[PlacedRow]) -> None:
        log = self._sources.cluster_log
        number = -rows[0].row.object_id
        if self._is_quick:
            if not await log.floor() < number <= await log.head():
                self._suspect_all(FaultKind.MISSING, key, "it is not in the cluster log", rows)
            return
        await self._check_rows(key, rows, missing=FaultKind.MISSING)

    async def _check_head(self, key: str, rows: list[PlacedRow], size: int) -> None:
        object_id = rows[0].row.object_id
        data = await self._bytes.read(object_id, 0, min(size, _HEAD_READ_BYTES))
        try:
            length = manifest_length(data[:HEAD_BYTES])
            if length > len(data):
                data = await self._bytes.read(object_id, 0, min(size, length))
            text = check_head(data, object_id, size)
        except Corrupt as error:
            text = str(error)
        if text:
            advice = "nothing for now: only `rookery recover` needs it; the records are checked"
            self._suspect(LogFault(FaultKind.CORRUPT, key, text, rows[0].where, advice), rows[0])

    async def _check_rows(
        self, key: str, rows: list[PlacedRow], missing: FaultKind = FaultKind.CORRUPT
    ) -> None:
        for chunk in _chunks(rows):
            first = chunk[0].row
            size = max(placed.row.position + placed.row.size for placed in chunk) - first.position
            try:
                data = await self._bytes.read(first.object_id, first.position, size)
            except (Corrupt, Unavailable) as error:
                # An unreachable store proves nothing about its contents.
                if isinstance(error, Unavailable) and is_stored(first.object_id):
                    raise
                self._suspect_all(missing, key, str(error), chunk)
                continue
            view = memoryview(data)
            records = sum(
                self._check_bytes(key, placed, view[placed.row.position - first.position :])
                for placed in chunk
            )
            self._progress(size, records)

    def _check_bytes(self, key: str, placed: PlacedRow, data: memoryview) -> int:
        """Check a row whose bytes come first; return the number of sound records in it."""
        try:
            return check_row(placed.partition, placed.row, data[: placed.row.size])
        except RowError as error:
            self._suspect(LogFault(error.kind, key, str(error), placed.where), placed)
            return 0

    async def _check_segment(self, key: str, placed: PlacedRow, size: int) -> None:
        if size != placed.row.size:
            text = f"it has {size} bytes, the cluster log says {placed.row.size}"
            self._suspect(LogFault(FaultKind.CORRUPT, key, text, placed.where), placed)
            return
        beside = {index_key(key): await self._beside(index_key(key)),
                  times_key(key): await self._beside(times_key(key))}  # fmt: skip
        for name, data in beside.items():
            if data is None:
                advice = "restore it from a copy; until then, finding an offset in it takes longer"
                fault = LogFault(FaultKind.MISSING, name, "it is not there", placed.where, advice)
                self._suspect(fault, placed)
        if self._is_quick:
            return
        async for fault in self._segment_faults(key, placed, *beside.values()):
            self._suspect(fault, placed)

    async def _segment_faults(
        self, key: str, placed: PlacedRow, index: bytes | None, times: bytes | None
    ) -> AsyncIterator[LogFault]:
        read = partial(self._bytes.read, placed.row.object_id)
        check = SegmentCheck(key, placed.where, placed.row.size, read, self._progress)
        try:
            async for fault in check.run(index, times):
                yield fault
        except MissingObject:
            yield LogFault(FaultKind.MISSING, key, "it is not there", placed.where)

    async def _beside(self, key: str) -> bytes | None:
        """Return a file that belongs to a segment; a quick check only tests its existence."""
        if not self._is_quick:
            return await self._bytes.whole(key)
        known = key in self._sizes or await self._sources.store.size(key) is not None
        return b"" if known else None

    def _suspect(self, fault: LogFault, placed: PlacedRow) -> None:
        row = placed.row
        self._suspects.append(Suspect(fault, placed.span, row.object_id, row.position))

    def _suspect_all(self, kind: FaultKind, key: str, text: str, rows: list[PlacedRow]) -> None:
        for placed in rows:
            self._suspect(LogFault(kind, key, text, placed.where), placed)


def _chunks(rows: list[PlacedRow]) -> Iterator[list[PlacedRow]]:
    """Group rows that are close to each other; a long row is read alone."""
    chunk: list[PlacedRow] = []
    for placed in rows:
        row = placed.row
        if chunk:
            first, last = chunk[0].row, chunk[-1].row
            is_near = row.position - last.position - last.size <= _GAP_BYTES
            if not is_near or row.position + row.size - first.position > _READ_BYTES:
                yield chunk
                chunk = []
        chunk.append(placed)
    if chunk:
        yield chunk
