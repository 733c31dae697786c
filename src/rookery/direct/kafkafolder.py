"""Exposes a Kafka broker's directory as a state: it is read in place and never written.

Its topics, rows, epochs, transactions and groups are those that a broker over the directory would
serve. Every `.log` file has a number that is the same in every process, so executors can find it by
its name alone.
"""

from __future__ import annotations

import asyncio
from array import array
from pathlib import Path

from rookery.clock import Clock
from rookery.cluster.state.objects import SegmentName
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.direct.kafscale import object_of
from rookery.formats.keys import segment_key
from rookery.formats.logfile.names import parse_file_name
from rookery.logdir.directory import LogDirectory
from rookery.logdir.server.loadeddirectory import LoadedDirectory, load
from rookery.model.topicname import INTERNAL_TOPICS

NAMESPACE = "kafka"
"""The key prefix for files that are not Rookery segments."""

Signature = tuple[tuple[str, int, int], ...]


class KafkaFolder:
    """The log directories of one broker."""

    def __init__(self, paths: list[Path], clock: Clock) -> None:
        """Set up without reading the directories."""
        self._paths = paths
        self._clock = clock
        self._seen: Signature | None = None

    async def fill(self, state: State) -> None:
        """Load all topics into a state, as the directory has them now.

        Raises:
            ConfigError: it is not a log directory of Kafka.
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
        """Return a signature that changes with the directory: a Kafka broker may be running."""
        stamps = []
        for path in self._paths:
            for file in sorted(path.glob("*/*.log")) + sorted(path.glob("*checkpoint")):
                stat = file.stat()
                stamps.append((str(file), stat.st_size, stat.st_mtime_ns))
        return tuple(stamps)


def _rename(state: State, topic: Topic, loaded: LoadedDirectory) -> None:
    """Identify every file by the number derived from its name, not by this process's own number."""
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
        partition.objects = array(
            "q", [numbers.get(object_id, 0) for object_id in partition.objects]
        )
        for object_id in partition.objects:
            state.objects.add_row(object_id)
