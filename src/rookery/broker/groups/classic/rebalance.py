"""A classic group between its generations: members, deadlines and state transitions.

This is the implementation under `classic.py`, which documents the rules. During an event, it
collects the responses and records whether the group must be persisted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from rookery.broker.coordination.deadlines import Deadlines
from rookery.broker.coordination.machine import MachineRequest, Reply
from rookery.broker.groups.classic.roster import Roster, RosterMember
from rookery.broker.groups.settings import ClassicSettings
from rookery.errors import ErrorCode
from rookery.wire.message import Message
from rookery.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from rookery.wire.messages.sync_group import SyncGroupResponse

# The key of the group's own deadline among those of its members; no member has an empty id.
_PHASE: Final = ""
_NULLABLE_SINCE: Final = 7


class ClassicState(StrEnum):
    """The states of a classic group, under Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Rebalance:
    """A group's state, its members and its deadlines."""

    def __init__(self, group_id: str, settings: ClassicSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self.unsynced: set[str] = set()
        """Members of the current generation that have not fetched their assignment yet."""
        self.deadlines: Deadlines[str] = Deadlines()
        self._is_initial = False
        """Whether the current rebalance is the first after the group was empty."""
        self._has_newcomer = False
        """Whether a member joined during the initial delay, which then starts again."""
        self._initial_end_ms = 0
        """The time after which the initial delay is not extended any more."""
        self._replies: list[Reply] = []
        self._is_dirty = False
        self.revision = 0
        """The number of changes, used to cache values derived from the group."""

    # -- results of an event --------------------------------------------------------------------

    def take_replies(self) -> list[Reply]:
        """Return the responses of the event."""
        replies, self._replies = self._replies, []
        return replies

    def take_mark(self) -> bool:
        """Return whether the event requires the group to be persisted."""
        is_dirty, self._is_dirty = self._is_dirty, False
        return is_dirty

    def reply(self, request: MachineRequest, response: Message) -> None:
        """Answer a request at the end of the event."""
        self._replies.append(Reply(request.token, response))

    def mark(self) -> None:
        """Persist the group at the end of the event, before any response is sent."""
        self._is_dirty = True
        self.revision += 1

    # -- members -----------------------------------------------------------------------------

    def touch(self, member: RosterMember, now_ms: int) -> None:
        """Restart a member's session timeout; one with a held request needs none."""
        if not member.is_held:
            self.deadlines.set(member.member_id, now_ms + member.session_timeout_ms)

    def admit(self, member: RosterMember, protocol_type: str) -> None:
        """Add a new member."""
        if not self.roster.members:
            self.protocol_type = protocol_type
        member.is_new = self._has_newcomer = True
        self.roster.add(member)

    def check_member(
        self, member_id: str, instance_id: str | None, generation: int | None = None
    ) -> ErrorCode:
        """Check a member's id, instance id and generation."""
        if self.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            holder = self.roster.static.get(instance_id, member_id)
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        member = self.roster.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_current = generation is None or generation == self.generation
        return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION

    def await_pending(self, member_id: str, due_ms: int) -> None:
        """Wait until the client that was given the id joins with it."""
        self.roster.pending.add(member_id)
        self.deadlines.set(member_id, due_ms)

    def forget_pending(self, member_id: str) -> bool:
        """Stop waiting for an id to be used; return whether it was pending."""
        if member_id not in self.roster.pending:
            return False
        self.roster.pending.remove(member_id)
        self.deadlines.cancel(member_id)
        return True

    def rename(self, member: RosterMember, new_id: str) -> None:
        """Give a static member another id."""
        self.deadlines.cancel(member.member_id)
        self.unsynced.discard(member.member_id)
        self.roster.rename(member, new_id)

    def drop_join(self, member: RosterMember, now_ms: int) -> None:
        """Drop a held JoinGroup whose client has disconnected."""
        held = self.roster.release_join(member)
        if member.is_new and held is not None and knows_no_id(held):
            self.remove(member)
            self.complete_if_joined(now_ms)
        else:
            self.touch(member, now_ms)

    def die(self) -> None:
        """Mark the group as dead, without members and deadlines."""
        self.state = ClassicState.DEAD
        self.roster = Roster()
        self.unsynced.clear()
        self.deadlines = Deadlines()

    def hold_join(self, member: RosterMember, request: MachineRequest, now_ms: int) -> None:
        """Hold a member's JoinGroup until the others have joined; refuse an older one."""
        self.release_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.roster.hold_join(member, request)
        if member.is_new:
            # Before version 4, a client that disconnects and asks again gets another id.
            self.deadlines.set(member.member_id, now_ms + self.settings.new_member_timeout_ms)
        else:
            self.deadlines.cancel(member.member_id)

    def hold_sync(self, member: RosterMember, request: MachineRequest) -> None:
        """Hold a member's SyncGroup until the leader's arrives; refuse an older one."""
        self.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync = request
        self.deadlines.cancel(member.member_id)

    def remove(self, member: RosterMember, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member and answer its held requests; the caller handles the consequences."""
        self.release(member, code)
        self.roster.remove(member)
        self.unsynced.discard(member.member_id)
        self.deadlines.cancel(member.member_id)

    def release(self, member: RosterMember, code: ErrorCode) -> None:
        """Answer a member's held requests with an error."""
        self.release_join(member, code)
        self.release_sync(member, code)

    def release_join(self, member: RosterMember, code: ErrorCode) -> None:
        """Answer a held JoinGroup with an error."""
        held = self.roster.release_join(member)
        if held is not None:
            keeps_id = code is not ErrorCode.UNKNOWN_MEMBER_ID
            self.reply(held, refusal(held, code, member.member_id if keeps_id else ""))

    def release_sync(self, member: RosterMember, code: ErrorCode) -> None:
        """Answer a held SyncGroup with an error."""
        held, member.sync = member.sync, None
        if held is not None:
            self.reply(held, SyncGroupResponse(error_code=code, assignment=b""))

    # -- phases ------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Continue after a member has joined or left."""
        if self.state is ClassicState.PREPARING:
            self.complete_if_joined(now_ms)
        else:
            self.prepare(now_ms)

    def complete_if_joined(self, now_ms: int) -> None:
        """Complete a rebalance if all have joined; the first one of a group waits for its delay."""
        if self.state is ClassicState.PREPARING and not self._is_initial and self.roster.all_joined:
            self.complete(now_ms)

    def prepare(self, now_ms: int) -> None:
        """Begin a rebalance, in which all members must rejoin."""
        for member in self.roster.members.values():
            if self.state is ClassicState.COMPLETING:
                # Until now, the assignment of the previous generation was still reported.
                member.assignment = b""
            if member.sync is not None:
                self.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
                self.touch(member, now_ms)
        self.unsynced.clear()
        self._is_initial = self.state is ClassicState.EMPTY
        self.state = ClassicState.PREPARING
        delay_ms = self.settings.initial_rebalance_delay_ms
        if self._is_initial and delay_ms:
            self._has_newcomer = False
            self._initial_end_ms = now_ms + self.roster.rebalance_timeout_ms
            self.deadlines.set(_PHASE, now_ms + delay_ms)
        elif self._is_initial or self.roster.all_joined:
            self.complete(now_ms)
        else:
            self.deadlines.set(_PHASE, now_ms + self.roster.rebalance_timeout_ms)

    def complete(self, now_ms: int) -> None:
        """End the join phase and begin a new generation with the joined members."""
        self.deadlines.cancel(_PHASE)
        for member in [*self.roster.members.values()]:
            if member.join is None and member.instance_id is None:
                self.remove(member)
        if self.roster.members and not self.roster.elect():
            # There are only static members, and none has joined: they keep their places for now.
            self.deadlines.set(_PHASE, now_ms + self.roster.rebalance_timeout_ms)
            return
        self._is_initial = False
        self.generation += 1
        # The number is persisted before any member receives it. If it were persisted only with the
        # assignment, a successor could give it to other members, and late requests of these members
        # would be accepted as theirs.
        self.mark()
        if self.roster.members:
            self._announce(now_ms)
        else:
            self.state, self.protocol = ClassicState.EMPTY, None

    def _announce(self, now_ms: int) -> None:
        self.state, self.protocol = ClassicState.COMPLETING, self.roster.choose_protocol()
        for member in self.roster.members.values():
            member.is_new = False
            held = self.roster.release_join(member)
            if held is not None:
                self.reply(held, self.membership(member))
            self.touch(member, now_ms)
        self._await_syncs(now_ms)

    def resume(self, now_ms: int) -> None:
        """Continue as a successor: all timeouts of members and of the phase start again."""
        for member in self.roster.members.values():
            self.touch(member, now_ms)
        if self.state is ClassicState.COMPLETING:
            self._await_syncs(now_ms)
        elif self.state is ClassicState.PREPARING:
            self.deadlines.set(_PHASE, now_ms + self.roster.rebalance_timeout_ms)

    def _await_syncs(self, now_ms: int) -> None:
        self.unsynced.update(self.roster.members)
        self.deadlines.set(_PHASE, now_ms + self.roster.rebalance_timeout_ms)

    def settle(self, assignments: dict[str, bytes], now_ms: int) -> None:
        """Store the leader's assignment and send each member its part; the group is stable."""
        self.state = ClassicState.STABLE
        self.mark()
        for member in self.roster.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            held, member.sync = member.sync, None
            if held is not None:
                self.reply(held, self.part(member))
                self.touch(member, now_ms)

    def expire(self, now_ms: int) -> None:
        """Process expired deadlines; members that are out of time are removed."""
        due = set(self.deadlines.take(now_ms))
        if _PHASE in due and self.state is not ClassicState.PREPARING:
            due |= self.unsynced
        late = [member for key, member in self.roster.members.items() if key in due]
        for member in late:
            self.remove(member)
        self.roster.pending -= due
        if _PHASE in due and self.state is ClassicState.PREPARING:
            self._end_joining(now_ms)
        elif late:
            self.advance(now_ms)
        else:
            self.complete_if_joined(now_ms)

    def _end_joining(self, now_ms: int) -> None:
        if self._is_initial and self._has_newcomer and now_ms < self._initial_end_ms:
            self._has_newcomer = False
            next_ms = now_ms + self.settings.initial_rebalance_delay_ms
            self.deadlines.set(_PHASE, min(next_ms, self._initial_end_ms))
        else:
            self.complete(now_ms)

    # -- responses to members -------------------------------------------------------------------

    def membership(self, member: RosterMember) -> JoinGroupResponse:
        """Return a member's JoinGroup response; the leader's one lists all members."""
        leads = member.member_id == self.roster.leader
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.roster.leader or "",
            member_id=member.member_id,
            members=self._listed() if leads else [],
        )

    def part(self, member: RosterMember) -> SyncGroupResponse:
        """Return a member's SyncGroup response with its assignment."""
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def _listed(self) -> list[JoinGroupResponseMember]:
        protocol = self.protocol or ""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.protocols.get(protocol, b""),
            )
            for member in self.roster.members.values()
        ]


def refusal(request: MachineRequest, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    """Return the error response to a JoinGroup."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if request.version >= _NULLABLE_SINCE else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def knows_no_id(request: MachineRequest) -> bool:
    """Return whether a new member does not know its id and will rejoin as another one."""
    message = request.message
    return isinstance(message, JoinGroupRequest) and not message.member_id
