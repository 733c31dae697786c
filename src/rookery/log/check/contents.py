"""Checks whether bytes match their row; it reads nothing itself."""

from __future__ import annotations

from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt
from rookery.formats.manifest import read_head, write_head
from rookery.log.check.fault import FaultKind
from rookery.log.read.runs import expect_row
from rookery.records.policy import rewrite
from rookery.wire.buffer import Buffer


class RowError(Exception):
    """The bytes of a row are wrong."""

    def __init__(self, kind: FaultKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def check_row(partition: Partition, row: Row, data: Buffer) -> int:
    """Check the bytes of a row that is not a segment; return the number of records in them.

    Raises:
        RowError: something is wrong with them.
    """
    scan = rewrite(data, expect_row(partition, row, has_epochs=True))
    if scan.damage is not None:
        kind = FaultKind.SHORT if len(data) < row.size else FaultKind.CORRUPT
        raise RowError(kind, scan.damage.text)
    return scan.record_count


def check_head(data: bytes, object_id: int, size: int) -> str:
    """Check the head of an object of this size; return the text of a fault, empty if none."""
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
