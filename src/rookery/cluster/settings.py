"""Settings of cluster members."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The timing and retry behaviour of a member."""

    beat_ms: int = 3_000
    """A member sends a heartbeat after this long without an entry of its own."""
    lease_ms: int = 10_000
    """How long after an entry of its own a member decides by the access rules and users that it has
    applied; the others must wait as long for it (`cluster/agreement.py`)."""
    retry_ms: int = 1_000
    """The pause between registration attempts while the cluster log is unreachable."""
    leave_ms: int = 5_000
    """How long a member tries to leave cleanly."""
    max_registrations: int = 1
    """The maximum number of incarnations to register until the owner can use one."""
    is_eager: bool = False
    """Whether the member rejoins immediately when needed; otherwise the next `join` does it."""
