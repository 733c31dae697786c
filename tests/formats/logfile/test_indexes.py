"""`.index`, `.timeindex`, `.txnindex`: bytes both ways, zeros after them, and look-ups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.formats.logfile.indexes import (
    Indexer,
    LoggedAbort,
    PositionEntry,
    TimeEntry,
    offset_before,
    pack_aborted,
    pack_positions,
    pack_times,
    parse_aborted,
    parse_positions,
    parse_times,
    position_of,
)
from rookery.records.batches import BatchHeader, parse
from rookery.records.recordcodec import BatchSettings, Record, build

POSITIONS = [PositionEntry(1010, 4200), PositionEntry(1025, 8500)]
TIMES = [TimeEntry(5000, 1010), TimeEntry(7000, 1024)]


def test_entries_are_read_with_and_without_trailing_zeros() -> None:
    for zeros in (0, 8, 5, 4096):
        data = pack_positions(POSITIONS, 1000) + bytes(zeros)
        assert parse_positions(data, 1000) == POSITIONS
        assert parse_times(pack_times(TIMES, 1000) + bytes(zeros), 1000) == TIMES


def test_index_bytes_equal_those_of_kafka() -> None:
    assert pack_positions(POSITIONS[:1], 1000) == bytes.fromhex("0000000a 00001068")
    assert pack_times(TIMES[:1], 1000) == bytes.fromhex("0000000000001388 0000000a")
    aborted = pack_aborted([LoggedAbort(1, 3, 5, 6)])
    # As Kafka 4.3 wrote them for the same transaction.
    assert aborted == bytes.fromhex(
        "0000 0000000000000001 0000000000000003 0000000000000005 0000000000000006"
    )


def test_descending_entry_ends_the_index() -> None:
    data = pack_positions([*POSITIONS, PositionEntry(1020, 9000)], 1000)
    assert parse_positions(data, 1000) == POSITIONS


def test_aborted_transaction_index_is_checked() -> None:
    entries = [LoggedAbort(1, 3, 5, 6), LoggedAbort(2, 4, 9, 10)]
    assert parse_aborted(pack_aborted(entries)) == entries
    with pytest.raises(Corrupt, match="x: 33 bytes"):
        parse_aborted(pack_aborted(entries)[:33], "x")
    with pytest.raises(Corrupt, match="entry 0 has version 1"):
        parse_aborted(b"\0\1" + pack_aborted(entries)[2:], "x")
    with pytest.raises(Corrupt, match="before it begins"):
        parse_aborted(pack_aborted([LoggedAbort(1, 6, 5, 6)]), "x")


def test_positions_are_found() -> None:
    assert [position_of(POSITIONS, offset) for offset in (1000, 1009, 1010, 1024, 1025, 9999)] == [
        0, 0, 4200, 4200, 8500, 8500,
    ]  # fmt: skip
    assert [offset_before(TIMES, when, 1000) for when in (1, 5000, 5001, 7000, 7001)] == [
        1000, 1000, 1011, 1011, 1025,
    ]  # fmt: skip


def headers(sizes: list[int], times: list[int]) -> list[BatchHeader]:
    made, offset, position = [], 1000, 0
    for size, time in zip(sizes, times, strict=True):
        record = Record(None, b"x" * size, (), time)
        data = build([record], BatchSettings(base_offset=offset))
        made.append(parse(data)._replace(position=position))
        position += len(data)
        offset += 1
    return made


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 50)), max_size=40))
def test_an_index_leads_to_every_batch(rows: list[tuple[int, int]]) -> None:
    made = headers([size for size, _ in rows], [1 + time for _, time in rows])
    indexer = Indexer(1000)

    for header in made:
        indexer.add(header)
    indexer.add_time()

    assert parse_positions(pack_positions(indexer.positions, 1000), 1000) == indexer.positions
    assert parse_times(pack_times(indexer.times, 1000), 1000) == indexer.times
    for header in made:
        assert position_of(indexer.positions, header.base_offset) <= header.position
    for when in range(52):
        first = next((header.base_offset for header in made if header.max_timestamp >= when), None)
        if first is not None:
            assert offset_before(indexer.times, when, 1000) <= first
