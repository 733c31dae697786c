"""Gives batches what they were sent without: offsets, leader epochs and append times."""

from __future__ import annotations

from typing import Final

from rookery.cluster.state.partition import Partition
from rookery.log.checks import Found
from rookery.records import batch as batches
from rookery.wire.buffer import Buffer

# Batches that are this long on average go out as views of the cache; shorter ones are copied,
# because a socket takes many small parts more slowly than one copy is made.
_COPY_BELOW: Final = 16 * 1024


def stamped(partition: Partition, data: Buffer, found: list[Found]) -> list[Buffer]:
    """Give the batches their offsets: in place if the bytes are ours, else around views of them."""
    begin, end = found[0].header.position, found[-1].header.end
    if not isinstance(data, bytearray):
        if end - begin >= _COPY_BELOW * len(found):
            return _around(partition, data, found)
        data = bytearray(data)
    for header, base, _, append_time in found:
        epoch = partition.epoch_at(base)
        if append_time >= 0:
            new = header.appended_at(append_time)
            batches.restamp_into(data, new._replace(base_offset=base, partition_leader_epoch=epoch))
        else:
            batches.stamp_into(data, base, epoch, header.position)
    return [memoryview(data)[begin:end]]


def _around(partition: Partition, data: Buffer, found: list[Found]) -> list[Buffer]:
    parts: list[Buffer] = []
    view = memoryview(data)
    for header, base, _, append_time in found:
        epoch = partition.epoch_at(base)
        if append_time >= 0:
            new = header.appended_at(append_time)._replace(
                base_offset=base, partition_leader_epoch=epoch
            )
            parts += batches.restamp(view, new)
        else:
            parts += batches.stamp(view[header.position : header.end], base, epoch)
    return parts
