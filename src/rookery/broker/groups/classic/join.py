"""JoinGroup for classic groups: validation, member identity, and whether the request is held."""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.broker.coordination.machine import MachineRequest
from rookery.broker.groups.classic.group import ClassicGroup, ClassicState, refusal
from rookery.broker.groups.classic.rebalance import advance, complete_if_joined
from rookery.broker.groups.classic.roster import RosterMember
from rookery.errors import ErrorCode
from rookery.wire.messages.join_group import JoinGroupRequest

_ID_FIRST_SINCE: Final = 4
_MAY_SKIP_SINCE: Final = 9


class Join(NamedTuple):
    """A JoinGroup, with defaults for the fields that its version lacks."""

    request: MachineRequest
    message: JoinGroupRequest
    protocols: dict[str, bytes]
    rebalance_timeout_ms: int
    now_ms: int


def join(
    group: ClassicGroup, request: MachineRequest, message: JoinGroupRequest, now_ms: int
) -> None:
    """Answer a JoinGroup or hold it."""
    timeout_ms = message.rebalance_timeout_ms
    asked = Join(
        request,
        message,
        {protocol.name: protocol.metadata for protocol in message.protocols},
        timeout_ms if request.version > 0 and timeout_ms >= 0 else message.session_timeout_ms,
        now_ms,
    )
    code = _check(group, asked)
    if code is ErrorCode.GROUP_MAX_SIZE_REACHED:
        _turn_away(group, asked)
    elif code is not ErrorCode.NONE:
        group.reply(request, refusal(request, code, message.member_id))
    elif message.member_id == "":
        _join_unknown(group, asked)
    elif message.member_id in group.roster.pending and message.group_instance_id is None:
        _add(group, asked, message.member_id)
    else:
        _join_known(group, asked)


def _check(group: ClassicGroup, asked: Join) -> ErrorCode:
    """Return the error that prevents any member from joining with this request."""
    message, settings = asked.message, group.settings
    if not (
        settings.min_session_timeout_ms
        <= message.session_timeout_ms
        <= settings.max_session_timeout_ms
    ):
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not _has_room(group, message):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _is_understood(group, asked):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    size = sum(len(name) + len(metadata) for name, metadata in asked.protocols.items())
    known = _find(group, message)
    if known is not None:
        size -= known.size_bytes
    if size + group.roster.size_bytes > settings.max_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    return ErrorCode.NONE


def _find(group: ClassicGroup, message: JoinGroupRequest) -> RosterMember | None:
    """Return the existing member, by its id or as the predecessor of a static member."""
    roster = group.roster
    if not message.member_id and message.group_instance_id is not None:
        return roster.members.get(roster.static.get(message.group_instance_id, ""))
    return roster.members.get(message.member_id)


def _has_room(group: ClassicGroup, message: JoinGroupRequest) -> bool:
    """Return whether the group has room, or the member is already in it.

    During the preparation of a rebalance, only joined members count: the limit may have been
    lowered, and the last members to join are then refused.
    """
    roster, room = group.roster, group.settings.max_size
    known = _find(group, message)
    if group.state is ClassicState.PREPARING:
        return (known is not None and known.join is not None) or roster.joined < room
    return known is not None or len(roster) < room


def _turn_away(group: ClassicGroup, asked: Join) -> None:
    """Refuse a member for which the group has no room; it may have been a member before."""
    group.reply(asked.request, refusal(asked.request, ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    member = group.roster.members.get(asked.message.member_id)
    if member is not None:
        group.remove(member)
    group.forget_pending(asked.message.member_id)
    complete_if_joined(group, asked.now_ms)


def _is_understood(group: ClassicGroup, asked: Join) -> bool:
    """Return whether all members share the protocol type and one of the offered protocols."""
    if group.state is ClassicState.EMPTY:
        return bool(asked.message.protocol_type and asked.protocols)
    is_kind = asked.message.protocol_type == group.protocol_type
    return is_kind and group.roster.supports_any(asked.protocols)


def _join_unknown(group: ClassicGroup, asked: Join) -> None:
    """Admit a client without a member id; a static one may be known by its instance id."""
    instance_id = asked.message.group_instance_id
    new_id = asked.request.new_member_id
    if instance_id is not None and instance_id in group.roster.static:
        _succeed(group, asked, group.roster.members[group.roster.static[instance_id]])
    elif instance_id is None and asked.request.version >= _ID_FIRST_SINCE:
        group.await_pending(new_id, asked.now_ms + asked.message.session_timeout_ms)
        group.reply(asked.request, refusal(asked.request, ErrorCode.MEMBER_ID_REQUIRED, new_id))
    else:
        _add(group, asked, new_id)


def _add(group: ClassicGroup, asked: Join, member_id: str) -> None:
    """Add a new member."""
    member = RosterMember(
        member_id=member_id,
        instance_id=asked.message.group_instance_id,
        client_id=asked.request.client_id,
        client_host=asked.request.client_host,
        session_timeout_ms=asked.message.session_timeout_ms,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        protocols=asked.protocols,
    )
    group.admit(member, asked.message.protocol_type)
    group.hold_join(member, asked.request, asked.now_ms)
    advance(group, asked.now_ms)


def _join_known(group: ClassicGroup, asked: Join) -> None:
    """Process the rejoin of a member; hold it only if something changed or a stable leader asks."""
    message = asked.message
    code = group.check_member(message.member_id, message.group_instance_id)
    if code is not ErrorCode.NONE:
        group.reply(asked.request, refusal(asked.request, code, message.member_id))
        return
    member = group.roster.members[message.member_id]
    leads_stable = group.state is ClassicState.STABLE and message.member_id == group.roster.leader
    is_unchanged = member.matches(asked.protocols) and not leads_stable
    if group.state is not ClassicState.PREPARING and is_unchanged:
        group.reply(asked.request, group.join_response(member))
        group.touch(member, asked.now_ms)
    else:
        _update(group, asked, member)
        advance(group, asked.now_ms)


def _update(group: ClassicGroup, asked: Join, member: RosterMember) -> None:
    """Update a member from its request, and hold the request."""
    group.roster.change_protocols(member, asked.protocols)
    member.session_timeout_ms = asked.message.session_timeout_ms
    member.rebalance_timeout_ms = asked.rebalance_timeout_ms
    group.hold_join(member, asked.request, asked.now_ms)


def _succeed(group: ClassicGroup, asked: Join, member: RosterMember) -> None:
    """Give a restarted static member its place under a new id; the old id is fenced.

    A stable group does not rebalance while the chosen protocol stays the same. During a rebalance
    it must, since the leader may already be assigning to the old id.
    """
    old_leader = group.roster.leader or ""
    group.release(member, ErrorCode.FENCED_INSTANCE_ID)
    group.rename(member, asked.request.new_member_id)
    _update(group, asked, member)
    stays = group.state is ClassicState.STABLE and group.roster.choose_protocol() == group.protocol
    if not stays:
        advance(group, asked.now_ms)
        return
    group.mark()
    group.roster.release_join(member)
    group.touch(member, asked.now_ms)
    response = group.join_response(member)
    if asked.request.version >= _MAY_SKIP_SINCE:
        response.skip_assignment = response.leader == member.member_id
    else:
        # It must not consider itself the leader: older versions have no field to skip the
        # assignment.
        response.leader, response.members = old_leader, []
    group.reply(asked.request, response)
