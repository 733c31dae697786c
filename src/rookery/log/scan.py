"""What the state expects of stored bytes, for `records/scan`: rows and runs to expectations.

`batches_of` reads an extent in steps for all that go through it once: the layout of a segment
without its index, compaction, recovery, and the check of an import.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from rookery.cluster.state.partition import Partition, Row
from rookery.log.runs import Run, body
from rookery.log.tail import Key
from rookery.records.expectation import EpochAt, Expectation, ExpectedExtent, OffsetRule
from rookery.records.scan import Scan, Scanner, too_short
from rookery.wire.buffer import Buffer

ReadPart = Callable[[int, int], Awaitable[Buffer]]
"""Reads (position, size) of one object."""


def name(key: Key) -> str:
    """Return what a partition is called where only its id is known."""
    return f"topic {key[0].hex()} partition {key[1]}"


def expect_run(run: Run, epoch_at: EpochAt) -> Expectation:
    """Expect the batches of a run, from its first byte on."""
    rule = _rule(is_final=run.is_final, is_dense=run.is_dense)
    is_exact = rule is not OffsetRule.SPARSE
    return Expectation(run.rows, rule, run.position, run.base_offset, is_exact, epoch_at)


def expect_row(partition: Partition, row: Row, *, has_epochs: bool = False) -> Expectation:
    """Expect the batches of a row that is no segment.

    Args:
        partition: the row's.
        row: where the batches are.
        has_epochs: whether to check the leader epochs that final batches carry.
    """
    # Only compaction leaves gaps.
    rule = _rule(is_final=row.is_final, is_dense=row.base_offset >= partition.cleaned_to)
    is_exact = rule is not OffsetRule.SPARSE
    epoch_at = partition.epoch_at if has_epochs else None
    return Expectation((row,), rule, row.position, row.base_offset, is_exact, epoch_at)


def expect_body(row: Row, rule: OffsetRule) -> Expectation:
    """Expect the batches of a row that may be a segment, whose ends are left out."""
    begin, end = body(row)
    extent = ExpectedExtent(row.base_offset, row.end_offset, begin, end - begin)
    return Expectation.of(extent, rule)


async def batches_of(read: ReadPart, expected: Expectation, step: int) -> AsyncIterator[Scan]:
    """Read an extent in steps, and scan it; the last scan has the damage, if there is any.

    Raises:
        Corrupt, Missing, Unavailable: as `read`.
    """
    scanner = Scanner(expected)
    position, end = expected.position, expected.end
    while position < end:
        size = min(step, end - position)
        data = await read(position, size)
        for found in scanner.feed(data):
            yield found
            if found.damage is not None:
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
