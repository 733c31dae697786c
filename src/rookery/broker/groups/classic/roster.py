"""The members of a classic group, with their joins, their protocols and the leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rookery.broker.coordination.machine import MachineRequest


@dataclass(slots=True)
class RosterMember:
    """One member: its parameters, its assignment, and its held requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    """The member's metadata for each assignor, the preferred one first."""
    assignment: bytes = b""
    join: MachineRequest | None = None
    """A JoinGroup that waits for the other members."""
    sync: MachineRequest | None = None
    """A SyncGroup that waits for the leader's."""
    is_new: bool = False
    """Whether none of its JoinGroups was answered yet."""

    @property
    def is_held(self) -> bool:
        """Whether a request of it is held, so that it owes no heartbeat."""
        return self.join is not None or self.sync is not None

    @property
    def size_bytes(self) -> int:
        """The size of its metadata in the persisted group."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols.items())

    def matches(self, protocols: dict[str, bytes]) -> bool:
        """Return whether the protocols are unchanged, including their order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        """Return the candidate that it prefers."""
        return next(name for name in self.protocols if name in candidates)


class Roster:
    """A group's members; aggregate values are maintained incrementally, never searched for."""

    __slots__ = ("_support", "joined", "leader", "members", "pending", "size_bytes", "static")

    def __init__(self) -> None:
        self.members: dict[str, RosterMember] = {}
        self.static: dict[str, str] = {}
        """Member ids by group.instance.id."""
        self.pending: set[str] = set()
        """Assigned ids (KIP-394) with which no member has joined yet."""
        self.leader: str | None = None
        self.joined = 0
        """The number of members whose JoinGroup is held."""
        self.size_bytes = 0
        """The size of their metadata, which is persisted with the group."""
        self._support: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.members)

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined and no id is pending."""
        return self.joined == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: RosterMember) -> None:
        """Add a member; the first one leads."""
        self.pending.discard(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.joined += member.join is not None
        self._count(member.protocols, 1)

    def remove(self, member: RosterMember) -> None:
        """Remove a member; if it led, the oldest remaining member leads."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self.joined -= member.join is not None
        self._count(member.protocols, -1)

    def rename(self, member: RosterMember, new_id: str) -> None:
        """Give a static member another id; a client with the old id is fenced."""
        leads = self.leader == member.member_id
        self.remove(member)
        member.member_id = new_id
        self.add(member)
        if leads:
            self.leader = new_id

    def hold_join(self, member: RosterMember, request: MachineRequest) -> None:
        """Hold a member's JoinGroup."""
        self.joined += member.join is None
        member.join = request

    def release_join(self, member: RosterMember) -> MachineRequest | None:
        """Return a member's held JoinGroup, if any, and release it."""
        held, member.join = member.join, None
        self.joined -= held is not None
        return held

    def change_protocols(self, member: RosterMember, protocols: dict[str, bytes]) -> None:
        """Replace the protocols that a member supports."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def elect(self) -> bool:
        """Choose a leader that has joined; return whether there is one."""
        if self.leader is not None and self.members[self.leader].join is None:
            joined = (key for key, member in self.members.items() if member.join is not None)
            self.leader = next(joined, self.leader)
        return self.leader is not None and self.members[self.leader].join is not None

    def supports_any(self, names: Iterable[str]) -> bool:
        """Return whether all members support one of these protocols."""
        return any(self._support[name] == len(self.members) for name in names)

    def choose_protocol(self) -> str:
        """Return the protocol that all members support and most prefer; older members break ties.

        Each member has one in common with the others; otherwise it could not have joined.
        """
        size = len(self.members)
        candidates = {name for name, count in self._support.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: dict[str, bytes], sign: int) -> None:
        for name, metadata in protocols.items():
            self._support[name] += sign
            self.size_bytes += sign * (len(name) + len(metadata))
            if not self._support[name]:
                del self._support[name]
