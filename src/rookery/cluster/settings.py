"""Settings of members of the cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """How a member behaves."""

    beat_ms: int = 3_000
    """A member beats after this long without an entry of its own."""
    retry_ms: int = 1_000
    """The pause between two registrations while the cluster log is out of reach."""
    leave_ms: int = 5_000
    """How long a member tries to leave in order."""
    max_registrations: int = 1
    """How many incarnations to register until the owner can use one."""
    is_eager: bool = False
    """Whether the member rejoins as soon as it must; else it waits for the next `join`."""
