"""The format of `.index` files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.formats.segment import Index, IndexBuilder, IndexEntry, parse_index
from rookery.records.batches import BatchHeader, parse
from tests.formats import byhand, golden


def test_golden_index_has_fixed_bytes_and_is_read() -> None:
    assert golden.INDEX[:28].hex(" ", 2) == (
        "4944 5800 0001 0000 0002 0000 0003 0000 0000 0000 0000 03e8 0000 0020"
    )
    assert parse_index(golden.INDEX) == Index(
        3, [IndexEntry(1000, 32), IndexEntry(1009, golden.POSITIONS[2])]
    )
    assert parse_index(golden.INDEX).pack() == golden.INDEX


def test_an_index_can_be_empty() -> None:
    assert parse_index(byhand.index(100, [])) == Index(100, [])


ROWS = st.lists(st.tuples(st.integers(0, (1 << 63) - 1), st.integers(32, (1 << 31) - 1)))


@given(st.integers(1, (1 << 31) - 1), ROWS)
def test_written_index_is_read_by_an_independent_reader(
    interval: int, rows: list[tuple[int, int]]
) -> None:
    offsets = sorted({offset for offset, _ in rows})
    positions = sorted({position for _, position in rows})
    entries = list(map(IndexEntry, offsets, positions))

    data = Index(interval, entries).pack()

    assert byhand.read_index(data) == (interval, entries)
    assert parse_index(data) == Index(interval, entries)


@pytest.mark.parametrize("size", range(len(golden.INDEX)))
def test_a_truncated_index_is_refused(size: int) -> None:
    with pytest.raises(Corrupt):
        parse_index(golden.INDEX[:size])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"IDX1" + golden.INDEX[4:], "begins with b'IDX1'"),
        (golden.INDEX[:5] + b"\2" + golden.INDEX[6:], "index version 2; this Rookery reads 1"),
        (golden.INDEX[:15] + b"\2" + golden.INDEX[16:], "reserved 2 is not 0"),
        (golden.INDEX[:6] + b"\xff" * 4 + golden.INDEX[10:], "are not what -1 entries take up"),
        (golden.INDEX[:6] + b"\x7f" * 4 + golden.INDEX[10:], "entries take up"),
        (golden.INDEX + b"\0", "are not what 2 entries take up"),
        (byhand.index(1, [(5, 32), (5, 99)]), r"entry \(5, 99\) is out of order after \(5, 32\)"),
        (byhand.index(1, [(5, 32), (6, 32)]), "is out of order after"),
        (byhand.index(1, [(5, 31)]), "outside of a segment"),
        (byhand.index(1, [(-5, 32)]), "outside of a segment"),
        (byhand.index(-1, []), "interval -1 is below 0"),
    ],
)
def test_fault_in_an_index_is_named(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=f"x.index: .*{words}"):
        parse_index(data, "x.index")


def _header(base: int, count: int) -> BatchHeader:
    return parse(byhand.batch(base, [b"x"] * count, 1))


def test_entry_is_added_after_an_interval_of_messages() -> None:
    builder = IndexBuilder(3)

    made = [builder.add(_header(i, 1), 32 + 100 * i) for i in range(8)]

    assert made == [True, False, False, True, False, False, True, False]
    assert [entry.offset for entry in builder.index.entries] == [0, 3, 6]


def test_entry_is_added_after_an_interval_of_bytes() -> None:
    builder = IndexBuilder(100, 1000)

    made = [builder.add(_header(i, 1), 32 + 600 * i) for i in range(5)]

    assert made == [True, False, True, False, True]


@pytest.mark.parametrize("intervals", [(0, 1), (1, 0), (1 << 31, 1)])
def test_intervals_must_be_positive(intervals: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        IndexBuilder(*intervals)
