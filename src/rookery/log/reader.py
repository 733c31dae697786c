"""Extents to bytes for a reader: from memory if they are new, else from journal or entry.

What comes from disk is checked, every batch by its CRC, and gets its offsets here: the bytes were
written before their offsets were born.
"""

from __future__ import annotations

from typing import Protocol

from rookery.cluster.entry import read_entry
from rookery.cluster.port import ClusterLog
from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt
from rookery.log.tail import Key, Slice, Tail
from rookery.records import batch as batches
from rookery.wire.buffer import Buffer


class Objects(Protocol):
    """Where the bytes of journals or stored objects are read from."""

    async def read(self, object_id: int, position: int, size: int) -> Buffer:
        """Return bytes of an object. Raises Corrupt or Unavailable, naming it."""


class Reader:
    """Reads any partition from any offset."""

    def __init__(self, cluster_log: ClusterLog, objects: Objects, tail: Tail) -> None:
        self._log = cluster_log
        self._objects = objects
        self._tail = tail

    def read_now(self, key: Key, offset: int, max_bytes: int) -> Slice | None:
        """Return batches from memory, or None if they must be waited for."""
        return self._tail.read(key, offset, max_bytes)

    async def read(self, key: Key, partition: Partition, offset: int, max_bytes: int) -> Slice:
        """Return whole batches from the one that holds `offset` on, the first whatever its size.

        Raises:
            Corrupt: the bytes on disk are not those that were written.
        """
        found = self._tail.read(key, offset, max_bytes)
        if found is not None:
            return found
        # One version of the state decides what is read: rows are copied before the first await.
        rows = _rows(partition, offset, max_bytes)
        epochs = [partition.epoch_at(row.base_offset) for row in rows]
        parts: list[Buffer] = []
        size, end = 0, offset
        for row, epoch in zip(rows, epochs, strict=True):
            data = bytearray(await self._bytes(row))
            more = _stamp(key, row, data, epoch, offset)
            for part, part_end in more:
                if parts and size + len(part) > max_bytes:
                    return Slice(parts, size, end)
                parts.append(part)
                size += len(part)
                end = part_end
        return Slice(parts, size, end)

    async def _bytes(self, row: Row) -> Buffer:
        if row.object_id > 0:
            return await self._objects.read(row.object_id, row.position, row.size)
        number = -row.object_id
        for entry_number, data in await self._log.read(number - 1, 1):
            if entry_number == number:
                payload = memoryview(read_entry(number, data).payload)  # type: ignore[arg-type] # read as a view
                return payload[row.position : row.position + row.size]
        raise Corrupt(f"entry {number} of the cluster log is gone, and batches in it with it")


def _rows(partition: Partition, offset: int, max_bytes: int) -> list[Row]:
    rows: list[Row] = []
    size = 0
    index = partition.row_of(offset)
    while index < len(partition.base_offsets) and (not rows or size < max_bytes):
        row = partition.row(index)
        rows.append(row)
        size += row.size
        index += 1
    return rows


def _stamp(
    key: Key, row: Row, data: bytearray, epoch: int, offset: int
) -> list[tuple[memoryview, int]]:
    """Check the batches of a row and give them their offsets; leave out those before `offset`."""
    try:
        headers = batches.verify(data)
    except Corrupt as error:
        raise Corrupt(
            f"topic {key[0].hex()} partition {key[1]}, offset {row.base_offset}: object "
            f"{row.object_id} at byte {row.position}: {error}"
        ) from error
    base, view = row.base_offset, memoryview(data)
    found: list[tuple[memoryview, int]] = []
    for header in headers:
        end = base + header.last_offset_delta + 1
        if row.is_append_time:
            stamped = header.appended_at(row.max_timestamp)
            batches.restamp_into(
                data, stamped._replace(base_offset=base, partition_leader_epoch=epoch)
            )
        else:
            batches.stamp_into(data, base, epoch, header.position)
        if end > offset:
            found.append((view[header.position : header.end], end))
        base = end
    if base != row.end_offset:
        raise Corrupt(
            f"topic {key[0].hex()} partition {key[1]}: the batches at offset {row.base_offset} "
            f"end at {base}, but the cluster log says {row.end_offset}"
        )
    return found
