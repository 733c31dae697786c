"""Builds the batches that end transactions from their rows, identically in every process.

Until it is rewritten, a marker exists only in the state.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.log.read.tail import Key, Tail
from rookery.model.control import ControlRecordType
from rookery.records import batches
from rookery.records.recordcodec import BatchSettings, build_marker

# The order of the cluster log decides how a transaction ends. There are no coordinators that an
# epoch would have to distinguish.
_COORDINATOR_EPOCH: Final = 0


def keep(tail: Tail, key: Key, partition: Partition) -> None:
    """Add the markers that follow the newest batches to the tail.

    Otherwise there would be a gap, and a sequential reader would find nothing in memory.
    """
    end = tail.end(key)
    if end is None:
        return
    bases = partition.base_offsets
    for index in range(bisect_left(bases, end), len(bases)):
        row = partition.row(index)
        if not row.is_marker or row.base_offset != end:
            return
        tail.add(key, row.base_offset, row.end_offset, memoryview(stamp_marker(partition, row)))
        end = row.end_offset


def stamp_marker(partition: Partition, row: Row) -> bytearray:
    """Return a marker as readers get it, with its leader epoch and timestamp type."""
    data = bytearray(marker(row))
    epoch = partition.epoch_at(row.base_offset)
    header = batches.parse(data)._replace(partition_leader_epoch=epoch)
    if row.is_append_time:
        header = header.with_append_time(row.max_timestamp)
    batches.restamp_into(data, header)
    return data


def marker(row: Row) -> bytes:
    """Return the control batch of a marker's row; its leader epoch is not set yet."""
    producer_id, epoch = row.producer
    settings = BatchSettings(
        base_offset=row.base_offset, producer_id=producer_id, producer_epoch=epoch
    )
    outcome = ControlRecordType.COMMIT if row.kind & RowKind.COMMIT else ControlRecordType.ABORT
    return build_marker(outcome, _COORDINATOR_EPOCH, settings, row.max_timestamp)
