"""Plans a read: the bytes that hold the batches from a given offset on, and what they must contain.

Adjacent rows of one object form one run and are read together. A segment is a run by itself: its
index gives the position to start from. The `expect_*` functions turn rows and runs into the
expectations that `records/scan` checks batches against.

`batches_of` reads an extent in steps, for code that passes through it once: the layout of a segment
without an index, compaction, recovery, and the verification of an import.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.formats.segment import FOOTER_BYTES, HEADER_BYTES
from rookery.log.read.tail import Key
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.expectation import EpochAt, Expectation, ExpectedExtent, OffsetRule
from rookery.records.scan import Scan, Scanner, too_short
from rookery.wire.buffer import Buffer

# Minimum size of a first read: most batches are smaller, and the rest is cached afterwards.
FIRST_BYTES: Final = 64 * 1024
MOST_OFFSETS: Final = (1 << 31) - 1
"""The most offsets that one batch can cover."""
FAR: Final = (1 << 63) - 1
"""Greater than every offset."""


class ReadMark(NamedTuple):
    """The position of the batch at an offset, and the number of sequential reads that led there."""

    object_id: int
    position: int
    streak: int = 0


class ReadRun(NamedTuple):
    """Contiguous bytes and the rows that they belong to."""

    object_id: int
    position: int
    size: int
    base_offset: int
    """The offset of the first batch, or the lowest that it may have if there are gaps."""
    rows: list[Row]
    is_dense: bool
    """Whether every offset must be present."""

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.position + self.size

    @property
    def is_final(self) -> bool:
        """Whether the bytes contain offsets, epochs and times."""
        return self.rows[0].is_final

    @property
    def is_segment(self) -> bool:
        """Whether the run is a part of a segment."""
        return self.rows[0].is_segment

    def longer(self) -> ReadRun:
        """Return the same run, extended so that it must contain the first batch requested.

        That batch is in the first row, unless batches may be missing.
        """
        _, end = body(self.rows[0 if self.is_dense else -1])
        return self._replace(size=max(end - self.position, self.size))


def plan(
    partition: Partition, offset: int, max_bytes: int, mark: ReadMark | None, until: int = FAR
) -> list[ReadRun]:
    """Plan reads of about `max_bytes` from an offset on; only rows that begin before `until`."""
    runs: list[ReadRun] = []
    index = partition.row_of(offset)
    left = _least(partition, index, max_bytes)
    while index < len(partition.base_offsets) and left > 0:
        row = partition.row(index)
        if row.base_offset >= until:
            break
        if runs and left < min(row.size, max_bytes // 8):
            break  # hardly a batch would fit, and most of the read would be wasted
        index += 1
        run = _run(partition, row, left)
        if not runs and mark is not None:
            run = _start_at_mark(run, mark, offset, left)
        left -= run.size
        if runs and _joins(runs[-1], run):
            before = runs[-1]
            runs[-1] = before._replace(size=before.size + run.size, rows=[*before.rows, *run.rows])
        else:
            runs.append(run)
    return runs


def body(row: Row) -> tuple[int, int]:
    """Return the positions in the object where a row's batches begin and end."""
    end = row.position + row.size
    if row.is_segment and row.position < HEADER_BYTES:
        return HEADER_BYTES, end - FOOTER_BYTES
    return row.position, end


def gap(base_offset: int, end_offset: int, time_ms: int) -> bytes:
    """Return a batch without records over some offsets, as compaction leaves them in Kafka.

    It leads readers over offsets without records. Otherwise they would request them forever.
    """
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=batches.MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=end_offset - base_offset - 1,
        base_timestamp=time_ms,
        max_timestamp=time_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return batches.seal(header, b"")


def _least(partition: Partition, index: int, max_bytes: int) -> int:
    """Return the minimum bytes to read; a segment has an index, so no more than requested."""
    kinds = partition.kinds
    is_segment = index < len(kinds) and kinds[index] & RowKind.SEGMENT
    return max(max_bytes, 1 if is_segment else FIRST_BYTES)


def _run(partition: Partition, row: Row, left: int) -> ReadRun:
    if row.is_lost:
        # Its bytes are known to be lost: an empty batch leads readers over the gap.
        row = row._replace(position=row.base_offset, size=batches.HEADER_SIZE, kind=0)
    begin, end = body(row)
    # Only compaction creates gaps.
    is_dense = not row.is_final or row.base_offset >= partition.cleaned_to
    return ReadRun(row.object_id, begin, min(end - begin, left), row.base_offset, [row], is_dense)


def _joins(run: ReadRun, other: ReadRun) -> bool:
    return (
        run.object_id == other.object_id
        and run.end == other.position
        and (run.is_final, run.is_dense) == (other.is_final, other.is_dense)
        and not run.is_segment
        and not other.is_segment
    )


def _start_at_mark(run: ReadRun, mark: ReadMark, offset: int, left: int) -> ReadRun:
    """Start within the row, at the known position of the batch with the offset."""
    begin, end = body(run.rows[0])
    # There may be a gap after the last batch of a row. Then the following row is read in the same
    # call.
    is_within = begin <= mark.position < end or (not run.is_dense and mark.position == end)
    if mark.object_id != run.object_id or not is_within:
        return run  # the row has been moved since
    size = min(end - mark.position, left)
    return run._replace(position=mark.position, size=size, base_offset=offset)


ReadPart = Callable[[int, int], Awaitable[Buffer]]
"""Reads (position, size) of one object."""


def name(key: Key) -> str:
    """Return the name of a partition where only its id is known."""
    return f"topic {key[0].hex()} partition {key[1]}"


def expect_run(run: ReadRun, epoch_at: EpochAt) -> Expectation:
    """Expect the batches of a run, from its first byte on."""
    rule = _rule(is_final=run.is_final, is_dense=run.is_dense)
    is_exact = rule is not OffsetRule.SPARSE
    return Expectation(run.rows, rule, run.position, run.base_offset, is_exact, epoch_at)


def expect_row(partition: Partition, row: Row, *, has_epochs: bool = False) -> Expectation:
    """Expect the batches of a row that is not a segment.

    Args:
        partition: the partition of the row.
        row: the location of the batches.
        has_epochs: whether to check the leader epochs in final batches.
    """
    # Only compaction leaves gaps.
    rule = _rule(is_final=row.is_final, is_dense=row.base_offset >= partition.cleaned_to)
    is_exact = rule is not OffsetRule.SPARSE
    epoch_at = partition.epoch_at if has_epochs else None
    return Expectation((row,), rule, row.position, row.base_offset, is_exact, epoch_at)


def expect_body(row: Row, rule: OffsetRule) -> Expectation:
    """Expect the batches of a row that may be a segment, without header and footer."""
    begin, end = body(row)
    extent = ExpectedExtent(row.base_offset, row.end_offset, begin, end - begin)
    return Expectation.of(extent, rule)


async def batches_of(read: ReadPart, expected: Expectation, step: int) -> AsyncIterator[Scan]:
    """Read an extent in steps and scan it; the last scan has the damage, if there is any.

    Raises:
        Corrupt, MissingObject, Unavailable: as `read`.
    """
    scanner = Scanner(expected)
    position, end = expected.position, expected.end
    while position < end:
        size = min(step, end - position)
        data = await read(position, size)
        for scan in scanner.feed(data):
            yield scan
            if scan.damage is not None:
                return
        position += len(data)
        if len(data) < size:
            left = scanner.expected
            damage = too_short(left.position, left.base_offset, end - position)
            yield Scan(memoryview(b""), [], 0, left.base_offset, damage)
            return


def _rule(*, is_final: bool, is_dense: bool) -> OffsetRule:
    if not is_final:
        return OffsetRule.ASSIGNED
    return OffsetRule.DENSE if is_dense else OffsetRule.SPARSE
