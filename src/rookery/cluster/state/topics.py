"""Topics by id and by name, and the leader hints of their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from types import MappingProxyType
from typing import Final, NamedTuple

from rookery.cluster.state.partition import Partition

# An entry changes fewer topics than this many bits can count.
_VERSION_BITS: Final = 32


class Pin(NamedTuple):
    """A reader that needs records to be kept from compaction."""

    until_ms: int
    """The expiry time, by the stamps of entries."""
    starts: Mapping[int, int] = MappingProxyType({})
    """The first pinned offset of each partition; if empty, the whole topic is pinned."""

    def held_from(self, partition: int) -> int | None:
        """Return the first pinned offset of a partition, None if nothing is pinned."""
        return self.starts.get(partition) if self.starts else 0


class Topic:
    """One topic: its settings and its partitions."""

    __slots__ = (
        "configs", "id", "is_append_time", "name", "partitions", "pins", "replication_factor",
        "version", "versions",
    )  # fmt: skip

    def __init__(self, topic_id: bytes, name: str, replication_factor: int) -> None:
        self.id = topic_id
        self.name = name
        self.replication_factor = replication_factor
        self.configs: dict[str, str] = {}
        self.partitions: list[Partition] = []
        self.is_append_time = False
        self.pins: dict[bytes, Pin] = {}
        """By their ids."""
        self.version: int | None = None
        """Changes whenever the settings (own or inherited), the partitions or the leaders change.
        It is
        unique among all topics of all states of the process. It is not part of the state, so no
        decision
        may depend on it. None if the topic is in no state."""
        self.versions: Iterator[int] | None = None
        """Supplies the versions for all topics of a state."""

    def configure(self, name: str, value: str | None) -> None:
        """Set or reset one setting."""
        if value is None:
            self.configs.pop(name, None)
        else:
            self.configs[name] = value
        self.touch()
        # Cached, because offsets and times are decided when entries are applied.
        self.is_append_time = self.configs.get("message.timestamp.type") == "LogAppendTime"

    def touch(self) -> None:
        """Take a new version, which invalidates values derived from the topic."""
        if self.versions is not None:
            self.version = next(self.versions)

    def held_from(self, partition: int, now_ms: int) -> int | None:
        """Return the first offset of a partition that is pinned at a time, None if none is."""
        held = [pin.held_from(partition) for pin in self.pins.values() if pin.until_ms > now_ms]
        return min((offset for offset in held if offset is not None), default=None)

    def grow(self, count: int, nodes: Sequence[int]) -> None:
        """Grow to `count` partitions, each with its leader."""
        self.touch()
        for index in range(len(self.partitions), count):
            partition = Partition(index)
            partition.lead(leader_of(self.id, index, nodes))
            self.partitions.append(partition)


class Topics:
    """All topics of the cluster."""

    __slots__ = ("_by_sound", "_versions", "by_id", "by_name")

    def __init__(self, entry: int = 0) -> None:
        """Start without topics.

        Args:
            entry: the last entry of the state. Versions start above those of all states of
                earlier entries.
        """
        self._versions = count(entry << _VERSION_BITS)
        self.by_id: dict[bytes, Topic] = {}
        self.by_name: dict[str, Topic] = {}
        self._by_sound: dict[str, str] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def add(self, topic: Topic) -> None:
        """Add a topic."""
        self.by_id[topic.id] = topic
        self.by_name[topic.name] = topic
        self._by_sound[_sound(topic.name)] = topic.name
        topic.versions = self._versions
        topic.touch()

    def remove(self, topic: Topic) -> None:
        """Remove a topic."""
        del self.by_id[topic.id]
        del self.by_name[topic.name]
        del self._by_sound[_sound(topic.name)]

    def alike(self, name: str) -> str | None:
        """Find a topic whose name differs only in '.' and '_': both collide in metric names."""
        return self._by_sound.get(_sound(name))

    def partition(self, topic_id: bytes, index: int) -> Partition | None:
        """Find a partition."""
        topic = self.by_id.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def touch_all(self) -> None:
        """Give all topics new versions: an inherited setting changed."""
        for topic in self:
            topic.touch()

    def lead(self, nodes: Sequence[int]) -> None:
        """Reassign every partition's leader after brokers joined or left."""
        self.touch_all()
        for topic in self:
            for partition in topic.partitions:
                partition.lead(leader_of(topic.id, partition.index, nodes))


def _sound(name: str) -> str:
    return name.replace(".", "_")


def leader_of(topic_id: bytes, index: int, nodes: Sequence[int]) -> int:
    """Choose a leader by rendezvous hash: a membership change moves only that broker's share."""
    if len(nodes) <= 1:
        return nodes[0] if nodes else -1
    place = topic_id + index.to_bytes(4, "big")
    return max(nodes, key=lambda node: (_weight(place, node), node))


def _weight(place: bytes, node: int) -> bytes:
    return blake2b(place + node.to_bytes(4, "big", signed=True), digest_size=8).digest()
