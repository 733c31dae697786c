"""Files as the rows of a partition: what the state says of where batches lie.

A row is a piece of a `.log` file: its batches bear their offsets, so it is final. What the state
puts down for new batches, which are on their way to the disk, is replaced by rows as soon as they
are there. That changes no outcome: where bytes lie is this directory's own affair.
"""

from __future__ import annotations

from collections.abc import Iterable

from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.cluster.state.state import State
from rookery.logdir.serving.openedsegment import PIECE_BYTES, OpenedSegment
from rookery.logdir.writing.appendlog import AppendPosition


def rows_of(opened: OpenedSegment, object_id: int, end_offset: int) -> list[Row]:
    """Return the rows of a segment whose offsets end before the next one's."""
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
    """Put rows behind those that a partition has."""
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
    """Say of batches that were written where they lie; offsets that are new begin to count."""
    partition = state.topics.partition(topic_id, index)
    if partition is None:
        return  # its topic was deleted by the same entry
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
    """Forget the rows from an offset on: they named places that were never real."""
    bases = partition.base_offsets
    while bases and bases[-1] >= base_offset:
        partition.size_bytes -= partition.sizes[-1]
        state.objects.free([partition.objects[-1]])
        for column in partition.columns:
            column.pop()
