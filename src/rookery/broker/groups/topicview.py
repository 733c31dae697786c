"""The cluster's topics, as passed to group machines."""

from __future__ import annotations

from collections.abc import Iterable

from rookery.broker.coordination.machine import TopicInfo, TopicViewer
from rookery.cluster.replica import Replica
from rookery.service.access.visibility import TopicVisibility


class ReplicaTopics:
    """The topics of a replica, as of its applied state."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.visibility: TopicVisibility | None = None
        """Decides which topics clients may describe; None if they may describe all of them."""

    @property
    def mark(self) -> object:
        """The number of topics, the newest one, and the version of the access rules.

        The first two change if a topic is created or deleted: a new topic is always the last one.
        The last one is the same again only if all newer ones were deleted. Then the number is the
        same only if no older one was deleted.
        """
        topics = self._replica.state.topics.by_name
        last = next(reversed(topics.values()), None)
        rules = None if self.visibility is None else self.visibility.stamp
        return len(topics), b"" if last is None else last.id, rules

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic if it exists."""
        topic = self._replica.state.topics.by_name.get(name)
        return None if topic is None else TopicInfo(topic.id, len(topic.partitions))

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._replica.state.topics.by_name)

    def visible(self, names: Iterable[str], viewer: TopicViewer | None) -> frozenset[str] | None:
        """Return those of some names that a client may describe; None if it must be known."""
        if self.visibility is None:
            return frozenset(names)
        if viewer is None:
            return None
        return self.visibility.select(names, viewer.principal, viewer.host)
