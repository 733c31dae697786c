"""The partitioner agrees with Kafka's other clients."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as other_murmur2

from rookery.client.produce.partition import StickyPartitions, partition_of
from rookery.records.murmur import murmur2
from rookery.testing.clock import SeededRandom


# The vectors of Java's own test (UtilsTest.testMurmur2), as unsigned numbers.
def test_partitions_match_vectors_of_java() -> None:
    vectors = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    for key, number in vectors.items():
        assert murmur2(key) == number & 0xFFFFFFFF


@given(st.binary(max_size=200))
def test_hash_equals_that_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == other_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=50), st.integers(1, 10_000))
def test_chosen_partition_is_one_of_those_available(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count


def test_partition_is_kept_while_its_batch_has_room() -> None:
    sticky = StickyPartitions(SeededRandom())
    first = sticky.choose("t", [0, 1, 2], lambda _: False)

    assert [sticky.choose("t", [0, 1, 2], lambda _: True) for _ in range(5)] == [first] * 5


def test_another_partition_is_chosen_when_the_batch_is_full() -> None:
    sticky = StickyPartitions(SeededRandom())
    chosen = [sticky.choose("t", [0, 1, 2], lambda _: False) for _ in range(200)]

    assert all(left != right for left, right in pairwise(chosen))
    assert set(chosen) == {0, 1, 2}


def test_removed_partition_is_no_longer_chosen() -> None:
    sticky = StickyPartitions(SeededRandom())
    first = sticky.choose("t", [0, 1], lambda _: True)

    assert sticky.choose("t", [1 - first], lambda _: True) == 1 - first


def test_single_partition_is_kept() -> None:
    sticky = StickyPartitions(SeededRandom())

    assert [sticky.choose("t", [4], lambda _: False) for _ in range(3)] == [4, 4, 4]
