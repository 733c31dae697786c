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
    """A reader that wants nothing to be compacted away."""

    until_ms: int
    """By the stamps of entries."""
    starts: Mapping[int, int] = MappingProxyType({})
    """By partition, the offset from which on it is held; if there are none, all is."""

    def held_from(self, partition: int) -> int | None:
        """Return the first offset that is held of a partition, None if nothing is."""
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
        """Another one whenever the settings, own or inherited, the partitions or the leaders
        change. No other topic has it, in this state or in an earlier one of the process. It is
        not part of the state: no decision may depend on it. None if no state has the topic."""
        self.versions: Iterator[int] | None = None
        """Gives the versions to all topics of a state."""

    def configure(self, name: str, value: str | None) -> None:
        """Set one setting, or take it back."""
        if value is None:
            self.configs.pop(name, None)
        else:
            self.configs[name] = value
        self.touch()
        # Offsets and times are decided where entries are applied, so this one is kept at hand.
        self.is_append_time = self.configs.get("message.timestamp.type") == "LogAppendTime"

    def touch(self) -> None:
        """Take another version: what was worked out from the topic does not hold any more."""
        if self.versions is not None:
            self.version = next(self.versions)

    def held_from(self, partition: int, now_ms: int) -> int | None:
        """Return the offset from which on readers hold a partition at a moment, None if none do."""
        held = [pin.held_from(partition) for pin in self.pins.values() if pin.until_ms > now_ms]
        return min((offset for offset in held if offset is not None), default=None)

    def grow(self, count: int, nodes: Sequence[int]) -> None:
        """Have `count` partitions, each with its leader."""
        self.touch()
        for index in range(len(self.partitions), count):
            partition = Partition(index)
            partition.lead(leader_of(self.id, index, nodes))
            self.partitions.append(partition)


class Topics:
    """All topics of the cluster."""

    __slots__ = ("_by_sound", "_versions", "by_id", "by_name")

    def __init__(self, entry: int = 0) -> None:
        """Have no topics yet.

        Args:
            entry: up to which the topics will be known. Their versions begin above those of all
                states that were known up to earlier entries.
        """
        self._versions = count(entry << _VERSION_BITS)
        self.by_id: dict[bytes, Topic] = {}
        self.by_name: dict[str, Topic] = {}
        self._by_sound: dict[str, str] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def add(self, topic: Topic) -> None:
        """Take a topic in."""
        self.by_id[topic.id] = topic
        self.by_name[topic.name] = topic
        self._by_sound[_sound(topic.name)] = topic.name
        topic.versions = self._versions
        topic.touch()

    def remove(self, topic: Topic) -> None:
        """Forget a topic."""
        del self.by_id[topic.id]
        del self.by_name[topic.name]
        del self._by_sound[_sound(topic.name)]

    def alike(self, name: str) -> str | None:
        """Find the topic whose name differs by '.' and '_' at most: in metrics both are one."""
        return self._by_sound.get(_sound(name))

    def partition(self, topic_id: bytes, index: int) -> Partition | None:
        """Find a partition."""
        topic = self.by_id.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def touch_all(self) -> None:
        """Give all topics other versions: something changes that they inherit."""
        for topic in self:
            topic.touch()

    def lead(self, nodes: Sequence[int]) -> None:
        """Choose every partition's leader anew: brokers have come or gone."""
        self.touch_all()
        for topic in self:
            for partition in topic.partitions:
                partition.lead(leader_of(topic.id, partition.index, nodes))


def _sound(name: str) -> str:
    return name.replace(".", "_")


def leader_of(topic_id: bytes, index: int, nodes: Sequence[int]) -> int:
    """Choose a leader by rendezvous hash: a broker's coming or going moves only its share."""
    if len(nodes) <= 1:
        return nodes[0] if nodes else -1
    place = topic_id + index.to_bytes(4, "big")
    return max(nodes, key=lambda node: (_weight(place, node), node))


def _weight(place: bytes, node: int) -> bytes:
    return blake2b(place + node.to_bytes(4, "big", signed=True), digest_size=8).digest()
