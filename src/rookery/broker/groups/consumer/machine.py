"""The consumer group protocol (KIP-848) as a pure state machine: the coordinator assigns.

Every change (a member, a subscription, a topic) creates a new group epoch and a target assignment.
Each member moves to the target independently, by its own heartbeats, without stopping the others:

    Empty ──join──► Assigning ──target──► Reconciling ──all are there──► Stable
      ▲                 ▲ (with the next heartbeat)  │                     │
      └──the last goes──┴─────────── change ─────────┴─────────────────────┘

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
from rookery.broker.groups.consumer.assign import Places
from rookery.broker.groups.consumer.classicmembers import answer
from rookery.broker.groups.consumer.embedded import CONSUMER
from rookery.broker.groups.consumer.group import ConsumerGroup
from rookery.broker.groups.consumer.heartbeat import check, invalid, is_full, owned
from rookery.broker.groups.consumer.member import AWAY, JOINING, LEAVING, GroupMember
from rookery.broker.groups.consumer.persistence import by_name, by_topic
from rookery.broker.groups.consumer.reconcile import NONE
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import ApiError, ErrorCode
from rookery.wire.message import Message
from rookery.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_TELLINGS: Final = 10
"""The maximum number of times an assignment is repeated until the member reports it."""
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


class Consumer:
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
    ) -> Consumer:
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
    ) -> Consumer:
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
        return "Stable" if next(group.unsettled(), None) is None else "Reconciling"

    @property
    def deadline_ms(self) -> int | None:
        """The time of the next `Tick`; None if no tick is needed."""
        return self._group.deadlines.next_ms

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

    # -- requests ----------------------------------------------------------------------------

    def _answer(self, request: MachineRequest, now_ms: int) -> Message:
        message = request.message
        if not isinstance(message, ConsumerGroupHeartbeatRequest):
            return answer(self._group, request, now_ms)
        try:
            check(message, request.version)
            if message.member_epoch in (LEAVING, AWAY):
                return self._leave(message)
            return self._heartbeat(request, message, now_ms)
        except ApiError as error:
            return ConsumerGroupHeartbeatResponse(
                error_code=error.code,
                error_message=error.text,
                member_id=message.member_id,
                member_epoch=0,
                heartbeat_interval_ms=0,
            )

    def _heartbeat(
        self, request: MachineRequest, message: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._group
        member = group.members.get(message.member_id)
        if member is not None and self._is_idle(request, message, member):
            group.touch(member, now_ms)
            return self._response(member)
        self._check_subscription(request, message)
        is_joining = message.member_epoch == JOINING
        member = self._join(request, message) if is_joining else self._known(message)
        before = member.subscription
        group.end_classic(member)
        group.is_dirty |= member.update(request, message)
        group.refresh(request.topics, is_changed=member.subscription != before)
        says = owned(message)
        if group.reconcile(member, says, now_ms):
            member.tellings = _TELLINGS
        elif says == member.holding.assigned:
            member.tellings = 0
        group.touch(member, now_ms)
        tells = is_joining or is_full(message) or member.tellings > 0
        member.tellings = max(member.tellings - 1, 0)
        return self._response(member, member.holding.assigned if tells else None)

    def _is_idle(
        self, request: MachineRequest, message: ConsumerGroupHeartbeatRequest, member: GroupMember
    ) -> bool:
        """Return whether a heartbeat has no effect: it changes nothing, and no step is pending."""
        says_nothing = (
            message.topic_partitions is None
            and message.subscribed_topic_names is None
            and message.subscribed_topic_regex is None
            and message.rebalance_timeout_ms < 0
            and message.server_assignor is None
            and message.instance_id == member.instance_id
            and request.client_id == member.client_id
            and request.client_host == member.client_host
        )
        return (
            says_nothing
            and not member.tellings
            and member.classic is None
            and message.member_epoch == member.epoch
            and self._group.is_settled(member)
            and self._group.subscriptions.is_current(request.topics)
        )

    def _response(
        self, member: GroupMember, assigned: Places | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        settings, is_waiting = self._group.settings, member.holding.is_waiting
        interval_ms = settings.waiting_interval_ms if is_waiting else settings.heartbeat_interval_ms
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=min(interval_ms, settings.heartbeat_interval_ms),
            assignment=None if assigned is None else _assignment(assigned),
        )

    # -- identification of members -------------------------------------------------------------

    def _join(self, request: MachineRequest, message: ConsumerGroupHeartbeatRequest) -> GroupMember:
        """Return a new or rejoining member."""
        group = self._group
        member_id = message.member_id or request.new_member_id
        if message.instance_id is not None and message.instance_id in group.static:
            return self._rejoin_static(message, member_id)
        member = group.members.get(member_id)
        if member is not None and member.previous_epoch == JOINING and owned(message) == NONE:
            return member  # it did not receive our last response
        if member is not None:
            group.remove(member)
        elif len(group.members) >= group.settings.max_size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"group {group.group_id!r} has {len(group.members)} members and takes no more",
            )
        member = GroupMember(member_id, instance_id=message.instance_id)
        group.add(member)
        return member

    def _rejoin_static(self, message: ConsumerGroupHeartbeatRequest, member_id: str) -> GroupMember:
        """Return a static member that has come back, possibly under another id."""
        group = self._group
        holder = group.members[group.static[message.instance_id or ""]]
        if holder.member_id == member_id and holder.epoch != AWAY:
            # The same process: our last response was lost, or it starts again without partitions.
            group.send_away(holder)
        if holder.epoch != AWAY and holder.classic is None:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"instance id {message.instance_id!r} is in use by member {holder.member_id!r}",
            )
        if member_id != holder.member_id and member_id in group.members:
            raise invalid(f"member {member_id!r} has another instance id")
        successor = holder.succeed(member_id)
        group.replace(holder, successor)
        return successor

    def _known(self, message: ConsumerGroupHeartbeatRequest) -> GroupMember:
        """Return the member if its epoch is valid.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or FENCED_MEMBER_EPOCH.
        """
        member = self._group.identify(message.member_id, message.instance_id)
        says = owned(message)
        owns_its_own = says is not None and says <= member.holding.assigned
        heard_not = message.member_epoch == member.previous_epoch and owns_its_own
        if message.member_epoch != member.epoch and not heard_not:
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"member {message.member_id!r} is in epoch {member.epoch}, "
                f"not {message.member_epoch}",
            )
        return member

    def _leave(self, message: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self._group.identify(message.member_id, message.instance_id)
        if message.member_epoch == AWAY:
            self._group.send_away(member)
        else:
            self._group.remove(member)
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=message.member_id,
            member_epoch=message.member_epoch,
            heartbeat_interval_ms=0,
        )

    def _check_subscription(
        self, request: MachineRequest, message: ConsumerGroupHeartbeatRequest
    ) -> None:
        """Refuse an invalid regular expression, and subscriptions that exceed the size limit."""
        group = self._group
        names, regex = message.subscribed_topic_names, message.subscribed_topic_regex
        if names is not None:
            others = (one for one in group.members.values() if one.member_id != message.member_id)
            size = sum(map(len, names)) + sum(len(name) for one in others for name in one.names)
            if size > group.settings.max_bytes:
                raise invalid(
                    f"the subscriptions of group {group.group_id!r} would take {size} bytes; "
                    f"{group.settings.max_bytes} are allowed: use a regular expression"
                )
        if regex:
            group.subscriptions.check(regex, request.topics)


def _assignment(places: Places) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(places).items()
        ]
    )


def _check_epoch(member: GroupMember, epoch: int) -> ErrorCode:
    """Check that the epoch is the member's current one."""
    if epoch == member.epoch:
        return ErrorCode.NONE
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
