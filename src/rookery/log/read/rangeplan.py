"""Plans reads: which rows of which objects are read, and how they are divided among tasks.

Plans come from the state, never from a listing. A planned range carries everything a reader needs,
so it can be read without the cluster log. If an object was deleted in the meantime, the reader
plans again.

    offset ranges ──► rows (segments cut by their index) ──► tasks of about the same size
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from rookery.cluster.state import aborts
from rookery.cluster.state.objects import SegmentName
from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.state import State
from rookery.formats.layout import SegmentBlock
from rookery.log.read.runs import body
from rookery.log.read.segmentindex import Layouts
from rookery.model.uuid import uuid_text

MIB: Final = 1024 * 1024
# Smaller reads do not justify another task; larger reads take too long.
_SMALL_TASK: Final = 16 * MIB
_TASK: Final = 128 * MIB
# An index is read if it saves at least this many bytes.
_WORTH_AN_INDEX: Final = 1 * MIB
_TWO: Final = 2
_LOST: Final = "its bytes are lost"


class OffsetRange(NamedTuple):
    """Wanted offsets of one partition: from `begin` to before `end`."""

    topic_id: bytes
    partition: int
    begin: int
    end: int


class Gap(NamedTuple):
    """Wanted offsets that no longer exist."""

    topic: str
    partition: int
    begin: int
    end: int
    reason: str

    def __str__(self) -> str:
        offsets = (
            f"{self.begin} to {self.end - 1}" if self.end > self.begin else f"from {self.begin}"
        )
        return f"{self.topic}-{self.partition} offsets {offsets}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Offsets of one partition, with everything that a reader needs to read them."""

    topic: str
    topic_id: bytes
    partition: int
    begin: int
    end: int
    rows: tuple[Row, ...]
    """The location of the bytes, without markers and lost rows."""
    segments: tuple[tuple[int, SegmentName], ...]
    """The names of the segments among the objects."""
    epochs: tuple[tuple[int, int], ...]
    cleaned_to: int
    aborted: tuple[tuple[int, int, int], ...]
    """For each aborted transaction: producer id, first offset, and the offset of its marker."""
    is_committed: bool = True
    """Whether records of aborted transactions are left out."""

    @property
    def size(self) -> int:
        """The number of bytes to read."""
        return sum(row.size for row in self.rows)

    @property
    def offsets(self) -> OffsetRange:
        """The wanted offsets, without their location."""
        return OffsetRange(self.topic_id, self.partition, self.begin, self.end)

    def cut(
        self, rows: Sequence[Row], rest: Sequence[Row]
    ) -> tuple[PlannedRange, PlannedRange | None]:
        """Return the part with the first rows, and the part with the rest if there is one."""
        if not rest:
            return self, None
        middle = rest[0].base_offset
        head = replace(self, end=middle, rows=tuple(rows))
        return head, replace(self, begin=middle, rows=tuple(rest))

    def split(self, max_records: int) -> list[PlannedRange]:
        """Return parts of at most `max_records` offsets each; several parts can share a row."""
        if not max_records or self.end - self.begin <= max_records:
            return [self]
        return [
            self._of(begin, min(begin + max_records, self.end))
            for begin in range(self.begin, self.end, max_records)
        ]

    def _of(self, begin: int, end: int) -> PlannedRange:
        first = bisect_right(self.rows, begin, key=lambda row: row.end_offset)
        stop = bisect_left(self.rows, end, key=lambda row: row.base_offset)
        return replace(self, begin=begin, end=end, rows=self.rows[first:stop])


@dataclass(frozen=True, slots=True)
class TaskSize:
    """How much one task reads."""

    cores: int = 2
    min_tasks: int = 0
    """The minimum number of tasks, if there is enough to read."""
    max_records: int = 0
    """The maximum number of offsets in a task; 0: no limit."""

    def tasks(self, size: int) -> int:
        """Return the number of tasks for `size` bytes."""
        count = min(-(-size // _SMALL_TASK), self.cores)
        if size > self.cores * _TASK:
            count = -(-size // _TASK)
            count += -count % self.cores
        return max(count, self.min_tasks, 1)


class PlannableLog(Protocol):
    """The parts of an open log that a plan needs."""

    @property
    def state(self) -> State:
        """The state as of now; a later barrier may replace it."""

    @property
    def layouts(self) -> Layouts:
        """The indexes of segments."""


class ReadPlanner:
    """Plans reads from a log's state."""

    def __init__(self, log: PlannableLog, *, is_committed: bool = True) -> None:
        """Plan for readers of committed records, or of all records."""
        self._log = log
        self._is_committed = is_committed
        self.gaps: list[Gap] = []
        """Wanted offsets that do not exist, over all plans so far."""

    async def plan(self, wanted: Sequence[OffsetRange], time_ms: int = -1) -> list[PlannedRange]:
        """Find the rows of each range; rows that are certainly older than `time_ms` are left out.

        Raises:
            Corrupt, Conflict, Unavailable: an index cannot be read.
        """
        plans = [self._find(offsets, time_ms) for offsets in wanted if offsets.begin < offsets.end]
        return [await self._narrow(planned, time_ms) for planned in plans if planned is not None]

    async def tasks(
        self, ranges: Sequence[PlannedRange], cutting: TaskSize
    ) -> list[list[PlannedRange]]:
        """Distribute the ranges among tasks; a partition's offsets increase from task to task.

        Raises:
            Corrupt, Conflict, Unavailable: an index cannot be read.
        """
        size = sum(planned.size for planned in ranges)
        sharing = _TaskFiller(-(-size // cutting.tasks(size)), cutting.max_records)
        for whole in ranges:
            for part in whole.split(cutting.max_records):
                rest: PlannedRange | None = part
                while rest is not None:
                    head, rest = await self._cut(rest, sharing.room(rest), sharing.slack)
                    sharing.add(head)
        return sharing.tasks

    def _find(self, wanted: OffsetRange, time_ms: int) -> PlannedRange | None:
        state = self._log.state
        topic = state.topics.by_id.get(wanted.topic_id)
        if topic is None or wanted.partition >= len(topic.partitions):
            name, reason = uuid_text(wanted.topic_id), "the topic was deleted"
            self.gaps.append(Gap(name, wanted.partition, wanted.begin, wanted.end, reason))
            return None
        partition = topic.partitions[wanted.partition]
        begin, end = self._clip(topic.name, partition, wanted)
        if begin >= end:
            return None
        rows = rows_of(partition, begin, end)
        for row in rows:
            if row.is_lost:
                gap = Gap(topic.name, partition.index, row.base_offset, row.end_offset, _LOST)
                self.gaps.append(gap)
        rows = [row for row in rows if row.object_id and row.max_timestamp >= time_ms]
        return PlannedRange(
            topic=topic.name,
            topic_id=topic.id,
            partition=partition.index,
            begin=begin,
            end=end,
            rows=tuple(rows),
            segments=_segments(state, rows),
            epochs=tuple(partition.epochs),
            cleaned_to=partition.cleaned_to,
            aborted=self._find_aborted(partition, begin, end),
            is_committed=self._is_committed,
        )

    def _clip(self, topic: str, partition: Partition, wanted: OffsetRange) -> tuple[int, int]:
        """Clip the wanted offsets to the log start and the log end."""
        start, stop = partition.log_start, partition.next_offset
        begin, end = min(max(wanted.begin, start), wanted.end), min(wanted.end, stop)
        if begin > wanted.begin:
            reason = f"the log begins at {start}"
            self.gaps.append(Gap(topic, partition.index, wanted.begin, begin, reason))
        if end < wanted.end:
            reason = f"the log ends at {stop}"
            self.gaps.append(Gap(topic, partition.index, max(begin, end), wanted.end, reason))
        return begin, end

    def _find_aborted(
        self, partition: Partition, begin: int, end: int
    ) -> tuple[tuple[int, int, int], ...]:
        if not self._is_committed:
            return ()
        aborted = aborts.within(partition.aborted, begin, end)
        return tuple(
            (transaction.producer_id, transaction.first_offset, transaction.last_offset)
            for transaction in aborted
        )

    async def _narrow(self, planned: PlannedRange, time_ms: int) -> PlannedRange:
        """Remove the blocks that the segments' indexes exclude."""
        rows: list[Row] = []
        for row in planned.rows:
            if row.is_segment and _is_worth_looking(row, planned, time_ms):
                blocks = (await self._log.layouts.get(row)).blocks
                rows += _within(row, blocks, planned, time_ms)
            else:
                rows.append(row)
        return replace(planned, rows=tuple(rows))

    async def _cut(
        self, planned: PlannedRange, room: int, slack: int
    ) -> tuple[PlannedRange, PlannedRange | None]:
        """Cut off a part of about `room` bytes; segments are cut by their index."""
        size = 0
        for index, row in enumerate(planned.rows):
            if row.is_segment and size + row.size - room > slack:
                blocks = (await self._log.layouts.get(row)).blocks
                if (parts := _parts(row, blocks, room - size)) is not None:
                    head, rest = parts
                    return planned.cut(
                        (*planned.rows[:index], head), (rest, *planned.rows[index + 1 :])
                    )
            size += row.size
            if size >= room:
                return planned.cut(planned.rows[: index + 1], planned.rows[index + 1 :])
        return planned, None


class _TaskFiller:
    """Tasks, filled one after another."""

    def __init__(self, target: int, max_records: int) -> None:
        self.tasks: list[list[PlannedRange]] = []
        self._target = max(target, 1)
        self._max_records = max_records
        self.slack = min(self._target // 8, _WORTH_AN_INDEX)
        """The number of bytes by which a task may exceed its share."""
        self._size = self._records = 0

    def room(self, planned: PlannedRange) -> int:
        """Return how many bytes of a range go into the next task."""
        is_full = self._size >= self._target or (
            self._max_records and self._records + planned.end - planned.begin > self._max_records
        )
        if is_full or not self.tasks:
            self.tasks.append([])
            self._size = self._records = 0
        return self._target - self._size

    def add(self, planned: PlannedRange) -> None:
        """Add a range to the current task."""
        self.tasks[-1].append(planned)
        self._size += planned.size
        self._records += planned.end - planned.begin


def rows_of(partition: Partition, begin: int, end: int) -> list[Row]:
    """Return the rows that contain offsets from `begin` to before `end`."""
    first = partition.row_of(begin)
    stop = bisect_left(partition.base_offsets, end)
    rows = (partition.row(index) for index in range(first, stop))
    return [row for row in rows if row.end_offset > begin]


def _segments(state: State, rows: Sequence[Row]) -> tuple[tuple[int, SegmentName], ...]:
    names = state.objects.segments
    return tuple((row.object_id, names[row.object_id]) for row in rows if row.object_id in names)


def _is_worth_looking(row: Row, planned: PlannedRange, time_ms: int) -> bool:
    """Whether a large part of a segment is not wanted."""
    unwanted = max(planned.begin - row.base_offset, 0) + max(row.end_offset - planned.end, 0)
    share = unwanted / (row.end_offset - row.base_offset)
    return share * row.size >= _WORTH_AN_INDEX or (time_ms >= 0 and row.size >= _WORTH_AN_INDEX)


def _within(
    row: Row, blocks: Sequence[SegmentBlock], planned: PlannedRange, time_ms: int
) -> tuple[Row, ...]:
    """Return the wanted blocks of a segment, with adjacent blocks joined into one row."""
    return join_rows(
        part
        for part in block_rows(row, blocks)
        if part.end_offset > planned.begin
        and part.base_offset < planned.end
        and part.max_timestamp >= time_ms
    )


def join_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return rows, with adjacent parts of a segment joined into one."""
    joined: list[Row] = []
    for row in rows:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.is_segment
            and last.object_id == row.object_id
            and last.position + last.size == row.position
        ):
            joined[-1] = _join(last, row)
        else:
            joined.append(row)
    return tuple(joined)


def _parts(row: Row, blocks: Sequence[SegmentBlock], size: int) -> tuple[Row, Row] | None:
    """Cut a segment in two, the first of about `size` bytes; None if it has only one block."""
    parts = list(block_rows(row, blocks))
    if len(parts) < _TWO:
        return None
    begin = parts[0].position
    after = bisect_left(parts, begin + size, 1, len(parts) - 1, key=lambda part: part.position)
    return _join(parts[0], parts[after - 1]), _join(parts[after], parts[-1])


def block_rows(row: Row, blocks: Sequence[SegmentBlock]) -> Iterator[Row]:
    """Return the blocks of a segment, or of a part of one, as separate rows."""
    begin, end = body(row)
    within = [block for block in blocks if begin <= block.position < end]
    for index, block in enumerate(within):
        is_first, is_last = not index, index == len(within) - 1
        yield row._replace(
            base_offset=row.base_offset if is_first else block.offset,
            end_offset=row.end_offset if is_last else within[index + 1].offset,
            position=block.position,
            size=block.size,
            max_timestamp=row.max_timestamp if block.max_timestamp is None else block.max_timestamp,
        )


def _join(row: Row, other: Row) -> Row:
    """Join two parts of a segment, and all bytes between them, into one row."""
    return row._replace(
        end_offset=other.end_offset,
        size=other.position + other.size - row.position,
        max_timestamp=max(row.max_timestamp, other.max_timestamp),
    )
