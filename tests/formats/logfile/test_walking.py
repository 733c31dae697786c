"""A `.log` file: whole, torn at every byte, and damaged in every batch."""

from __future__ import annotations

import pytest

from rookery.errors import Corrupt
from rookery.formats.logfile.walking import check_batch, walk
from rookery.records.record import BatchSettings, Record, build


def batch(base_offset: int, count: int = 3) -> bytes:
    rows = [Record(b"k", b"value %d" % n, (), 1000 + n) for n in range(count)]
    return build(rows, BatchSettings(base_offset=base_offset, partition_leader_epoch=7))


LOG = batch(0) + batch(3) + batch(10)
SIZE = len(batch(0))


def test_batches_are_found_with_their_places_in_the_file() -> None:
    found = walk(LOG, 1000, 0, is_last=True)

    assert [(one.base_offset, one.position) for one in found.headers] == [
        (0, 1000),
        (3, 1000 + SIZE),
        (10, 1000 + 2 * SIZE),
    ]
    assert (found.end, found.next_offset, found.fault) == (1000 + len(LOG), 13, None)


def test_a_file_that_ends_anywhere_is_torn_there() -> None:
    for size in range(len(LOG)):
        found = walk(LOG[:size], 0, 0, is_last=True)

        whole = size // SIZE
        assert len(found.headers) == whole
        assert found.end == whole * SIZE
        if size % SIZE == 0:
            assert found.fault is None
        else:
            assert found.fault is not None
            assert found.fault.is_torn
            assert (found.fault.position, found.fault.offset) == (whole * SIZE, [0, 3, 6][whole])


def test_a_window_that_ends_within_a_batch_says_how_much_is_wanted() -> None:
    found = walk(LOG[: SIZE + 20], 0, 0, is_last=False)

    assert found.fault is None
    assert (found.end, found.wanted) == (SIZE, SIZE)
    assert walk(LOG[: SIZE + 5], 0, 0, is_last=False).wanted == 12


@pytest.mark.parametrize("at", [8, 16, 17, 21, 30, 61, SIZE - 1])
def test_a_flipped_byte_is_named_with_position_and_offset(at: int) -> None:
    data = bytearray(LOG)
    data[SIZE + at] ^= 0x41

    found = walk(data, 0, 0, is_last=True)

    assert [one.base_offset for one in found.headers] == [0]
    assert found.fault is not None
    assert (found.fault.position, found.fault.offset) == (SIZE, 3)
    assert f"byte {SIZE}, offset 3: " in found.fault.text


def test_offsets_that_go_back_are_damage() -> None:
    found = walk(batch(5) + batch(6), 0, 0, is_last=True)

    assert len(found.headers) == 1
    assert found.fault is not None
    assert "begins at offset 6" in found.fault.reason
    assert found.fault.offset == 8


def test_a_batch_before_the_segment_is_damage() -> None:
    fault = walk(batch(5), 0, 100, is_last=True).fault

    assert fault is not None
    assert fault.offset == 100


def test_a_batch_found_by_an_index_is_checked() -> None:
    assert check_batch(batch(3), "x.log", 500).position == 500
    with pytest.raises(Corrupt, match=r"^x\.log: byte 500: "):
        check_batch(batch(3)[:-1], "x.log", 500)
    with pytest.raises(Corrupt, match="2 batches"):
        check_batch(batch(3) + batch(6), "x.log", 0)
