"""Whether bytes are those that a row says; nothing is read here."""

from __future__ import annotations

from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt, Error
from rookery.formats.manifest import read_head, write_head
from rookery.log.fsck.fault import Kind
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader
from rookery.wire.buffer import Buffer


class RowError(Exception):
    """The bytes of a row are not what they should be."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def check_row(partition: Partition, row: Row, data: Buffer) -> int:
    """Check the bytes of a row that is no segment; return how many records they hold.

    Raises:
        RowError: something is wrong with them.
    """
    if len(data) < row.size:
        text = f"{row.size} bytes from {row.position} on, only {len(data)} are there"
        raise RowError(Kind.SHORT, text)
    try:
        headers = batches.verify(data)
    except Error as error:
        raise RowError(Kind.CORRUPT, f"from byte {row.position} on: {error}") from error
    text = _final(partition, row, headers) if row.is_final else _sent(row, headers)
    if text:
        raise RowError(Kind.CORRUPT, f"from byte {row.position} on: {text}")
    return sum(header.record_count for header in headers)


def check_head(data: bytes, object_id: int, size: int) -> str:
    """Check what an object of this size says of itself in its head; empty if all is well."""
    try:
        manifest, begin = read_head(data)
    except Corrupt as error:
        return str(error)
    if write_head(manifest) != data[:begin]:
        return "its head is not as it was written"
    if manifest.object_id != object_id:
        return f"its manifest is that of object {manifest.object_id}: it was copied or renamed"
    end = begin + sum(extent.size for extent in manifest.extents)
    if end != size:
        return f"its manifest names {end} bytes, it has {size}"
    return ""


def _sent(row: Row, headers: list[BatchHeader]) -> str:
    """Batches as they were sent take up the row's offsets one after the other."""
    end = row.base_offset + sum(header.last_offset_delta + 1 for header in headers)
    return "" if end == row.end_offset else _differs(row, end)


def _final(partition: Partition, row: Row, headers: list[BatchHeader]) -> str:
    """Final batches say their offsets themselves; only compaction leaves gaps."""
    is_dense = row.base_offset >= partition.cleaned_to
    end = row.base_offset
    for header in headers:
        base = header.base_offset
        if base < end or (is_dense and base != end):
            return f"a batch bears the offset {base} where {end} comes next"
        epoch = partition.epoch_at(base)
        if header.partition_leader_epoch != epoch:
            has = header.partition_leader_epoch
            return f"the batch at offset {base} bears leader epoch {has}, not {epoch}"
        end = header.last_offset + 1
    return (
        _differs(row, end) if end > row.end_offset or (is_dense and end != row.end_offset) else ""
    )


def _differs(row: Row, end: int) -> str:
    return f"its batches end at offset {end}, the cluster log says {row.end_offset}"
