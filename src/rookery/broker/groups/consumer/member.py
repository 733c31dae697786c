"""A member of a consumer group (KIP-848): its subscription and its partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rookery.broker.coordination.machine import MachineRequest, TopicViewer
from rookery.broker.groups.consumer.reconcile import MemberHolding
from rookery.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOINING: Final = 0
LEAVING: Final = -1
AWAY: Final = -2
"""The epoch of a static member that has left temporarily."""


@dataclass(frozen=True, slots=True)
class ClassicTerms:
    """The parameters with which a classic-protocol member joined."""

    session_timeout_ms: int
    protocols: dict[str, bytes]
    """The member's metadata for each of its assignors, the preferred one first."""

    @property
    def protocol(self) -> str:
        """The protocol that is reported to the member: its preferred one."""
        return next(iter(self.protocols))

    @property
    def size_bytes(self) -> int:
        """The size of its metadata in the persisted group."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols.items())


class ClassicSubscription(NamedTuple):
    """The subscription of a member that uses the classic protocol."""

    names: frozenset[str]
    rack_id: str | None
    rebalance_timeout_ms: int


@dataclass(slots=True)
class GroupMember:
    """One member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    names: frozenset[str] = frozenset()
    """The topics that it subscribes to by name …"""
    regex: str = ""
    """… and by a regular expression; empty for none."""
    assignor: str | None = None
    holding: MemberHolding = field(default=MemberHolding(JOINING))
    previous_epoch: int = LEAVING
    """The previous epoch: if a response is lost, the member does not know the new one."""
    classic: ClassicTerms | None = None
    """Set while it uses the classic protocol."""
    repeats_left: int = field(default=1, compare=False)
    """The number of responses that still repeat the assignment until the member reports it: a
    response can be lost, and not every client asks again. A new coordinator does not know which
    responses arrived, so it repeats the assignment."""

    viewer: TopicViewer | None = field(default=None, compare=False)
    """The client, whose permissions limit what its regular expression matches. None until its first
    request to this coordinator."""

    @property
    def epoch(self) -> int:
        """The group epoch that it has reached."""
        return self.holding.epoch

    def hold(self, holding: MemberHolding) -> None:
        """Replace the member's partitions and epoch."""
        if holding.epoch != self.holding.epoch:
            self.previous_epoch = self.holding.epoch
        self.holding = holding

    def go_away(self) -> None:
        """Own nothing until it is back; its target stays reserved."""
        self.holding, self.previous_epoch, self.classic = MemberHolding(AWAY), AWAY, None

    def update(self, request: MachineRequest, message: ConsumerGroupHeartbeatRequest) -> bool:
        """Apply the changes in a heartbeat; return whether anything changed."""
        before = self._describe()
        self.classic = None
        self.client_id, self.client_host = request.client_id, request.client_host
        self.viewer = request.viewer
        if message.instance_id is not None:
            self.instance_id = message.instance_id
        if message.rack_id is not None:
            self.rack_id = message.rack_id
        if message.rebalance_timeout_ms >= 0:
            self.rebalance_timeout_ms = message.rebalance_timeout_ms
        if message.server_assignor is not None:
            self.assignor = message.server_assignor
        if message.subscribed_topic_names is not None:
            self.names = frozenset(message.subscribed_topic_names)
        if message.subscribed_topic_regex is not None:
            self.regex = message.subscribed_topic_regex
        return self._describe() != before

    def update_classic(
        self, request: MachineRequest, wants: ClassicSubscription, terms: ClassicTerms
    ) -> bool:
        """Apply a JoinGroup; return whether anything changed."""
        before = self._describe()
        self.client_id, self.client_host = request.client_id, request.client_host
        self.rebalance_timeout_ms = wants.rebalance_timeout_ms
        self.rack_id = wants.rack_id if wants.rack_id is not None else self.rack_id
        self.names, self.regex, self.assignor = wants.names, "", None
        self.classic = terms
        return self._describe() != before

    @property
    def subscription(self) -> tuple[frozenset[str], str, str | None]:
        """The fields that influence the group's assignment."""
        return self.names, self.regex, self.assignor

    def _describe(self) -> tuple[object, ...]:
        identity = self.instance_id, self.rack_id, self.client_id, self.client_host
        terms = self.classic
        # Their order is the member's order of preference.
        protocols = None if terms is None else list(terms.protocols.items())
        classic = None if terms is None else terms.session_timeout_ms, protocols
        return *identity, self.rebalance_timeout_ms, self.subscription, classic

    def succeed(self, member_id: str) -> GroupMember:
        """Return a static member that replaces this one under another id."""
        return GroupMember(
            member_id=member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            names=self.names,
            regex=self.regex,
            assignor=self.assignor,
        )
