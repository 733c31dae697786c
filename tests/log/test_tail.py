"""The tail: what it keeps, what it returns, and what it evicts first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.log.read.tail import Key, Tail

KEY: Key = (b"t" * 16, 0)
OTHER: Key = (b"t" * 16, 1)


def filled(sizes: list[int], key: Key = KEY, tail: Tail | None = None) -> Tail:
    """Make a tail of batches with two records each."""
    tail = tail or Tail()
    for number, size in enumerate(sizes):
        tail.add(key, 2 * number, 2 * number + 2, memoryview(bytes([number % 256]) * size))
    return tail


def test_unknown_partition_is_not_cached() -> None:
    assert Tail().read(KEY, 0, 100) is None


def test_offsets_outside_of_the_tail_are_not_cached() -> None:
    tail = Tail()
    tail.add(KEY, 10, 12, memoryview(b"x" * 5))
    assert tail.read(KEY, 9, 100) is None
    assert tail.read(KEY, 12, 100) is None
    assert tail.read(OTHER, 10, 100) is None
    assert tail.misses == 3


def test_offset_within_a_batch_returns_that_batch() -> None:
    piece = filled([5, 6, 7]).read(KEY, 3, 100)
    assert piece is not None
    assert (list(map(len, piece.parts)), piece.size, piece.next_offset) == ([6, 7], 13, 6)


def test_first_batch_is_returned_whole_on_request() -> None:
    tail = filled([50, 60])
    whole = tail.read(KEY, 0, 1)
    assert whole is not None
    assert (whole.size, whole.next_offset) == (50, 2)
    fitting = tail.read(KEY, 0, 49, whole_first=False)
    assert fitting == ([], 0, 0)
    assert tail.read(KEY, 0, 50, whole_first=False) == whole


def test_gap_restarts_the_tail() -> None:
    tail = filled([5, 5])
    tail.add(KEY, 10, 11, memoryview(b"new"))
    assert tail.read(KEY, 0, 100) is None
    piece = tail.read(KEY, 10, 100)
    assert piece is not None
    assert (piece.size, piece.next_offset) == (3, 11)


def test_oldest_batches_of_all_partitions_are_evicted_first() -> None:
    tail = Tail(limit=10 * 1512)
    for number in range(8):
        for key in (KEY, OTHER):
            tail.add(key, number, number + 1, memoryview(bytes(1000)))
    assert tail.used == 10 * 1512
    for key in (KEY, OTHER):
        assert tail.read(key, 2, 10) is None
        assert tail.read(key, 3, 10) is not None


def test_evicted_partition_can_be_written_again() -> None:
    tail = filled([5] * 4)
    tail.forget(KEY)
    assert tail.read(KEY, 0, 100) is None
    filled([7] * 3, tail=tail)
    tail.limit = 0
    tail.add(OTHER, 0, 1, memoryview(b"x"))
    assert tail.used == 0
    assert tail.read(KEY, 4, 100) is None


@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=300),
    kept=st.integers(1, 300),
    offset=st.integers(0, 600),
    max_bytes=st.integers(0, 5000),
)
def test_limited_read_equals_a_linear_scan(
    sizes: list[int], kept: int, offset: int, max_bytes: int
) -> None:
    tail = filled(sizes)
    while len(tail._order) > kept:
        tail._push_out()
    first = max(0, len(sizes) - kept)
    piece = tail.read(KEY, offset, max_bytes)
    index = offset // 2
    if not first <= index < len(sizes):
        assert piece is None
        return
    expected, total = [sizes[index]], sizes[index]
    for size in sizes[index + 1 :]:
        if total + size > max_bytes:
            break
        expected.append(size)
        total += size
    assert piece is not None
    assert list(map(len, piece.parts)) == expected
    assert (piece.size, piece.next_offset) == (total, 2 * (index + len(expected)))
