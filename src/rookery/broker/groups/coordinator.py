"""The groups of one broker: their machines, their summaries, and the topics they are given."""

from __future__ import annotations

from collections.abc import Iterable

from rookery.broker.coordination.coordinator import Coordinator
from rookery.broker.coordination.machine import TopicInfo, TopicViewer
from rookery.broker.groups.kindtable import Kinds
from rookery.broker.groups.machine import GroupMachine
from rookery.broker.groups.subject import GroupSubject
from rookery.broker.groups.summary import GroupSummary, Summaries, summarize
from rookery.clock import Clock
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import Group
from rookery.service.access.visibility import TopicVisibility


class ReplicaTopics:
    """The topics of a replica, as of its applied state, for group machines."""

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


class GroupCoordinator(Coordinator[str, GroupMachine]):
    """Coordinates groups by their ids, and reads those that other brokers coordinate.

    A group is claimed on its first request, or by `claims.py` if it has members.
    """

    def __init__(self, replica: Replica, clock: Clock, kinds: Kinds) -> None:
        self.subject = GroupSubject(replica, kinds)
        super().__init__(replica, clock, self.subject)
        self.topics = ReplicaTopics(replica)
        """The cluster's topics, which are passed to machines with each request."""
        self._summaries = Summaries(self._decode)

    def machine(self, group: Group) -> GroupMachine:
        """Return a group's machine for reading: the running one, or the persisted state.

        Raises:
            Corrupt: the persisted state cannot be decoded.
        """
        machine = self.find_running(group.id)
        return self._decode(group) if machine is None else machine

    def summary(self, group: Group) -> GroupSummary | None:
        """Return a group's summary; None if the persisted state cannot be decoded."""
        machine = self.find_running(group.id)
        if machine is not None:
            return summarize(machine)
        return self._summaries.of(group, self._replica.state.groups)

    def _decode(self, group: Group) -> GroupMachine:
        return self.subject.decode(group, self.timer.now_ms())
