"""Rows to final bytes: nothing damaged passes, and neighbouring rows are read together."""

from __future__ import annotations

import os

import pytest

from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.errors import Corrupt, Unavailable
from rookery.log.maintain.refine import RefinedRow, refine
from rookery.records import batches, recordcodec
from rookery.records.batches import TimestampType
from rookery.records.recordcodec import Record, build

OBJECT = 5 << 24
KIB = 1024


class Source:
    """An object in memory that counts what is read of it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.reads: list[tuple[int, int]] = []
        self.partition = Partition(0)
        self.partition.epochs = [(0, 0), (3, 5), (4, 1000)]

    async def read(self, object_id: int, position: int, size: int) -> bytes:
        assert object_id == OBJECT
        self.reads.append((position, size))
        return bytes(self.data[position : position + size])

    def add(
        self, base: int, *counts: int, size: int = 10, kind: int = 0, gap: int = 0, time: int = 77
    ) -> RefinedRow:
        """Write a row of batches; final ones get offsets and epochs."""
        self.data += bytes(gap)
        position, offset = len(self.data), base
        for count in counts:
            batch = bytearray(build([Record(b"k", os.urandom(size), (), 5) for _ in range(count)]))
            if kind & RowKind.FINAL:
                batches.stamp_into(batch, offset, self.partition.epoch_at(offset))
            offset += count
            self.data += batch
        row = Row(base, offset, OBJECT, position, len(self.data) - position, time, kind)
        return RefinedRow(self.partition, row)


def offsets(refined: RefinedRow) -> list[int]:
    data = b"".join(refined.parts)
    assert len(data) == refined.size
    headers = batches.verify(data)
    for header, parts in zip(headers, refined.batches(), strict=True):
        assert data[header.position : header.end] == b"".join(parts)
        assert header.partition_leader_epoch == refined.partition.epoch_at(header.base_offset)
    return [record.offset for record in recordcodec.read_all(data)]


@pytest.mark.parametrize("size", [10, 20 * KIB])
@pytest.mark.parametrize("kind", [0, RowKind.FINAL])
async def test_batches_of_any_size_are_stamped(size: int, kind: int) -> None:
    source = Source()
    refined = source.add(3, 1, 2, 3, size=size, kind=kind)
    await refine([refined], source.read)
    assert refined.error is None
    assert offsets(refined) == list(range(3, 9))


@pytest.mark.parametrize("size", [10, 20 * KIB])
async def test_append_times_are_written_into_batches(size: int) -> None:
    source = Source()
    refined = source.add(0, 2, 2, size=size, kind=RowKind.APPEND_TIME)
    await refine([refined], source.read)
    assert offsets(refined) == [0, 1, 2, 3]
    for header in batches.verify(b"".join(refined.parts)):
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert header.max_timestamp == 77


async def test_lost_bytes_become_an_empty_batch() -> None:
    source = Source()
    refined = RefinedRow(source.partition, Row(7, 7 + 2**31, 0, 0, 0, 9, 0))
    await refine([refined], source.read)
    assert not source.reads
    headers = batches.verify(b"".join(refined.parts))
    assert [(header.base_offset, header.last_offset) for header in headers] == [
        (7, 2**31 + 5),
        (2**31 + 6, 2**31 + 6),
    ]
    assert offsets(refined) == []


@pytest.mark.parametrize("change", [{"end_offset": 4}, {"end_offset": 6}])
@pytest.mark.parametrize("kind", [0, RowKind.FINAL])
async def test_offsets_must_match_those_of_the_row(kind: int, change: dict[str, int]) -> None:
    source = Source()
    refined = source.add(2, 1, 2, kind=kind)
    wrong = RefinedRow(refined.partition, refined.row._replace(**change))
    await refine([wrong], source.read)
    assert isinstance(wrong.error, Corrupt)


async def test_gaps_are_accepted_only_after_compaction() -> None:
    source = Source()
    refined = source.add(2, 3, kind=RowKind.FINAL)
    gaping = RefinedRow(refined.partition, refined.row._replace(base_offset=0, end_offset=9))
    await refine([gaping], source.read)
    assert gaping.is_damaged
    source.partition.cleaned_to = 9
    gaping = RefinedRow(refined.partition, refined.row._replace(base_offset=0, end_offset=9))
    await refine([gaping], source.read)
    assert offsets(gaping) == [2, 3, 4]


async def test_nearby_rows_are_read_in_one_request() -> None:
    source = Source()
    rows = [source.add(n, 1, size=10 * KIB, gap=50 * KIB) for n in range(40)]
    far = source.add(40, 4, gap=300 * KIB)
    await refine([far, *reversed(rows)], source.read)
    assert len(source.reads) == 2
    assert [offset for row in (*rows, far) for offset in offsets(row)] == list(range(44))
    # Unneeded rows are not kept in memory.
    assert all(isinstance(part, bytearray) for row in rows for part in row.parts)


async def test_reads_are_bounded() -> None:
    source = Source()
    rows = [source.add(n, 1, size=1024 * KIB) for n in range(20)]
    await refine(rows, source.read)
    assert max(size for _, size in source.reads) <= 8 * 1024 * KIB
    assert len(source.reads) == 3


async def test_damage_does_not_block_neighbouring_rows() -> None:
    source = Source()
    rows = [source.add(n, 1) for n in range(5)]
    source.data[rows[2].row.position + 70] ^= 1
    await refine(rows, source.read)
    assert [row.error is None for row in rows] == [True, True, False, True, True]
    assert len(source.reads) == 1


async def test_truncated_object_is_damaged() -> None:
    source = Source()
    rows = [source.add(n, 1) for n in range(3)]
    del source.data[-1]
    await refine(rows, source.read)
    assert [row.is_damaged for row in rows] == [False, False, True]


async def test_failed_read_is_retried_row_by_row() -> None:
    source = Source()
    rows = [source.add(n, 1) for n in range(3)]
    bad = rows[1].row.position

    async def failing(object_id: int, position: int, size: int) -> bytes:
        if position <= bad < position + size:
            raise Unavailable("that part of the disk does not answer")
        return await source.read(object_id, position, size)

    await refine(rows, failing)
    assert [row.error is None for row in rows] == [True, False, True]
    assert not rows[1].is_damaged
