"""The persisted state of a classic group: enough for a successor to continue.

Kafka's own record (`GroupMetadataValue`) is not sufficient. It has only the chosen protocol's
metadata, so after a failover every rejoining member seems changed. It has no state, so a generation
between JoinGroup and SyncGroup looks like one that has its assignment.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.groups.classic.group import ClassicGroup, ClassicState
from rookery.broker.groups.classic.rebalance import resume
from rookery.broker.groups.classic.roster import RosterMember
from rookery.broker.groups.settings import ClassicSettings
from rookery.errors import ApiError, Corrupt, ProtocolError
from rookery.wire.message import GroupId, MemberId, Message, i8, i32
from rookery.wire.protocols import versionedbytes

_PHASES: Final = {
    ClassicState.EMPTY: 0,
    ClassicState.COMPLETING: 1,
    ClassicState.STABLE: 2,
    ClassicState.PREPARING: 3,
}
_STATES: Final = {phase: state for state, phase in _PHASES.items()}


class ClassicGroupBody(Message, versions=range(1), flexible=0):
    """The last persisted state of a classic group."""

    group_id: GroupId
    phase: i8
    generation: i32
    protocol_type: str | None
    protocol: str | None
    leader: MemberId | None
    members: list[ClassicMember]


class ClassicMember(Message):
    """One member, with its subscription and its assignment."""

    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: i32
    rebalance_timeout_ms: i32
    protocols: list[ClassicProtocol]
    assignment: bytes


class ClassicProtocol(Message):
    """An assignor that a member supports, and the member's metadata for it."""

    name: str
    metadata: bytes


def keep(group: ClassicGroup) -> bytes:
    """Encode the state of a group for a successor, version first."""
    body = ClassicGroupBody(
        group_id=group.group_id,
        phase=_PHASES[group.state],
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.roster.leader,
        members=[_from_member(member) for member in group.roster.members.values()],
    )
    return versionedbytes.write(body, 0)


def restore(body: bytes, settings: ClassicSettings, now_ms: int) -> ClassicGroup:
    """Return a group from its persisted state; all timeouts of its members start again.

    Raises:
        Corrupt: the bytes are not a group, or the version is newer than ours.
    """
    kept = _read(body)
    group = ClassicGroup(kept.group_id, settings)
    group.state = _STATES[kept.phase]
    group.generation = kept.generation
    group.protocol_type, group.protocol = kept.protocol_type, kept.protocol
    for member in kept.members:
        group.roster.add(_to_member(member))
    group.roster.leader = kept.leader
    resume(group, now_ms)
    return group


def _read(body: bytes) -> ClassicGroupBody:
    try:
        group, _ = versionedbytes.read_exactly(ClassicGroupBody, body)
    except ProtocolError as error:
        raise Corrupt(f"a classic group's state cannot be read: {error}") from error
    except ApiError as error:
        raise Corrupt(f"a classic group's state is newer than this broker: {error.text}") from error
    ids: set[str | None] = {member.member_id for member in group.members}
    if group.phase not in _STATES or group.leader not in (ids or {None}):
        raise Corrupt(
            f"group {group.group_id} is persisted in phase {group.phase} with leader {group.leader}"
        )
    return group


def _from_member(member: RosterMember) -> ClassicMember:
    """Return the persisted form of a member."""
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=[
            ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in member.protocols.items()
        ],
        assignment=member.assignment,
    )


def _to_member(kept: ClassicMember) -> RosterMember:
    """Return the member for its persisted form."""
    return RosterMember(
        member_id=kept.member_id,
        instance_id=kept.instance_id,
        client_id=kept.client_id,
        client_host=kept.client_host,
        session_timeout_ms=kept.session_timeout_ms,
        rebalance_timeout_ms=kept.rebalance_timeout_ms,
        protocols={protocol.name: protocol.metadata for protocol in kept.protocols},
        assignment=kept.assignment,
    )
