"""Delegation tokens, as all brokers agree on them."""

from __future__ import annotations

from typing import NamedTuple


class StoredToken(NamedTuple):
    """A token; its password is derived from its id. Principals are written as in `User:alice`."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over; its last millisecond still counts, as in Kafka."""
        return min(self.expires_ms, self.max_ms) < now_ms

    @property
    def principals(self) -> set[str]:
        """Everyone that it belongs to: its owner, its requester and its renewers."""
        return {self.owner, self.requester, *self.renewers}

    def may_change(self, principal: str) -> bool:
        """Whether a principal can renew and expire it: its owner and its renewers can."""
        return principal == self.owner or principal in self.renewers
