"""A classic group: its state, its members and their held requests.

`machine.py` documents the rules, and `rebalance.py` moves the group from state to state. During an
event, the group collects the responses and records whether it must be persisted.
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
from rookery.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from rookery.wire.messages.sync_group import SyncGroupResponse

_NULLABLE_SINCE: Final = 7


class ClassicState(StrEnum):
    """The states of a classic group, under Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """A group's state, its members, their held requests and their deadlines."""

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
        self.is_initial = False
        """Whether the current rebalance is the first after the group was empty."""
        self.has_newcomer = False
        """Whether a member joined during the initial delay, which then starts again."""
        self.initial_end_ms = 0
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
        member.is_new = self.has_newcomer = True
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

    # -- responses to members -------------------------------------------------------------------

    def join_response(self, member: RosterMember) -> JoinGroupResponse:
        """Return a member's JoinGroup response; the leader's one lists all members."""
        leads = member.member_id == self.roster.leader
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.roster.leader or "",
            member_id=member.member_id,
            members=self._list_members() if leads else [],
        )

    def sync_response(self, member: RosterMember) -> SyncGroupResponse:
        """Return a member's SyncGroup response with its assignment."""
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def _list_members(self) -> list[JoinGroupResponseMember]:
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
