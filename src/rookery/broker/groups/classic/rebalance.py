"""The phases of a rebalance, which move a classic group to its next generation.

`machine.py` draws the states and documents the rules.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.machine import MachineRequest
from rookery.broker.groups.classic.group import ClassicGroup, ClassicState
from rookery.broker.groups.classic.roster import RosterMember
from rookery.errors import ErrorCode
from rookery.wire.messages.join_group import JoinGroupRequest

# The key of the group's own deadline among those of its members; no member has an empty id.
_PHASE: Final = ""


def advance(group: ClassicGroup, now_ms: int) -> None:
    """Continue after a member has joined or left."""
    if group.state is ClassicState.PREPARING:
        complete_if_joined(group, now_ms)
    else:
        prepare(group, now_ms)


def complete_if_joined(group: ClassicGroup, now_ms: int) -> None:
    """Complete a rebalance if all have joined; the first one of a group waits for its delay."""
    if group.state is ClassicState.PREPARING and not group.is_initial and group.roster.all_joined:
        complete(group, now_ms)


def drop_join(group: ClassicGroup, member: RosterMember, now_ms: int) -> None:
    """Drop a held JoinGroup whose client has disconnected."""
    held = group.roster.release_join(member)
    if member.is_new and held is not None and _knows_no_id(held):
        group.remove(member)
        complete_if_joined(group, now_ms)
    else:
        group.touch(member, now_ms)


def prepare(group: ClassicGroup, now_ms: int) -> None:
    """Begin a rebalance, in which all members must rejoin."""
    for member in group.roster.members.values():
        if group.state is ClassicState.COMPLETING:
            # Until now, the assignment of the previous generation was still reported.
            member.assignment = b""
        if member.sync is not None:
            group.release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
            group.touch(member, now_ms)
    group.unsynced.clear()
    group.is_initial = group.state is ClassicState.EMPTY
    group.state = ClassicState.PREPARING
    delay_ms = group.settings.initial_rebalance_delay_ms
    if group.is_initial and delay_ms:
        group.has_newcomer = False
        group.initial_end_ms = now_ms + group.roster.rebalance_timeout_ms
        group.deadlines.set(_PHASE, now_ms + delay_ms)
    elif group.is_initial or group.roster.all_joined:
        complete(group, now_ms)
    else:
        group.deadlines.set(_PHASE, now_ms + group.roster.rebalance_timeout_ms)


def complete(group: ClassicGroup, now_ms: int) -> None:
    """End the join phase and begin a new generation with the joined members."""
    group.deadlines.cancel(_PHASE)
    for member in [*group.roster.members.values()]:
        if member.join is None and member.instance_id is None:
            group.remove(member)
    if group.roster.members and not group.roster.elect():
        # There are only static members, and none has joined: they keep their places for now.
        group.deadlines.set(_PHASE, now_ms + group.roster.rebalance_timeout_ms)
        return
    group.is_initial = False
    group.generation += 1
    # The number is persisted before any member receives it. If it were persisted only with the
    # assignment, a successor could give it to other members, and late requests of these members
    # would be accepted as theirs.
    group.mark()
    if group.roster.members:
        _announce(group, now_ms)
    else:
        group.state, group.protocol = ClassicState.EMPTY, None


def _announce(group: ClassicGroup, now_ms: int) -> None:
    group.state, group.protocol = ClassicState.COMPLETING, group.roster.choose_protocol()
    for member in group.roster.members.values():
        member.is_new = False
        held = group.roster.release_join(member)
        if held is not None:
            group.reply(held, group.join_response(member))
        group.touch(member, now_ms)
    _await_syncs(group, now_ms)


def resume(group: ClassicGroup, now_ms: int) -> None:
    """Continue as a successor: all timeouts of members and of the phase start again."""
    for member in group.roster.members.values():
        group.touch(member, now_ms)
    if group.state is ClassicState.COMPLETING:
        _await_syncs(group, now_ms)
    elif group.state is ClassicState.PREPARING:
        group.deadlines.set(_PHASE, now_ms + group.roster.rebalance_timeout_ms)


def _await_syncs(group: ClassicGroup, now_ms: int) -> None:
    group.unsynced.update(group.roster.members)
    group.deadlines.set(_PHASE, now_ms + group.roster.rebalance_timeout_ms)


def settle(group: ClassicGroup, assignments: dict[str, bytes], now_ms: int) -> None:
    """Store the leader's assignment and send each member its part; the group is stable."""
    group.state = ClassicState.STABLE
    group.mark()
    for member in group.roster.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        held, member.sync = member.sync, None
        if held is not None:
            group.reply(held, group.sync_response(member))
            group.touch(member, now_ms)


def expire(group: ClassicGroup, now_ms: int) -> None:
    """Process expired deadlines; members that are out of time are removed."""
    due = set(group.deadlines.take(now_ms))
    if _PHASE in due and group.state is not ClassicState.PREPARING:
        due |= group.unsynced
    late = [member for key, member in group.roster.members.items() if key in due]
    for member in late:
        group.remove(member)
    group.roster.pending -= due
    if _PHASE in due and group.state is ClassicState.PREPARING:
        _end_joining(group, now_ms)
    elif late:
        advance(group, now_ms)
    else:
        complete_if_joined(group, now_ms)


def _end_joining(group: ClassicGroup, now_ms: int) -> None:
    if group.is_initial and group.has_newcomer and now_ms < group.initial_end_ms:
        group.has_newcomer = False
        next_ms = now_ms + group.settings.initial_rebalance_delay_ms
        group.deadlines.set(_PHASE, min(next_ms, group.initial_end_ms))
    else:
        complete(group, now_ms)


def _knows_no_id(request: MachineRequest) -> bool:
    """Return whether a new member does not know its id and will rejoin as another one."""
    message = request.message
    return isinstance(message, JoinGroupRequest) and not message.member_id
