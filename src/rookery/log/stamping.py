"""Gives batches what they were sent without: offsets, leader epochs and append times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

from rookery.cluster.state.partition import Partition
from rookery.log.runs import Run
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader
from rookery.wire.buffer import Buffer

# Batches that are this long on average go out as views of the cache; shorter ones are copied,
# because a socket takes many small parts more slowly than one copy is made.
_COPY_BELOW: Final = 16 * 1024


def stamped(
    partition: Partition, run: Run, data: Buffer, headers: list[BatchHeader]
) -> list[Buffer]:
    """Write offsets into the batches of a run: in place if the bytes are ours, else around views.

    Args:
        partition: knows the leader epochs.
        run: knows which batches have the time at which they were appended.
        data: the bytes of the run.
        headers: some of its batches, with the offsets that they get.
    """
    begin, end = headers[0].position, headers[-1].end
    is_around = not isinstance(data, bytearray) and end - begin >= _COPY_BELOW * len(headers)
    if not is_around and not isinstance(data, bytearray):
        data = bytearray(data)
    view = memoryview(data)
    parts: list[Buffer] = []
    for header, append_time in zip(headers, _append_times(run, headers), strict=False):
        base = header.base_offset
        epoch = partition.epoch_at(base)
        if append_time >= 0:
            new = header.appended_at(append_time)._replace(partition_leader_epoch=epoch)
            if is_around:
                parts += batches.restamp(view, new)
            else:
                batches.restamp_into(view, new)
        elif is_around:
            parts += batches.stamp(view[header.position : header.end], base, epoch)
        else:
            batches.stamp_into(view, base, epoch, header.position)
    return parts if is_around else [view[begin:end]]


def _append_times(run: Run, headers: list[BatchHeader]) -> Iterable[int]:
    """Return the append time of each batch; -1 if its own times hold."""
    if not any(row.is_append_time for row in run.rows):
        return repeat(-1)
    return _row_times(run, headers)


def _row_times(run: Run, headers: list[BatchHeader]) -> Iterator[int]:
    rows = iter(run.rows)
    row = next(rows)
    for header in headers:
        while run.position + header.position >= row.position + row.size:
            row = next(rows)
        yield row.max_timestamp if row.is_append_time else -1
