"""The consumer group protocol (KIP-848) as a pure state machine: the coordinator assigns.

Every change (a member, a subscription, a topic) creates a new group epoch and a target assignment.
Each member moves to the target independently, by its own heartbeats, without stopping the others:

    Empty ──join──► Assigning ──target──► Reconciling ──all reach it───► Stable
      ▲                 ▲ (with the next heartbeat)  │                     │
      └─the last leaves─┴─────────── change ─────────┴─────────────────────┘

| heartbeat's epoch | what it does                                                               |
|-------------------|----------------------------------------------------------------------------|
| 0                 | joins; an existing member starts again without partitions                  |
| the member's      | extends the session; reports changes; takes the member's next step         |
| the one before    | the same, if it owns only allowed partitions: our last response was lost   |
| any other         | FENCED_MEMBER_EPOCH: it must give up everything and join again             |
| -1                | leaves                                                                     |
| -2                | a static member leaves temporarily: its partitions stay reserved until its |
|                   | session ends, or another member joins with its instance id                 |

A partition is assigned to its next owner only after the last owner has reported that it no longer
owns it. A member that does not report this within its rebalance timeout is removed and fenced.

A migrating group can contain members that use the classic protocol (`classicmembers`).

An assignment is repeated until the member reports that it owns it: responses can be lost, and
librdkafka then asks again as if it had received one.

All state that a response is based on is persisted before the response is sent. A heartbeat that
changes nothing is answered immediately, after a check of the group's topics.

Differences from Kafka: Kafka sends an assignment once. It refuses epoch 0 of a member with a later
epoch until that member is removed. It reserves the partitions of an absent static member even if
the target gives them to others. It evaluates regular expressions later and only periodically. It
does not shorten the heartbeat interval of members that wait for partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from rookery.broker.coordination.machine import (
    ClientGone,
    Effect,
    Event,
    MachineRequest,
    Persist,
    Reply,
    Tick,
)
from rookery.broker.groups.consumer.classicmembers import answer
from rookery.broker.groups.consumer.embeddedprotocol import CONSUMER
from rookery.broker.groups.consumer.group import ConsumerGroup
from rookery.broker.groups.consumer.heartbeat import answer_heartbeat
from rookery.broker.groups.consumer.member import GroupMember
from rookery.broker.groups.consumer.persistence import by_name
from rookery.broker.groups.consumer.reconcile import NONE
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import ErrorCode
from rookery.wire.message import Message
from rookery.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBER_EPOCH_SINCE: Final = 9
"""The first version of OffsetCommit with member epochs."""


class ConsumerMemberDescription(NamedTuple):
    """A member as reported by ConsumerGroupDescribe."""

    member: GroupMember
    assigned: dict[str, list[int]]
    """Partitions by topic name, including those that it must revoke but has not revoked yet."""
    target: dict[str, list[int]]


class ConsumerDescription(NamedTuple):
    """A group as reported by ConsumerGroupDescribe."""

    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: list[ConsumerMemberDescription]
    topic_ids: dict[str, bytes]


class ConsumerGroupMachine:
    """One group of the consumer protocol."""

    __slots__ = ("_group",)

    kind = protocol_type = CONSUMER

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group

    @classmethod
    def new(
        cls,
        group_id: str,
        settings: ConsumerSettings,
        epoch: int = 0,
        classic: ClassicSettings | None = None,
    ) -> ConsumerGroupMachine:
        """Return a group without members; its epochs start after the given one."""
        return cls(ConsumerGroup(group_id, settings, epoch, classic))

    @classmethod
    def load(
        cls,
        group_id: str,
        body: bytes,
        settings: ConsumerSettings,
        now_ms: int,
        classic: ClassicSettings | None = None,
        changes: Iterable[bytes] = (),
    ) -> ConsumerGroupMachine:
        """Return a group from its persisted state; all timeouts of its members start again.

        Raises:
            Corrupt: the body or one of the changes is not that of a consumer group.
        """
        group = ConsumerGroup(group_id, settings, classic=classic)
        group.restore(body, changes, now_ms)
        return cls(group)

    @property
    def state_name(self) -> str:
        """The group's state under Kafka's name."""
        group = self._group
        if not group.members:
            return "Empty"
        if group.epoch > group.target_epoch:
            return "Assigning"
        return "Stable" if next(group.find_unsettled(), None) is None else "Reconciling"

    @property
    def deadline_ms(self) -> int | None:
        """The time of the next `Tick`; None if no tick is needed."""
        return self._group.timeouts.next_ms

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self._group.members

    @property
    def epoch(self) -> int:
        """The group's epoch."""
        return self._group.epoch

    @property
    def group(self) -> ConsumerGroup:
        """The underlying group, for its migration."""
        return self._group

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        """Process an event; return its effects, in order."""
        replies: list[Effect] = []
        match event:
            case MachineRequest():
                replies.append(Reply(event.token, self._answer(event, now_ms)))
            case Tick():
                self._group.expire(now_ms)
            case ClientGone():
                pass  # no request is held
        if not self._group.is_dirty:
            return replies
        self._group.is_dirty = False
        return [Persist(self._group.body, self._group.take_change()), *replies]

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool = False,
        version: int = MEMBER_EPOCH_SINCE,
    ) -> ErrorCode:
        """Check whether a member can commit offsets; -1 and "" are a client without membership.

        Older clients send no member id in a transaction.
        """
        is_anonymous = generation < 0 and not member_id and instance_id is None
        if is_anonymous and (is_transactional or self.is_empty):
            return ErrorCode.NONE
        member = self._group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_classic = member.classic is not None
        if version < MEMBER_EPOCH_SINCE and not is_classic and not is_transactional:
            return ErrorCode.UNSUPPORTED_VERSION
        return _check_epoch(member, generation)

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Check whether a member can read offsets; None and -1 are a client without membership."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self._group.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, epoch)

    def subscribes(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic, so that its offsets are in use."""
        group = self._group
        return topic in group.subscriptions.topics and any(
            topic in group.subscriptions.names_of(member) for member in group.members.values()
        )

    def description(self) -> ConsumerDescription:
        """Return the description for ConsumerGroupDescribe."""
        group = self._group
        ids = group.topic_ids
        members = [
            ConsumerMemberDescription(
                member,
                by_name(member.holding.all_places, ids),
                by_name(group.target.get(member.member_id, NONE), ids),
            )
            for member in group.members.values()
        ]
        return ConsumerDescription(
            self.state_name, group.epoch, group.target_epoch, group.assignor, members, ids
        )

    def _answer(self, request: MachineRequest, now_ms: int) -> Message:
        message = request.message
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            return answer_heartbeat(self._group, request, message, now_ms)
        return answer(self._group, request, now_ms)


def _check_epoch(member: GroupMember, epoch: int) -> ErrorCode:
    """Check that the epoch is the member's current one."""
    if epoch == member.epoch:
        return ErrorCode.NONE
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
