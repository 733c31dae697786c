"""The examination of segment files reports every fault."""

from __future__ import annotations

import pytest

from rookery.formats.examine import examine
from rookery.formats.segmentwriter import SegmentWriter
from tests.formats import byhand, golden

FILES = (golden.SEGMENT, golden.INDEX, golden.TIMES)


def test_intact_files_have_no_faults() -> None:
    examination = examine(*FILES)

    assert examination.faults == []
    assert [batch.header.position for batch in examination.batches] == golden.POSITIONS
    assert all(batch.is_sound for batch in examination.batches)
    assert examine(golden.DENSE, golden.DENSE_INDEX).faults == []
    assert examine(golden.SEGMENT).faults == []


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_outside_of_batches_is_found(number: int, mask: int) -> None:
    batches = range(32, len(golden.SEGMENT) - 16) if number == 0 else range(0)
    for at in set(range(len(FILES[number]))) - set(batches):
        damaged = bytearray(FILES[number])
        damaged[at] ^= mask
        files = [*FILES[:number], bytes(damaged), *FILES[number + 1 :]]

        assert examine(*files).faults, f"byte {at}"


@pytest.mark.parametrize("number", range(3))
def test_every_truncation_is_found(number: int) -> None:
    for size in range(len(FILES[number])):
        files = [*FILES[:number], FILES[number][:size], *FILES[number + 1 :]]

        assert examine(*files).faults, f"{size} bytes"


def test_damage_in_several_batches_is_named_for_each() -> None:
    damaged = bytearray(golden.SEGMENT)
    for position in golden.POSITIONS:
        damaged[position + 65] ^= 1

    examination = examine(damaged)

    places = [fault.position for fault in examination.faults]
    assert places == [*golden.POSITIONS, len(golden.SEGMENT) - 16]
    assert [batch.is_sound for batch in examination.batches] == [False] * 3


def test_without_index_and_times_the_walk_ends_at_a_broken_batch() -> None:
    damaged = bytearray(golden.SEGMENT)
    damaged[golden.POSITIONS[1] + 16] = 9

    examination = examine(damaged)

    assert len(examination.batches) == 1
    assert examination.faults[0].position == golden.POSITIONS[1]


def test_with_an_index_the_walk_continues_after_a_broken_batch() -> None:
    damaged = bytearray(golden.SEGMENT)
    damaged[golden.POSITIONS[1] + 16] = 9

    examination = examine(damaged, golden.INDEX)

    assert [batch.header.base_offset for batch in examination.batches] == [1000, 1009]


def test_batches_out_of_order_and_wrong_entries_are_named() -> None:
    batches = [byhand.batch(9, [b"x"], 1), byhand.batch(4, [b"y"], 1), byhand.batch(3, [b"z"], 1)]
    segment = byhand.segment(0, 8, 3, 1, batches)

    examination = examine(segment, byhand.index(1, [(9, 32), (10, 33)]))

    third = 32 + len(batches[0]) + len(batches[1])
    assert [(fault.ending, fault.position) for fault in examination.faults] == [
        (".kfs", 32),
        (".kfs", third),
        (".index", 28),
    ]


def test_files_of_different_segments_are_distinguished() -> None:
    examination = examine(golden.DENSE, golden.DENSE_INDEX, golden.TIMES)

    assert {fault.ending for fault in examination.faults} == {".kfs", ".index"}


def test_empty_segment_is_valid() -> None:
    files = SegmentWriter(5).finish(golden.ORIGIN, 9, 1)

    assert examine(b"".join(files.parts), files.index, files.times).faults == []
