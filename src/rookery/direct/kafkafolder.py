"""A Kafka broker's directory as a state: it is read where it lies, and nothing is written.

Its topics, rows, epochs, transactions and groups are those that a broker over the directory would
serve. Every `.log` file is known by a number that is the same in every process, so that executors
find it by its name alone.
"""

from __future__ import annotations

import asyncio
from array import array
from pathlib import Path

from rookery.clock import Clock
from rookery.cluster.state.objects import SegmentName
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.direct.listed import object_of
from rookery.formats.keys import segment_key
from rookery.formats.logfile.names import parse_file_name
from rookery.logdir.directory import LogDirectory
from rookery.logdir.serving.loadeddirectory import LoadedDirectory, load
from rookery.model.topicname import INTERNAL_TOPICS

NAMESPACE = "kafka"
"""Begins the keys of what is no segment of ours."""

Signature = tuple[tuple[str, int, int], ...]


class KafkaFolder:
    """One broker's directories."""

    def __init__(self, paths: list[Path], clock: Clock) -> None:
        """Look at nothing yet."""
        self._paths = paths
        self._clock = clock
        self._seen: Signature | None = None

    async def fill(self, state: State) -> None:
        """Put all topics into a state, as the directory has them now.

        Raises:
            ConfigError: it is no log directory of Kafka.
        """
        seen = await asyncio.to_thread(self._look)
        if seen == self._seen:
            return
        loaded = await asyncio.to_thread(self._load)
        for topic in list(state.topics):
            state.topics.remove(topic)
        state.objects.segments.clear()
        state.objects.rows.clear()
        for topic in loaded.state.topics:
            if topic.name not in INTERNAL_TOPICS:
                _rename(state, topic, loaded)
                state.topics.add(topic)
        state.cluster_id = loaded.state.cluster_id
        state.groups = loaded.state.groups
        self._seen = seen

    def _load(self) -> LoadedDirectory:
        directory = LogDirectory.open(self._paths)
        node_id = directory.meta.node_id if directory.meta is not None else 0
        return load(directory, node_id, self._clock.now_ms())

    def _look(self) -> Signature:
        """Return what tells whether anything has changed: a Kafka may be at work."""
        found = []
        for path in self._paths:
            for file in sorted(path.glob("*/*.log")) + sorted(path.glob("*checkpoint")):
                stat = file.stat()
                found.append((str(file), stat.st_size, stat.st_mtime_ns))
        return tuple(found)


def _rename(state: State, topic: Topic, loaded: LoadedDirectory) -> None:
    """Know every file by the number that its name gives, in place of this process's own."""
    for partition in topic.partitions:
        numbers: dict[int, int] = {}
        for object_id in dict.fromkeys(partition.objects):
            name = parse_file_name(Path(loaded.files.name(object_id)).name)
            if name is None:
                continue
            segment = SegmentName(topic.name, partition.index, name.base_offset, is_plain=True)
            key = segment_key(NAMESPACE, topic.name, partition.index, name.base_offset)
            numbers[object_id] = object_of(key)
            state.objects.segments[numbers[object_id]] = segment
        partition.objects = array("q", [numbers.get(one, 0) for one in partition.objects])
        for object_id in partition.objects:
            state.objects.add_row(object_id)
