"""The rows of a state by object; packed, because there may be millions."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.log.check.fault import FaultRange

_INDEX_BITS: Final = 32
_INDEX_MASK: Final = (1 << _INDEX_BITS) - 1


class OffsetSpan(NamedTuple):
    """Offsets of a partition, independent of rows."""

    topic_id: bytes
    partition: int
    base_offset: int
    end_offset: int


class PlacedRow(NamedTuple):
    """A row with its topic and partition."""

    topic: Topic
    partition: Partition
    row: Row

    @property
    def where(self) -> FaultRange:
        """The offsets of the row."""
        row = self.row
        return FaultRange(self.topic.name, self.partition.index, row.base_offset, row.end_offset)

    @property
    def span(self) -> OffsetSpan:
        """The offsets of the row, with the topic's id."""
        row = self.row
        return OffsetSpan(self.topic.id, self.partition.index, row.base_offset, row.end_offset)


class RowTable:
    """Some rows of one version of the state; valid until the state changes."""

    def __init__(self) -> None:
        self._partitions: list[tuple[Topic, Partition]] = []
        self._by_object: dict[int, array[int]] = {}

    @classmethod
    def of(cls, state: State, is_wanted: Callable[[int], bool] = bool) -> RowTable:
        """Take all rows that are in objects, or in objects of some kind."""
        table = cls()
        for topic in state.topics:
            for partition in topic.partitions:
                indexes = range(len(partition.base_offsets))
                table._add(
                    topic, partition, [i for i in indexes if is_wanted(partition.objects[i])]
                )
        return table

    @classmethod
    def within(cls, state: State, spans: Iterable[OffsetSpan]) -> RowTable:
        """Take the rows that overlap these offsets."""
        table = cls()
        for span in spans:
            partition = state.topics.partition(span.topic_id, span.partition)
            if partition is None or not partition.base_offsets:
                continue
            first = partition.row_of(span.base_offset)
            after = partition.row_of(max(span.end_offset - 1, span.base_offset)) + 1
            table._add(state.topics.by_id[span.topic_id], partition, range(first, after))
        return table

    @property
    def objects(self) -> list[int]:
        """The objects of the rows: entries first, and all in the order of writing."""
        return sorted(self._by_object, key=lambda object_id: (object_id > 0, abs(object_id)))

    def count(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self._by_object.values()))

    def in_object(self, object_id: int) -> list[PlacedRow]:
        """Return the rows in an object, in the order of their positions."""
        rows = [self._locate(packed) for packed in self._by_object.get(object_id, ())]
        return sorted(rows, key=lambda placed: placed.row.position)

    def _locate(self, packed: int) -> PlacedRow:
        topic, partition = self._partitions[packed >> _INDEX_BITS]
        return PlacedRow(topic, partition, partition.row(packed & _INDEX_MASK))

    def _add(self, topic: Topic, partition: Partition, indexes: Sequence[int]) -> None:
        number = len(self._partitions) << _INDEX_BITS
        self._partitions.append((topic, partition))
        for index in indexes:
            column = self._by_object.setdefault(partition.objects[index], array("q"))
            column.append(number | index)


def wheres(rows: Iterable[PlacedRow]) -> Iterator[FaultRange]:
    """Return the offsets of rows by partition, with consecutive ranges joined."""
    last: FaultRange | None = None
    for where in sorted(placed.where for placed in rows):
        if last and last[:2] == where[:2] and last.end_offset == where.base_offset:
            last = last._replace(end_offset=where.end_offset)
            continue
        if last:
            yield last
        last = where
    if last:
        yield last
