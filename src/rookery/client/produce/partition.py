"""Chooses a record's partition: by its key like Java's producer, else sticky.

Keys are hashed with MurmurHash2 (32 bits, Kafka's seed), so records with a key go to the same
partition as with any other Kafka client. Records without a key stay in one partition until its
batch is full (KIP-480), which makes fewer and larger batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.clock import Random
from rookery.records.murmur import murmur2

_POSITIVE: Final = 0x7FFFFFFF


def partition_of(key: bytes, count: int) -> int:
    """Return the partition of a key among `count`, the same as Java's."""
    return (murmur2(key) & _POSITIVE) % count


class StickyPartitions:
    """The current partition of each topic for records without a key."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._current: dict[str, int] = {}

    def choose(self, topic: str, available: list[int], has_room: Callable[[int], bool]) -> int:
        """Return the topic's partition for the next record.

        Args:
            topic: the topic's name.
            available: the partitions to choose from; not empty.
            has_room: returns whether a partition's filling batch has room for the record.
        """
        current = self._current.get(topic)
        if current is None or current not in available or not has_room(current):
            others = [number for number in available if number != current] or available
            current = self._current[topic] = self._pick(others)
        return current

    def _pick(self, available: list[int]) -> int:
        return available[int.from_bytes(self._random.token(4), "big") % len(available)]
