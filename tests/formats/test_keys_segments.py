"""Keys of segments in a store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.formats.keys import (
    Generation,
    SegmentKey,
    check_namespace,
    index_key,
    parse_segment_key,
    partition_prefix,
    segment_key,
    times_key,
)
from rookery.store.port import check_key


def test_keys_are_as_documented() -> None:
    key = segment_key("production", "orders", 0, 50_000)

    assert key == "production/orders/0/segment-00000000000000050000.kfs"
    assert index_key(key) == "production/orders/0/segment-00000000000000050000.index"
    assert times_key(key) == "production/orders/0/segment-00000000000000050000.times"
    assert partition_prefix("production", "orders", 0) == "production/orders/0/"
    again = segment_key("production", "orders", 12, 7, Generation(31, 4))
    assert again == "production/orders/12/segment-00000000000000000007-31-4.kfs"


LETTERS = "abcXYZ019._-"
TOPICS = st.text(LETTERS, min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))
NAMESPACES = st.text(LETTERS, min_size=1, max_size=249).filter(lambda name: name[0] != ".")
GENERATIONS = st.none() | st.builds(
    Generation, st.integers(1, (1 << 39) - 1), st.integers(0, (1 << 24) - 1)
)


@given(
    NAMESPACES, TOPICS, st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 63) - 1), GENERATIONS
)
def test_segment_keys_round_trip_and_fit_every_store(
    namespace: str, topic: str, partition: int, base: int, generation: Generation | None
) -> None:
    key = segment_key(namespace, topic, partition, base, generation)

    parsed = SegmentKey(namespace, topic, partition, base, generation, ".kfs")
    assert parse_segment_key(key) == parsed
    assert parse_segment_key(index_key(key)) == parsed._replace(ending=".index")
    assert parse_segment_key(times_key(key)) == parsed._replace(ending=".times")
    check_key(key)
    assert key.startswith(partition_prefix(namespace, topic, partition))


def test_a_leading_dot_is_escaped() -> None:
    key = segment_key("default", ".hidden", 0, 0)

    assert key.startswith("default/=hidden/0/")
    assert parse_segment_key(key) == SegmentKey("default", ".hidden", 0, 0, None, ".kfs")


@pytest.mark.parametrize(
    "namespace", ["", "_rookery", ".", "..", ".x", "a/b", "a b", "ä", "x" * 250, "a\n", "=a"]
)
def test_invalid_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        check_namespace(namespace)
    with pytest.raises(ConfigError, match="namespace"):
        segment_key(namespace, "birds", 0, 0)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "=a", "x" * 250, "a\n", "../up"])
def test_invalid_topic_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="not a topic name"):
        segment_key("default", topic, 0, 0)


@pytest.mark.parametrize(
    ("partition", "base", "generation"),
    [
        (-1, 0, None),
        (1 << 31, 0, None),
        (0, -1, None),
        (0, 1 << 63, None),
        (0, 0, Generation(0, 0)),
        (0, 0, Generation(1 << 39, 0)),
        (0, 0, Generation(1, -1)),
        (0, 0, Generation(1, 1 << 24)),
    ],
)
def test_numbers_out_of_range_are_refused(
    partition: int, base: int, generation: Generation | None
) -> None:
    with pytest.raises(ValueError, match="out of range"):
        segment_key("default", "birds", partition, base, generation)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "default/birds/0/segment-0.kfs",
        "default/birds/00/segment-00000000000000000000.kfs",
        "default/birds/0/segment-00000000000000000000.kfst",
        "default/birds/0/segment-00000000000000000000-1.kfs",
        "default/birds/0/segment-00000000000000000000-01-1.kfs",
        "default/birds/0/segment-00000000000000000000-1-99999999.kfs",
        "default/birds/0/segment-99999999999999999999.kfs",
        "default/birds/9999999999/segment-00000000000000000000.kfs",
        "_rookery/birds/0/segment-00000000000000000000.kfs",
        "default/.birds/0/segment-00000000000000000000.kfs",
        "default/==/0/segment-00000000000000000000.kfs",
        "x/default/birds/0/segment-00000000000000000000.kfs",
        "default/birds/0/segment-00000000000000000000.kfs\n",
    ],
)
def test_other_keys_are_not_segments(key: str) -> None:
    assert parse_segment_key(key) is None


def test_only_a_segment_has_companion_files() -> None:
    with pytest.raises(ValueError, match="does not end in"):
        index_key("default/birds/0/segment-00000000000000000000.index")
