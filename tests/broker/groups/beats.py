"""Consumers of a group for tests: they send heartbeats to a machine and follow its answers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any, Protocol

from rookery.broker.coordination.machine import (
    Event,
    MachineRequest,
    Persist,
    Reply,
    TopicInfo,
    TopicViewer,
)
from rookery.broker.groups.consumer.assign import Places
from rookery.broker.groups.consumer.change import merge
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.consumer.persistence import read_body
from rookery.broker.groups.settings import ConsumerSettings
from rookery.errors import ErrorCode
from rookery.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


class Cluster:
    """Topics that a test makes, grows and deletes."""

    def __init__(self, **partitions: int) -> None:
        self.mark = 0
        self._ids = count(1)
        self._topics: dict[str, TopicInfo] = {}
        self._hidden: dict[str, frozenset[str]] | None = None
        for name, number in partitions.items():
            self.create(name, number)

    def create(self, name: str, partitions: int, topic_id: bytes | None = None) -> None:
        """Make a topic."""
        made = next(self._ids).to_bytes(16, "big")
        self._topics[name] = TopicInfo(topic_id or made, partitions)
        self.mark += 1

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._topics[name] = self._topics[name]._replace(partitions=partitions)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self._topics[name]
        self.mark += 1

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic, if it is there."""
        return self._topics.get(name)

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._topics)

    def hide(self, **hidden: str) -> None:
        """Have access rules, by which each of some clients may not describe one topic."""
        self._hidden = {principal: frozenset({name}) for principal, name in hidden.items()}
        self.mark += 1

    def visible(self, names: Iterable[str], viewer: TopicViewer | None) -> frozenset[str] | None:
        """Return those of some names that a client may describe."""
        if self._hidden is None:
            return frozenset(names)
        if viewer is None:
            return None
        return frozenset(names) - self._hidden.get(viewer.principal, frozenset())

    def places(self, *names: str) -> Places:
        """Return all partitions of some topics, as far as they are there."""
        topics = [self._topics[name] for name in names if name in self._topics]
        return frozenset((topic.id, at) for topic in topics for at in range(topic.partitions))


class Group:
    """A machine, the clock, and the last persisted state."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings | None = None) -> None:
        self.cluster = cluster
        self.settings = settings or ConsumerSettings()
        self.machine = ConsumerGroupMachine.new("readers", self.settings)
        self.now_ms = 1_000
        self.kept: bytes | None = None
        self.log = KeptLog()
        self.persists = 0
        self._tokens = count()

    def on(self, event: Event) -> list[Reply]:
        """Have the machine take an event; keep what it wants kept."""
        effects = self.machine.on(event, self.now_ms)
        for at, effect in enumerate(effects):
            if isinstance(effect, Persist):
                assert at == 0, "an effect is persisted before it is reported"
                self.kept = self.log.keep(effect)
                self.persists += 1
        return [effect for effect in effects if isinstance(effect, Reply)]

    def beat(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; return the one answer."""
        message = ConsumerGroupHeartbeatRequest(**{"group_id": "readers", **fields})
        token = next(self._tokens)
        request = MachineRequest(
            token, message, version, "app", "/127.0.0.1", f"id-{token}", self.cluster,
            TopicViewer(message.member_id, "127.0.0.1"),
        )  # fmt: skip
        [reply] = self.on(request)
        assert reply.token == token
        assert isinstance(reply.response, ConsumerGroupHeartbeatResponse)
        return reply.response

    def fail_over(self) -> None:
        """Let another coordinator take over with the persisted state."""
        if self.kept is None:
            self.machine = ConsumerGroupMachine.new("readers", self.settings)
        else:
            self.machine = ConsumerGroupMachine.load(
                "readers", self.log.body, self.settings, self.now_ms, changes=self.log.changes
            )


class KeptLog:
    """What the cluster log has of a group: a body, and what has changed since."""

    def __init__(self) -> None:
        self.body = b""
        self.changes: list[bytes] = []

    def keep(self, persist: Persist) -> bytes:
        """Keep a change if there is one; return the whole, which must come to the same."""
        if not persist.change:
            self.body, self.changes = persist.body, []
            return self.body
        self.changes.append(persist.change)
        merged, whole = read_body(self.body), read_body(persist.body)
        merge(merged, self.changes)
        for body in (merged, whole):
            body.members.sort(key=lambda member: member.member_id)
        assert merged == whole
        return persist.body


class Beaten(Protocol):
    """A group that takes heartbeats."""

    def beat(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; return the one answer."""


class Reader:
    """One consumer, which does as Kafka's own does."""

    def __init__(self, group: Beaten, member_id: str, **wants: Any) -> None:
        self.group = group
        self.member_id = member_id
        self.wants: dict[str, Any] = wants
        self.instance_id: str | None = wants.pop("instance_id", None)
        self.epoch = 0
        self.owned: Places = frozenset()
        self.told: Places = frozenset()
        """What it may own; it takes this over some time later."""
        self.is_full = True
        self._acked: Places = frozenset()

    def beat(self, *, is_lost: bool = False) -> ErrorCode:
        """Send a heartbeat, take in its answer unless that is lost."""
        joins = self.epoch == 0
        fields: dict[str, Any] = {"member_id": self.member_id, "member_epoch": self.epoch}
        fields["instance_id"] = self.instance_id
        if joins or self.is_full:
            fields |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": [], **self.wants}
        if joins or self.is_full or self.owned != self._acked:
            fields["topic_partitions"] = as_topics(self.owned)
        response = self.group.beat(**fields)
        if is_lost:
            self.is_full = True
        else:
            self._take(response)
        return response.error_code

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code is ErrorCode.NONE:
            self.epoch, self.is_full, self._acked = response.member_epoch, False, self.owned
            if response.assignment is not None:
                self.told = as_places(response.assignment.topic_partitions)
        elif response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.forget()

    def step(self) -> None:
        """Send a heartbeat, and follow the answer."""
        self.beat()
        self.reconcile()

    def places(self) -> Places:
        """Return what it owns."""
        return self.owned

    def reconcile(self) -> None:
        """Apply the last assignment: revoke, then assign."""
        self.owned = self.told

    def forget(self) -> None:
        """Lose everything and start over."""
        self.owned = self.told = self._acked = frozenset()
        self.epoch, self.is_full = 0, True

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Leave, for good or (-2) for a while."""
        response = self.group.beat(
            member_id=self.member_id, instance_id=self.instance_id, member_epoch=epoch
        )
        self.forget()
        return response


def settle(*readers: Reader) -> None:
    """Have readers beat until nothing changes any more."""
    for _ in range(12):
        for reader in readers:
            reader.step()


def as_topics(places: Places) -> list[TopicPartitions]:
    """Return partitions in the form of a heartbeat."""
    topics = sorted({topic for topic, _ in places})
    return [
        TopicPartitions(
            topic_id=wanted, partitions=[at for topic, at in sorted(places) if topic == wanted]
        )
        for wanted in topics
    ]


def as_places(topics: list[TopicPartitions]) -> Places:
    """Return partitions from the form of a heartbeat."""
    return frozenset((topic.topic_id, at) for topic in topics for at in topic.partitions)
