"""Extents to bytes for a reader: from memory if they are new, else from journal or entry.

What comes from disk is checked, every batch by its CRC, and gets its offsets here: the bytes were
written before their offsets were born.

    rows of the partition ──► runs (what lies together is read together) ──► views of blocks
                                                                                  │
    parts for the socket ◄── offsets and epochs ◄── CRC, and places against the rows ◄┘
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from rookery.cluster.entry import read_entry
from rookery.cluster.port import ClusterLog
from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt, Error
from rookery.log.tail import Key, Slice, Tail
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader
from rookery.wire.buffer import Buffer

# A first read is at least so long: most batches are shorter, and the rest is in the cache then.
_FIRST_BYTES: Final = 64 * 1024
# Batches that are this long on average go out as views of the cache; shorter ones are copied,
# because a socket takes many small parts more slowly than one copy is made.
_COPY_BELOW: Final = 16 * 1024
_RUNS_AT_ONCE: Final = 4
_DIRECT_FROM_BYTES: Final = 128 * 1024
_MARKS: Final = 4096
_ENTRY_READ_BYTES: Final = 512 * 1024
_ENTRY_CACHE_BYTES: Final = 16 * 1024 * 1024


Direct = Callable[[int, int, int], Awaitable[bytes]]
"""Reads (object id, position, size) past the cache; fewer bytes only where the object ends."""


class Objects(Protocol):
    """Where the bytes of journals or stored objects are read from."""

    async def views(self, object_id: int, position: int, size: int) -> list[memoryview]:
        """Return bytes of an object, in pieces. Raises Corrupt, Conflict or Unavailable."""


class _Run(NamedTuple):
    """Bytes that lie together, and the rows that they belong to."""

    object_id: int
    position: int
    size: int
    base_offset: int
    """The offset of the first batch in them."""
    rows: list[Row]

    @property
    def end(self) -> int:
        return self.position + self.size


class _Found(NamedTuple):
    """A batch in the bytes of a run, and the offsets it has."""

    header: BatchHeader
    base: int
    end: int
    append_time: int  # -1: its own times hold


class Reader:
    """Reads any partition from any offset."""

    def __init__(
        self,
        cluster_log: ClusterLog,
        objects: Objects,
        tail: Tail,
        direct: Direct | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            cluster_log: where small batches lie.
            objects: where the others lie, with a cache before it.
            tail: what need not be read.
            direct: reads long runs as one piece, where that is cheap: from a local disk, whose
                pages the system keeps in memory, it saves the copy that joins a cache's blocks.
        """
        self._objects = objects
        self._direct = direct
        self._tail = tail
        self._payloads = _Payloads(cluster_log)
        # Where the batch at an offset begins: a reader comes back for what follows.
        self._marks: OrderedDict[tuple[Key, int], tuple[int, int]] = OrderedDict()

    def read_now(
        self, key: Key, offset: int, max_bytes: int, *, whole_first: bool = True
    ) -> Slice | None:
        """Return batches from memory, or None if they must be waited for."""
        return self._tail.read(key, offset, max_bytes, whole_first=whole_first)

    async def read(
        self,
        key: Key,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = True,
    ) -> Slice:
        """Return whole batches from the one that holds `offset` on, as `Tail.read` does.

        Raises:
            Corrupt: the bytes on disk are not those that were written.
            Conflict: they lie elsewhere by now, or are gone; look at the state again.
            Unavailable: the disk or the cluster log cannot be read.
        """
        found = self._tail.read(key, offset, max_bytes, whole_first=whole_first)
        if found is not None:
            return found
        # One version of the state decides what is read: rows are copied before the first await.
        runs = _runs(partition, offset, max_bytes, self._marks.get((key, offset)))
        parts: list[Buffer] = []
        size, end = 0, offset
        for at in range(0, len(runs), _RUNS_AT_ONCE):
            for run, data in await self._fetch(runs[at : at + _RUNS_AT_ONCE]):
                whole = whole_first and not parts
                try:
                    data, taken = await self._taken(  # noqa: PLW2901
                        key, run, data, offset, max_bytes - size, whole_first=whole
                    )
                except Error:
                    # What lies before the damage is served; who asks for the rest is told.
                    if not parts:
                        raise
                    return Slice(parts, size, end)
                if taken:
                    parts += _parts(partition, data, taken)
                    size += taken[-1].header.end - taken[0].header.position
                    end = taken[-1].end
                    self._mark(key, run, taken[-1])
                if not taken or taken[-1].header.end < run.size:
                    return Slice(parts, size, end)
        return Slice(parts, size, end)

    async def _taken(
        self,
        key: Key,
        run: _Run,
        data: Buffer | BaseException,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool,
    ) -> tuple[Buffer, list[_Found]]:
        """Return the batches of a run that are wanted and fit, and the bytes they lie in."""
        if isinstance(data, BaseException):
            raise data
        more = _checked(key, run, data, offset)
        stop = _fitting(more, max_bytes, whole_first=whole_first)
        if not stop and whole_first:
            # The first one wanted is longer than what was read, or lies behind it; a batch lies
            # in one row, and the first one wanted in the first.
            size = run.rows[0].position + run.rows[0].size - run.position
            data = await self._bytes(run._replace(size=max(size, run.size)))
            more = _checked(key, run, data, offset)
            stop = _fitting(more, max_bytes, whole_first=True)
            if not stop:
                raise Corrupt(
                    f"{_name(key)}: the batch of offset {offset} is not in object "
                    f"{run.object_id}, where the cluster log says it is"
                )
        return data, more[:stop]

    async def _fetch(self, runs: list[_Run]) -> list[tuple[_Run, Buffer | BaseException]]:
        found = await asyncio.gather(*map(self._bytes, runs), return_exceptions=True)
        return list(zip(runs, found, strict=True))

    async def _bytes(self, run: _Run) -> Buffer:
        """Return the bytes of a run; fewer where its object ends, which damage can be."""
        if not run.object_id:
            return b"".join(map(_gap, run.rows))
        if run.object_id < 0:
            payload = await self._payloads.read(-run.object_id)
            return payload[run.position : run.end]
        if self._direct is not None and run.size >= _DIRECT_FROM_BYTES:
            return await self._direct(run.object_id, run.position, run.size)
        try:
            views = await self._objects.views(run.object_id, run.position, run.size)
        except Corrupt:
            if self._direct is None:
                raise
            return await self._direct(run.object_id, run.position, run.size)
        return views[0] if len(views) == 1 else bytearray().join(views)

    def _mark(self, key: Key, run: _Run, last: _Found) -> None:
        marks = self._marks
        marks[key, last.end] = (run.object_id, run.position + last.header.end)
        if len(marks) > _MARKS:
            marks.popitem(last=False)


class _Payloads:
    """The payloads of entries, read a few at a time, since readers go forward."""

    def __init__(self, cluster_log: ClusterLog) -> None:
        self._log = cluster_log
        self._kept: OrderedDict[int, memoryview] = OrderedDict()
        self._kept_bytes = 0
        self._reading = asyncio.Lock()

    async def read(self, number: int) -> memoryview:
        """Return the payload of an entry."""
        if number not in self._kept:
            async with self._reading:  # others may want the same
                if number not in self._kept:
                    return await self._load(number)
        self._kept.move_to_end(number)
        return self._kept[number]

    async def _load(self, number: int) -> memoryview:
        wanted: memoryview | None = None
        for found, data in await self._log.read(number - 1, _ENTRY_READ_BYTES):
            payload = memoryview(read_entry(found, data).payload)  # type: ignore[arg-type] # read as a view
            if found == number:
                wanted = payload
            self._keep(found, payload)
        if wanted is None:
            raise Corrupt(f"entry {number} of the cluster log is gone, and batches in it with it")
        return wanted

    def _keep(self, number: int, payload: memoryview) -> None:
        if number in self._kept or not payload:
            return
        self._kept[number] = payload
        self._kept_bytes += len(payload)
        while self._kept_bytes > _ENTRY_CACHE_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])


def _runs(
    partition: Partition, offset: int, max_bytes: int, mark: tuple[int, int] | None
) -> list[_Run]:
    """Plan the reads for about `max_bytes` from an offset on."""
    runs: list[_Run] = []
    index = partition.row_of(offset)
    left = max(max_bytes, _FIRST_BYTES)
    while index < len(partition.base_offsets) and left > 0:
        row = partition.row(index)
        if runs and left < min(row.size, max_bytes // 8):
            break  # hardly a batch would fit, and most of what is read would be in vain
        index += 1
        if not row.object_id:
            # Its bytes are lost, and known to be: an empty batch takes readers over the gap.
            row = row._replace(position=row.base_offset, size=batches.HEADER_SIZE)
        run = _Run(row.object_id, row.position, min(row.size, left), row.base_offset, [row])
        if not runs and mark is not None:
            run = _marked(run, row, mark, offset, left)
        left -= run.size
        if runs and runs[-1].object_id == run.object_id and runs[-1].end == run.position:
            before = runs[-1]
            runs[-1] = before._replace(size=before.size + run.size, rows=[*before.rows, row])
        else:
            runs.append(run)
    return runs


def _gap(row: Row) -> bytes:
    """Make a batch without records over a row's offsets, as compaction leaves them in Kafka."""
    header = BatchHeader(
        base_offset=row.base_offset,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=batches.MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=row.end_offset - row.base_offset - 1,
        base_timestamp=row.max_timestamp,
        max_timestamp=row.max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return batches.seal(header, b"")


def _marked(run: _Run, row: Row, mark: tuple[int, int], offset: int, left: int) -> _Run:
    """Begin within the row, where the batch of the offset is known to begin."""
    object_id, position = mark
    end = row.position + row.size
    if object_id != row.object_id or not row.position <= position < end:
        return run  # the row has moved meanwhile
    return run._replace(position=position, size=min(end - position, left), base_offset=offset)


def _checked(key: Key, run: _Run, data: Buffer, offset: int) -> list[_Found]:
    """Check the batches of a run against its rows; leave out those before `offset`.

    A last batch that is not all there is left out too: not more was read.
    """
    headers = batches.outline(data)
    skipped = _skipped(headers, run.base_offset, offset)
    if skipped < len(headers):
        # The CRC of what nobody wants is not computed: damage before it must not hide the rest.
        begin = headers[skipped].position
        good, error = batches.sound(memoryview(data)[begin:])
        if error is not None and not good:
            raise Corrupt(
                f"{_name(key)}, offset {offset}: object {run.object_id} at byte "
                f"{run.position + begin}: {error}"
            ) from error
        headers[skipped:] = [header._replace(position=header.position + begin) for header in good]
    base, found = run.base_offset, []
    rows = iter(run.rows)
    row = next(rows)
    for header in headers:
        if run.position + header.position >= row.position + row.size:
            _check_end(key, row, base)
            row = next(rows)
        end = base + header.last_offset_delta + 1
        if end > row.end_offset or run.position + header.end > row.position + row.size:
            _check_end(key, row, end)
            raise _differs(key, row, end)
        if end > offset:
            found.append(_Found(header, base, end, row.max_timestamp if row.is_append_time else -1))
        base = end
    return found


def _skipped(headers: list[BatchHeader], base: int, offset: int) -> int:
    """Return how many batches end before an offset, if the first one begins at `base`."""
    for index, header in enumerate(headers):
        base += header.last_offset_delta + 1
        if base > offset:
            return index
    return len(headers)


def _check_end(key: Key, row: Row, end: int) -> None:
    if end != row.end_offset:
        raise _differs(key, row, end)


def _differs(key: Key, row: Row, end: int) -> Corrupt:
    return Corrupt(
        f"{_name(key)}: the batches at offset {row.base_offset} (object {row.object_id} at byte "
        f"{row.position}) end at {end}, but the cluster log says {row.end_offset}"
    )


def _fitting(found: list[_Found], max_bytes: int, *, whole_first: bool) -> int:
    """Return how many of the batches fit."""
    if not found:
        return 0
    begin = found[0].header.position
    if found[-1].header.end - begin <= max_bytes:
        return len(found)
    count = 1 if whole_first else 0
    while count < len(found) and found[count].header.end - begin <= max_bytes:
        count += 1
    return count


def _parts(partition: Partition, data: Buffer, found: list[_Found]) -> list[Buffer]:
    """Give the batches their offsets: in place if the bytes are ours, else around views of them."""
    begin, end = found[0].header.position, found[-1].header.end
    if not isinstance(data, bytearray):
        if end - begin >= _COPY_BELOW * len(found):
            return _around(partition, data, found)
        data = bytearray(data)
    for header, base, _, append_time in found:
        epoch = partition.epoch_at(base)
        if append_time >= 0:
            stamped = header.appended_at(append_time)
            batches.restamp_into(
                data, stamped._replace(base_offset=base, partition_leader_epoch=epoch)
            )
        else:
            batches.stamp_into(data, base, epoch, header.position)
    return [memoryview(data)[begin:end]]


def _around(partition: Partition, data: Buffer, found: list[_Found]) -> list[Buffer]:
    parts: list[Buffer] = []
    view = memoryview(data)
    for header, base, _, append_time in found:
        epoch = partition.epoch_at(base)
        if append_time >= 0:
            stamped = header.appended_at(append_time)._replace(
                base_offset=base, partition_leader_epoch=epoch
            )
            parts += batches.restamp(view, stamped)
        else:
            parts += batches.stamp(view[header.position : header.end], base, epoch)
    return parts


def _name(key: Key) -> str:
    return f"topic {key[0].hex()} partition {key[1]}"
