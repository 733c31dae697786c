"""Moves a member from its current partitions to its target (KIP-848). Pure.

    has its target ──new target──► nothing to revoke ──► gets free partitions ──► has its target
                        │                   ▲                      │
                        └──► must revoke ───┘                      └──► waits for the others
                             (keeps its epoch until it reports it)      (retries at each heartbeat)

A partition belongs to its member until the member reports that it has revoked it, or is fenced. No
other member gets it before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rookery.broker.groups.consumer.assign import Place, Places

NONE: Final[Places] = frozenset()


class MemberHolding(NamedTuple):
    """A member's current partitions."""

    epoch: int
    """The group epoch that it has reached."""
    assigned: Places = NONE
    """The partitions that it can own."""
    revoked: Places = NONE
    """The partitions that it must revoke and has not revoked yet."""
    is_waiting: bool = False
    """Whether its target has partitions that others have not revoked yet."""

    @property
    def all_places(self) -> Places:
        """All partitions that are not free for others."""
        return self.assigned | self.revoked


class MemberTarget(NamedTuple):
    """A member's target partitions."""

    epoch: int
    places: Places


def reconcile(
    holding: MemberHolding,
    target: MemberTarget,
    owned: Places | None,
    is_free: Callable[[Place], bool],
) -> MemberHolding:
    """Return the member's partitions after its next step.

    Args:
        holding: the member's current partitions.
        target: its target.
        owned: the partitions that it reports as owned; None if unchanged.
        is_free: returns whether no other member has a partition.
    """
    if holding.revoked and _owns(owned, holding.revoked):
        return holding
    has_all = not holding.revoked and not holding.is_waiting
    if has_all and holding.epoch == target.epoch:
        return holding
    kept = holding.assigned & target.places
    revoked = holding.assigned - kept
    if revoked and _owns(owned, revoked):
        return MemberHolding(holding.epoch, kept, revoked)
    wanted = target.places - kept
    gets = frozenset(filter(is_free, wanted))
    return MemberHolding(target.epoch, kept | gets, is_waiting=len(gets) < len(wanted))


def _owns(owned: Places | None, places: Places) -> bool:
    return owned is None or not owned.isdisjoint(places)
