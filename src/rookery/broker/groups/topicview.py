"""The cluster's topics, as passed to group machines."""

from __future__ import annotations

from rookery.broker.coordination.machine import TopicInfo
from rookery.cluster.replica import Replica


class ReplicaTopics:
    """The topics of a replica, as of its applied state."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def mark(self) -> object:
        """The number of topics and the newest one, which change if a topic is created or deleted.

        A new topic is always the last one. The last one is the same again only if all newer ones
        were deleted. Then the number is the same only if no older one was deleted.
        """
        topics = self._replica.state.topics.by_name
        last = next(reversed(topics.values()), None)
        return len(topics), b"" if last is None else last.id

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic if it exists."""
        topic = self._replica.state.topics.by_name.get(name)
        return None if topic is None else TopicInfo(topic.id, len(topic.partitions))

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._replica.state.topics.by_name)
