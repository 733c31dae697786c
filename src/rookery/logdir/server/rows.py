"""Converts files to rows of a partition, which locate batches in the state.

A row is a piece of a `.log` file: its batches have their offsets, so it is final. The state's
provisional rows for new batches are replaced as soon as the batches are on disk. That changes no
outcome: only this directory uses the locations.
"""

from __future__ import annotations

from collections.abc import Iterable

from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.cluster.state.state import State
from rookery.logdir.server.openedsegment import PIECE_BYTES, OpenedSegment
from rookery.logdir.writer.appendlog import AppendPosition


def rows_of(opened: OpenedSegment, object_id: int, end_offset: int) -> list[Row]:
    """Return the rows of a segment that ends at `end_offset`."""
    pieces = opened.pieces
    if not pieces:
        return []
    ends = [(piece.base_offset, piece.position) for piece in pieces[1:]]
    return [
        Row(
            piece.base_offset,
            end,
            object_id,
            piece.position,
            position - piece.position,
            piece.max_timestamp,
            RowKind.FINAL,
        )
        for piece, (end, position) in zip(pieces, [*ends, (end_offset, opened.size)], strict=True)
    ]


def add_rows(state: State, partition: Partition, rows: Iterable[Row]) -> None:
    """Append rows to a partition."""
    for row in rows:
        for column, value in zip(
            partition.columns,
            (row.base_offset, row.object_id, row.position, row.size, row.max_timestamp, row.kind),
            strict=True,
        ):
            column.append(value)
        partition.size_bytes += row.size
        state.objects.add_row(row.object_id)


def place(state: State, topic_id: bytes, index: int, placed: AppendPosition) -> None:
    """Set the location of written batches; new offsets become visible."""
    partition = state.topics.partition(topic_id, index)
    if partition is None:
        return  # the same entry deleted its topic
    _drop_from(state, partition, placed.base_offset)
    partition.next_offset = max(partition.next_offset, placed.end_offset)
    if placed.base_offset < partition.log_start:
        return
    last = len(partition.sizes) - 1
    if (
        last >= 0
        and partition.kinds[last] == RowKind.FINAL
        and partition.objects[last] == placed.object_id
        and partition.positions[last] + partition.sizes[last] == placed.position
        and partition.sizes[last] + placed.size <= PIECE_BYTES
    ):
        partition.sizes[last] += placed.size
        partition.times[last] = max(partition.times[last], placed.max_timestamp)
        partition.size_bytes += placed.size
        return
    row = Row(
        placed.base_offset,
        placed.end_offset,
        placed.object_id,
        placed.position,
        placed.size,
        placed.max_timestamp,
        RowKind.FINAL,
    )
    add_rows(state, partition, [row])


def _drop_from(state: State, partition: Partition, base_offset: int) -> None:
    """Remove the rows from an offset on: their locations were provisional."""
    bases = partition.base_offsets
    while bases and bases[-1] >= base_offset:
        partition.size_bytes -= partition.sizes[-1]
        state.objects.free([partition.objects[-1]])
        for column in partition.columns:
            column.pop()
