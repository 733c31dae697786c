"""The groups of one broker."""

from __future__ import annotations

from rookery.broker.coordination.coordinator import Coordinator
from rookery.broker.groups.kindtable import Kinds
from rookery.broker.groups.machine import GroupMachine
from rookery.broker.groups.subject import GroupSubject
from rookery.broker.groups.summary import GroupSummary, Summaries, summarize
from rookery.broker.groups.topicview import ReplicaTopics
from rookery.clock import Clock
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import Group


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
        machine = self.running(group.id)
        return self._decode(group) if machine is None else machine

    def summary(self, group: Group) -> GroupSummary | None:
        """Return a group's summary; None if the persisted state cannot be decoded."""
        machine = self.running(group.id)
        if machine is not None:
            return summarize(machine)
        return self._summaries.of(group, self._replica.state.groups)

    def _decode(self, group: Group) -> GroupMachine:
        return self.subject.decode(group, self.timer.now_ms())
