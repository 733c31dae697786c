"""Checks the state for contradictions: holes, overlaps, wrong counts. It reads no objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.log.check.fault import FaultKind, FaultRange, LogFault


def check_state(state: State) -> Iterator[LogFault]:
    """Check all rows against each other, and the counts of rows against the rows."""
    counted: Counter[int] = Counter()
    for topic in state.topics:
        for partition in topic.partitions:
            counted.update(partition.objects)
            yield from check_partition(state, topic, partition)
    del counted[0]
    counted.update(list(state.sinks.staged))  # held until they are committed
    yield from _check_counts(state, counted)


def check_partition(state: State, topic: Topic, partition: Partition) -> Iterator[LogFault]:
    """Check the rows of one partition."""
    name = f"{topic.name}-{partition.index}"
    begin = partition.log_start
    for index in range(len(partition.base_offsets)):
        row = partition.row(index)
        where = FaultRange(topic.name, partition.index, row.base_offset, row.end_offset)
        if index == 0 and row.base_offset > begin:
            yield _hole(name, where._replace(base_offset=begin, end_offset=row.base_offset))
        text = _contradiction(state, topic, partition, row)
        if text:
            yield LogFault(FaultKind.OFFSETS, name, text, where)
        elif row.is_lost:
            yield LogFault(
                FaultKind.LOST, name, "these records were lost, and are known to be", where
            )
    if not partition.base_offsets and begin < partition.next_offset:
        yield _hole(name, FaultRange(topic.name, partition.index, begin, partition.next_offset))
    if begin > partition.next_offset:
        where = FaultRange(topic.name, partition.index, partition.next_offset, begin)
        yield LogFault(FaultKind.OFFSETS, name, "the log begins after its end", where)


def _hole(name: str, where: FaultRange) -> LogFault:
    return LogFault(FaultKind.OFFSETS, name, "no row holds these offsets", where)


def _contradiction(state: State, topic: Topic, partition: Partition, row: Row) -> str:
    """Return the text of a fault of a row; empty if there is none."""
    if row.end_offset <= row.base_offset:
        return f"the row at offset {row.base_offset} overlaps the next, at {row.end_offset}"
    if not row.object_id:
        return ""
    if row.size <= 0 or row.position < 0:
        return f"a row cannot have {row.size} bytes from {row.position} on"
    if row.object_id in state.objects.condemned:
        return f"it is in object {row.object_id}, which is condemned"
    segment = state.objects.segments.get(row.object_id)
    expected = (topic.name, partition.index, row.base_offset) if row.is_segment else None
    if (segment[:3] if segment else None) != expected:
        return f"object {row.object_id} is known as {segment}, and its row says {expected}"
    return ""


def _check_counts(state: State, counted: Counter[int]) -> Iterator[LogFault]:
    known = state.objects.rows
    for object_id in sorted(set(counted) | set(known)):
        if counted[object_id] != known.get(object_id, 0):
            yield LogFault(
                FaultKind.OFFSETS,
                f"object {object_id}",
                f"{counted[object_id]} rows are in it, but {known.get(object_id, 0)} are counted",
            )
