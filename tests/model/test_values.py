"""Small values: partitions, nodes and offset specs."""

from __future__ import annotations

from kafka.protocol.consumer import (
    OffsetSpec,
)

from rookery.model import offset
from rookery.model.node import Node
from rookery.model.partition import TopicPartition


def test_partitions_sort_by_topic_then_number() -> None:
    partitions = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]

    assert [partition.text for partition in sorted(partitions)] == ["a-9", "a-10", "b-0"]


def test_node_shows_its_address() -> None:
    assert Node(3, "::1", 9092).text == "3 ([::1]:9092)"
    assert Node(3, "h", 9092, "eu-1").address == ("h", 9092)


def test_offset_specs_have_kafkas_numbers() -> None:
    ours = {name: getattr(offset, name) for name in dir(offset) if name.isupper()}

    assert ours == {
        "LATEST": -1,
        "EARLIEST": -2,
        "MAX_TIMESTAMP": -3,
        "EARLIEST_LOCAL": -4,
        "LATEST_TIERED": -5,
    }
    assert all(ours[spec.name] == spec.value for spec in OffsetSpec if spec.name in ours)
