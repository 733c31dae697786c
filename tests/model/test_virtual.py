"""The arithmetic of virtual partitions: the tables of the design, and properties."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.model.virtual import (
    MAX_SLOTS,
    MIN_OFFSET_RANGE,
    NO_OFFSET,
    NegativeOffsetError,
    NegativePartitionError,
    OffsetOverflowError,
    PartitionLayout,
    PartitionOutOfRangeError,
    PartitionRemapper,
)

HUNDRED = PartitionRemapper(100, 10, 10**12)
BLOCK = PartitionRemapper(100, 10, 10**12, PartitionLayout.BLOCK)


@pytest.mark.parametrize(
    ("virtual", "physical", "slot"),
    [
        (0, 0, 0), (1, 1, 0), (5, 5, 0), (9, 9, 0),
        (10, 0, 1), (11, 1, 1), (50, 0, 5), (99, 9, 9),
    ],
)  # fmt: skip
def test_partitions_map_by_modulo(virtual: int, physical: int, slot: int) -> None:
    assert HUNDRED.virtual_to_physical(virtual) == (physical, slot)


@pytest.mark.parametrize(("virtual", "physical", "slot"), [(0, 0, 0), (9, 0, 9), (10, 1, 0)])
def test_partitions_map_by_block(virtual: int, physical: int, slot: int) -> None:
    assert BLOCK.virtual_to_physical(virtual) == (physical, slot)


@pytest.mark.parametrize(
    ("partition", "offset", "physical", "physical_offset"),
    [
        (0, 0, 0, 0),
        (0, 100, 0, 100),
        (10, 0, 0, 1_000_000_000_000),
        (10, 100, 0, 1_000_000_000_100),
        (50, 500, 0, 5_000_000_000_500),
        (99, 0, 9, 9_000_000_000_000),
    ],
)
def test_offsets_map_to_ranges(
    partition: int, offset: int, physical: int, physical_offset: int
) -> None:
    mapping = HUNDRED.virtual_to_physical_offset(partition, offset)

    assert mapping[:2] == (physical, physical_offset)
    assert HUNDRED.physical_to_virtual(physical, physical_offset) == (partition, offset)


def test_a_physical_partition_lists_its_virtual_ones() -> None:
    assert HUNDRED.virtual_partitions_for_physical(0) == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert BLOCK.virtual_partitions_for_physical(1) == list(range(10, 20))


def test_no_offset_is_the_same_in_both_spaces() -> None:
    assert HUNDRED.virtual_to_physical_offset(99, NO_OFFSET) == (9, NO_OFFSET, 9)


@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        (
            lambda: HUNDRED.virtual_to_physical(-1),
            NegativePartitionError,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            lambda: HUNDRED.virtual_to_physical(100),
            PartitionOutOfRangeError,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            lambda: HUNDRED.physical_to_virtual(10, 0),
            PartitionOutOfRangeError,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            lambda: HUNDRED.virtual_to_physical_offset(0, -2),
            NegativeOffsetError,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ),
        (
            lambda: HUNDRED.physical_to_virtual(0, -1),
            NegativeOffsetError,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ),
        (
            lambda: HUNDRED.virtual_to_physical_offset(0, 10**12),
            OffsetOverflowError,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ),
        (
            lambda: HUNDRED.physical_to_virtual(0, 10**13),
            OffsetOverflowError,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ),
    ],
)
def test_errors_have_kafkas_codes(
    call: Callable[[], object], error: type[ApiError], code: ErrorCode
) -> None:
    with pytest.raises(error) as raised:
        call()
    assert raised.value.code is code


@pytest.mark.parametrize(
    ("virtual", "physical", "offset_range", "setting"),
    [
        (10, 0, 2**40, "physical_partitions"),
        (3, 4, 2**40, "virtual_partitions"),
        (10, 4, 2**40, "virtual_partitions"),
        (MAX_SLOTS + 1, 1, 2**40, "virtual_partitions"),
        (10, 5, MIN_OFFSET_RANGE - 1, "offset_range"),
        (10, 5, 2**63, "offset_range"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(
    virtual: int, physical: int, offset_range: int, setting: str
) -> None:
    with pytest.raises(ConfigError, match=setting):
        PartitionRemapper(virtual, physical, offset_range)


def test_bounds_are_allowed() -> None:
    assert PartitionRemapper(MAX_SLOTS, 1, MIN_OFFSET_RANGE).slots == MAX_SLOTS
    assert PartitionRemapper(1, 1, 2**63).slots == 1


@st.composite
def remappers(draw: st.DrawFn) -> PartitionRemapper:
    slots = draw(st.integers(1, MAX_SLOTS))
    physical = draw(st.integers(1, 1000))
    offset_range = draw(st.integers(MIN_OFFSET_RANGE, 2**63 // slots))
    layout = draw(st.sampled_from(PartitionLayout))
    return PartitionRemapper(slots * physical, physical, offset_range, layout)


@given(remappers(), st.data())
def test_places_map_back(remapper: PartitionRemapper, data: st.DataObject) -> None:
    virtual = data.draw(st.integers(0, remapper.virtual_partitions - 1))
    offset = data.draw(st.integers(0, remapper.offset_range - 1))

    place = remapper.virtual_to_physical_offset(virtual, offset)

    at = place.physical_partition, place.physical_offset
    assert remapper.physical_to_virtual(*at) == (virtual, offset)
    assert remapper.offset_belongs_to_virtual(*at, virtual)
    assert virtual in remapper.virtual_partitions_for_physical(place.physical_partition)


@given(remappers(), st.data())
def test_ranges_of_a_physical_partition_are_disjoint_and_adjacent(
    remapper: PartitionRemapper, data: st.DataObject
) -> None:
    physical = data.draw(st.integers(0, remapper.physical_partitions - 1))

    sharing = remapper.virtual_partitions_for_physical(physical)
    ranges = [remapper.get_offset_range_for_virtual(each) for each in sharing]

    assert len(set(sharing)) == remapper.slots
    assert [start for start, _ in ranges] == [0, *(end + 1 for _, end in ranges[:-1])]
    assert ranges[-1][1] < 2**63
