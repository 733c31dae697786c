"""Groups of the classic protocol (JoinGroup, SyncGroup) in `__consumer_offsets`."""

from __future__ import annotations

from rookery.wire.message import GroupId, MemberId, Message, field, i32, i64


class GroupMetadataKey(Message, key=2, versions=range(1), flexible=None):
    """The group that the value describes."""

    group: GroupId


class GroupMetadataValue(Message, key=2, versions=range(5), flexible=4):
    """A group as it stood after its last rebalance.

    Versions:
        1 adds each member's rebalance timeout.
        2 adds when the group came into its state, from which its offsets age (KIP-211).
        3 adds static members (KIP-345).
    """

    protocol_type: str  # "consumer" for consumers, "connect" for Kafka Connect
    generation: i32
    protocol: str | None  # the assignor that all agreed on; null in an empty group
    leader: MemberId | None
    current_state_timestamp: i64 = field(since=2, default=-1)
    members: list[MemberMetadata]


class MemberMetadata(Message):
    """One member, with what it asked for and what it got."""

    member_id: MemberId
    group_instance_id: str | None = field(since=3, default=None)
    client_id: str
    client_host: str  # where the client connects from, not a broker's address
    rebalance_timeout: i32 = field(since=1, default=-1)  # ms
    session_timeout: i32  # ms
    subscription: bytes  # for consumers: see wire.protocols.consumer
    assignment: bytes
