"""The classic group protocol (KIP-62, 345, 394, 559, 800, 814) as a pure state machine.

    Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance
      ▲               │      ▲     ▲                                     │         │
      └no member left─┘      │     └──join, leave, expiry, sync timeout──┘         │ leader syncs
                             └─────join, leave, expiry, sync timeout──── Stable ◄──┘

| request   | Empty   | PreparingRebalance    | CompletingRebalance   | Stable                   |
|-----------|---------|-----------------------|-----------------------|--------------------------|
| join, new | prepare | held                  | prepare               | prepare                  |
| join, old | unknown | held                  | answered if unchanged | a follower is answered   |
|           |         |                       | else prepare          | if unchanged, else prep. |
| join of a | prepare | held; the old id is   | prepare; the old id   | kept, answered if chosen |
| static's  |         | fenced                | is fenced             | protocol stays (KIP-814) |
| successor |         |                       |                       | else prep.; id is fenced |
| sync      | unknown | REBALANCE_IN_PROGRESS | held; the leader's    | the member's part        |
|           |         |                       | is kept and settles   |                          |
| heartbeat | unknown | REBALANCE_IN_PROGRESS | session prolonged     | session prolonged        |
| leave     | unknown | may complete          | prepare               | prepare                  |
| commit    | -1 only | member, generation    | REBALANCE_IN_PROGRESS | member, generation       |

Dead answers COORDINATOR_NOT_AVAILABLE to all. From version 4 on, a new member that is not static
first gets an id (KIP-394). The group waits for it during its session timeout.

Five things are persisted before any response is sent. They are a generation's number and members
when joining is complete, its assignment when the leader syncs, and the fact that the group is
empty. The others are a static member's new id, and the fact that the group was a consumer group
whose rebalance a successor must continue. So a
successor can continue in the middle of a rebalance, and no generation ever has two memberships.

Differences from Kafka: Kafka drops a held request whose member has left or asked again; here each
one is answered. Kafka counts a JoinGroup whose client has disconnected; here the member has its
session timeout to rejoin, so that no dead member becomes leader. Here a static member can return to
a full group.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.broker.coordination.machine import (
    ClientGone,
    Effect,
    Event,
    MachineRequest,
    Persist,
    Tick,
)
from rookery.broker.groups.classic import persistence
from rookery.broker.groups.classic.group import ClassicGroup, ClassicState, refusal
from rookery.broker.groups.classic.join import join
from rookery.broker.groups.classic.leave import leave
from rookery.broker.groups.classic.rebalance import drop_join, expire
from rookery.broker.groups.classic.sync import sync
from rookery.broker.groups.consumer.embeddedprotocol import CONSUMER
from rookery.broker.groups.settings import ClassicSettings
from rookery.errors import Corrupt, ErrorCode, ProtocolError
from rookery.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from rookery.wire.messages.join_group import JoinGroupRequest
from rookery.wire.messages.leave_group import LeaveGroupRequest
from rookery.wire.messages.sync_group import SyncGroupRequest
from rookery.wire.protocols.consumer import read_subscription

CLASSIC: Final = "classic"
"""The name of the kind."""


class ClassicMemberDescription(NamedTuple):
    """A member as reported by DescribeGroups."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class ClassicDescription(NamedTuple):
    """A group as reported by DescribeGroups and ListGroups."""

    state: str
    protocol_type: str
    protocol: str
    generation: int
    members: list[ClassicMemberDescription]


class ClassicGroupMachine:
    """One group of the classic protocol."""

    __slots__ = ("_group", "_topics")

    kind = CLASSIC

    def __init__(self, group: ClassicGroup) -> None:
        self._group = group
        self._topics: tuple[int, frozenset[str] | None] = (-1, None)
        """A revision of the group, and the topics of its members at that revision, if known."""

    @classmethod
    def new(cls, group_id: str, settings: ClassicSettings, epoch: int = 0) -> ClassicGroupMachine:
        """Return a group without members; its generations start after the given epoch."""
        group = ClassicGroup(group_id, settings)
        group.generation = epoch
        return cls(group)

    @classmethod
    def load(
        cls, group_id: str, body: bytes, settings: ClassicSettings, now_ms: int
    ) -> ClassicGroupMachine:
        """Return a group from its persisted state; all timeouts of its members start again.

        Raises:
            Corrupt: the body is not that of a classic group.
        """
        group = persistence.restore(body, settings, now_ms)
        if group.group_id != group_id:
            raise Corrupt(
                f"the persisted state of group {group_id} is that of group {group.group_id}"
            )
        return cls(group)

    @property
    def state_name(self) -> str:
        """The group's state under Kafka's name."""
        return self._group.state.value

    @property
    def deadline_ms(self) -> int | None:
        """The time of the next `Tick`; None if no tick is needed."""
        return self._group.deadlines.next_ms

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self._group.state in (ClassicState.EMPTY, ClassicState.DEAD)

    @property
    def epoch(self) -> int:
        """The number of the last generation; 0 before the first."""
        return self._group.generation

    @property
    def protocol_type(self) -> str:
        """The protocol type of the members, such as "consumer"; empty if there were none."""
        return self._group.protocol_type or ""

    @property
    def group(self) -> ClassicGroup:
        """The underlying group, for its migration."""
        return self._group

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        """Process an event; return its effects, in order."""
        match event:
            case MachineRequest():
                self._on_request(event, now_ms)
            case ClientGone():
                self._on_gone(event, now_ms)
            case Tick():
                expire(self._group, now_ms)
        return self.effects()

    def close(self, code: ErrorCode) -> list[Effect]:
        """Mark the group as dead here (it was deleted, or has another coordinator now)."""
        for member in self._group.roster.members.values():
            self._group.release(member, code)
        self._group.die()
        return self.effects()

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool = False,
        version: int = 0,  # noqa: ARG002 (members of a classic group may use any)
    ) -> ErrorCode:
        """Check whether a member can commit offsets; -1 and "" are a client without membership.

        In a transaction the group's state does not matter, and older clients send no member id.
        """
        group = self._group
        if group.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and group.state is ClassicState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = group.check_member(member_id, instance_id, generation)
            if code is not ErrorCode.NONE:
                return code
        elif not is_transactional and group.state is not ClassicState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is ClassicState.COMPLETING and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:  # noqa: ARG002
        """Allow every client, since classic members do not identify themselves in OffsetFetch."""
        return ErrorCode.NONE

    def subscribes(self, topic: str) -> bool:
        """Return whether a member subscribes, or may subscribe, to the topic.

        The subscription is known only for consumers in a stable group.
        """
        if self.is_empty:
            return False
        if self._group.state is not ClassicState.STABLE:
            return True
        if self._topics[0] != self._group.revision:
            self._topics = self._group.revision, self._read_topics()
        topics = self._topics[1]
        return topics is None or topic in topics

    def description(self) -> ClassicDescription:
        """Return the group's description: as in Kafka, with protocols only while it is stable."""
        group = self._group
        is_stable = group.state is ClassicState.STABLE
        protocol = (group.protocol or "") if is_stable else ""
        members = [
            ClassicMemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.protocols.get(protocol, b"") if is_stable else b"",
                member.assignment,
            )
            for member in group.roster.members.values()
        ]
        return ClassicDescription(
            group.state.value, group.protocol_type or "", protocol, group.generation, members
        )

    def effects(self) -> list[Effect]:
        """Return the effects since the last call, the persist first."""
        is_kept = self._group.take_mark()
        effects: list[Effect] = [Persist(persistence.keep(self._group))] if is_kept else []
        effects += self._group.take_replies()
        return effects

    def _read_topics(self) -> frozenset[str] | None:
        """Return the topics of all members; None if they are unknown."""
        group = self._group
        if group.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        try:
            for member in group.roster.members.values():
                topics.update(read_subscription(member.protocols[group.protocol or ""]).topics)
        except ProtocolError:
            return None
        return frozenset(topics)

    def _on_request(self, request: MachineRequest, now_ms: int) -> None:
        match request.message:
            case HeartbeatRequest() as message:
                self._heartbeat(request, message, now_ms)
            case JoinGroupRequest() as message:
                self._join(request, message, now_ms)
            case SyncGroupRequest() as message:
                sync(self._group, request, message, now_ms)
            case LeaveGroupRequest() as message:
                leave(self._group, request, message, now_ms)
            case message:
                raise TypeError(f"a classic group cannot answer a {type(message).__name__}")

    def _on_gone(self, gone: ClientGone, now_ms: int) -> None:
        """Drop a held request; its member has its session timeout to ask again."""
        group = self._group
        for member in group.roster.members.values():
            if member.join is not None and member.join.token is gone.token:
                drop_join(group, member, now_ms)
                return
            if member.sync is not None and member.sync.token is gone.token:
                member.sync = None
                group.touch(member, now_ms)
                return

    def _join(self, request: MachineRequest, message: JoinGroupRequest, now_ms: int) -> None:
        if self._group.state is ClassicState.DEAD:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._group.reply(request, refusal(request, code, message.member_id))
        else:
            join(self._group, request, message, now_ms)

    def _heartbeat(self, request: MachineRequest, message: HeartbeatRequest, now_ms: int) -> None:
        group = self._group
        code = group.check_member(
            message.member_id, message.group_instance_id, message.generation_id
        )
        if code is ErrorCode.NONE:
            group.touch(group.roster.members[message.member_id], now_ms)
            if group.state is ClassicState.PREPARING:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        group.reply(request, HeartbeatResponse(error_code=code))
