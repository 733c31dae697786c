"""Partitions of keys, by the compiled module and its twin: the same, and the same as Java's."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from rookery.client.produce.partition import partition_of
from rookery.records.twins import murmurtwin

try:
    from rookery.records import _murmur
except ImportError:  # pragma: no cover (it was not built)
    MODULES: list[ModuleType] = [murmurtwin]
else:
    MODULES = [_murmur, murmurtwin]

# As Kafka's own tests have them, signed.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def module(request: pytest.FixtureRequest) -> ModuleType:
    implementation: ModuleType = request.param
    return implementation


def partitions(module: ModuleType, keys: pa.Array[Any], count: int) -> list[int]:
    _, offsets, data = keys.buffers()
    assert offsets is not None
    is_large = keys.type in (pa.large_binary(), pa.large_string())
    numbers = module.partitions(
        memoryview(offsets), memoryview(data or b""), keys.offset, len(keys), is_large, count
    )
    return array("i", bytes(numbers)).tolist()


@pytest.mark.parametrize(("key", "expected"), KNOWN.items())
def test_hashes_equal_those_of_kafka(module: ModuleType, key: bytes, expected: int) -> None:
    assert module.murmur2(key) == expected & 0xFFFFFFFF
    [partition] = partitions(module, pa.array([key]), 7)
    assert partition == (expected & 0x7FFFFFFF) % 7


@given(st.lists(st.binary(max_size=70), max_size=60), st.integers(1, 5000), st.integers(0, 9))
def test_all_implementations_agree(keys: list[bytes], count: int, skip: int) -> None:
    expected = [partition_of(key, count) for key in keys][skip:]
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array(keys, kind).slice(skip)
        for module in MODULES:
            assert partitions(module, column, count) == expected
    for key in keys:
        assert {module.murmur2(key) for module in MODULES} == {murmur2(key) & 0xFFFFFFFF}


@given(st.lists(st.integers(0, 6), max_size=80))
def test_rows_are_gathered_by_group_in_their_order(groups: list[int]) -> None:
    for module in MODULES:
        order, sizes = module.gather(array("i", groups).tobytes(), 7)
        expected = sorted(range(len(groups)), key=lambda row: groups[row])
        assert array("q", bytes(order)).tolist() == expected
        assert sizes == [groups.count(group) for group in range(7)]


@pytest.mark.parametrize(
    ("offsets", "first", "rows", "count"),
    [
        ([0, 5], 0, 1, 3),  # beyond the data
        ([-1, 2], 0, 1, 3),
        ([2, 1], 0, 1, 3),
        ([0, 1], 0, 2, 3),  # fewer offsets than keys
        ([0, 1], 1, 1, 3),
        ([0, 1], -1, 1, 3),
        ([0, 1], 0, -1, 3),
        ([0, 1], 0, 1, 0),
    ],
)
def test_invalid_key_offsets_are_refused(
    module: ModuleType, offsets: list[int], first: int, rows: int, count: int
) -> None:
    for code, is_large in (("i", False), ("q", True)):
        with pytest.raises(ValueError, match=r"keys|key 0"):
            module.partitions(array(code, offsets).tobytes(), b"abc", first, rows, is_large, count)


@pytest.mark.parametrize(("groups", "count"), [([0, 3], 3), ([-1], 3), ([0], 0), ([], -1)])
def test_groups_out_of_range_are_refused(module: ModuleType, groups: list[int], count: int) -> None:
    with pytest.raises(ValueError, match="group"):
        module.gather(array("i", groups).tobytes(), count)
    with pytest.raises(ValueError, match="3 bytes"):
        module.gather(b"abc", 3)
