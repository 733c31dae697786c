"""The cluster's topics, as group machines are shown them."""

from __future__ import annotations

from rookery.broker.coordination.machine import TopicInfo
from rookery.cluster.replica import Replica


class ReplicaTopics:
    """The topics of a replica, as far as its log is applied."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def mark(self) -> object:
        """How many topics there are, and which came last: that differs if one has come or gone.

        A new topic is the last one. For the last to be the same again, all that came since must
        have gone; and then there are as many as before only if none of the old ones has.
        """
        topics = self._replica.state.topics.by_name
        last = next(reversed(topics.values()), None)
        return len(topics), b"" if last is None else last.id

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic, if it is there."""
        topic = self._replica.state.topics.by_name.get(name)
        return None if topic is None else TopicInfo(topic.id, len(topic.partitions))

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._replica.state.topics.by_name)
