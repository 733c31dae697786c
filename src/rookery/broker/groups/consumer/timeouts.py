"""The timeouts of a consumer group's members; a member that exceeds one is removed."""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.deadlines import Deadlines
from rookery.broker.groups.consumer.member import GroupMember

# The kinds of deadlines, used as the first word of a deadline's key.
_SESSION: Final = "session"
_REVOCATION: Final = "revocation"
_JOIN: Final = "join"
_SYNC: Final = "sync"
_KINDS: Final = (_SESSION, _REVOCATION, _JOIN, _SYNC)


class MemberTimeouts:
    """The deadlines by which members must send a heartbeat, revoke partitions, join or sync."""

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        self._deadlines: Deadlines[str] = Deadlines()

    @property
    def next_ms(self) -> int | None:
        """A time before which no deadline expires; None if there are no deadlines."""
        return self._deadlines.next_ms

    def take(self, now_ms: int) -> list[str]:
        """Remove the expired deadlines; return the ids of their members."""
        return [key.partition(" ")[2] for key in self._deadlines.take(now_ms)]

    def restart_session(self, member: GroupMember, timeout_ms: int, now_ms: int) -> None:
        """Restart a member's session timeout."""
        self._deadlines.set(_key(_SESSION, member), now_ms + timeout_ms)

    def await_revocation(self, member: GroupMember, now_ms: int) -> None:
        """Start the timeout in which a member must report that it has revoked partitions."""
        self._deadlines.set(_key(_REVOCATION, member), now_ms + member.rebalance_timeout_ms)

    def end_revocation(self, member: GroupMember) -> None:
        """Stop waiting for a member's revocation."""
        self._deadlines.cancel(_key(_REVOCATION, member))

    def await_join(self, member: GroupMember, now_ms: int) -> None:
        """Start the timeout in which a classic member must rejoin."""
        key = _key(_JOIN, member)
        if key not in self._deadlines:
            self._deadlines.set(key, now_ms + member.rebalance_timeout_ms)

    def await_sync(self, member: GroupMember, now_ms: int) -> None:
        """Start the timeout in which a classic member that joined must sync."""
        self._deadlines.cancel(_key(_JOIN, member))
        self._deadlines.set(_key(_SYNC, member), now_ms + member.rebalance_timeout_ms)

    def end_sync(self, member: GroupMember) -> None:
        """Stop waiting for a member's SyncGroup."""
        self._deadlines.cancel(_key(_SYNC, member))

    def end_classic(self, member: GroupMember) -> None:
        """Cancel the deadlines that only classic members have."""
        self._deadlines.cancel(_key(_JOIN, member))
        self._deadlines.cancel(_key(_SYNC, member))

    def end_all(self, member: GroupMember) -> None:
        """Cancel all deadlines of a member."""
        for kind in _KINDS:
            self._deadlines.cancel(_key(kind, member))


def _key(kind: str, member: GroupMember) -> str:
    return f"{kind} {member.member_id}"
