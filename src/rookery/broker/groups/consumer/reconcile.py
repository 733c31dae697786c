"""How a member gets from what it has to what it shall have (KIP-848). Pure.

    has all it shall have ──new target──► nothing to give up ──► gets what is free ──► has all
                              │                    ▲                      │
                              └──► must give up ───┘                      └──► waits for the rest
                                   (stays in its epoch until it says so)      (asks again each beat)

A partition counts as its member's until that says it has let it go, or is fenced: nobody else gets
it before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rookery.broker.groups.consumer.assign import Place, Places

NONE: Final[Places] = frozenset()


class MemberHolding(NamedTuple):
    """What a member has."""

    epoch: int
    """The group's epoch that it has come to."""
    assigned: Places = NONE
    """What it may own."""
    revoked: Places = NONE
    """What it must give up, and has not yet."""
    is_waiting: bool = False
    """Whether it shall have more, which others have not given up yet."""

    @property
    def all_places(self) -> Places:
        """All that is not free for others."""
        return self.assigned | self.revoked


class MemberTarget(NamedTuple):
    """What a member shall have."""

    epoch: int
    places: Places


def reconcile(
    holding: MemberHolding,
    target: MemberTarget,
    owned: Places | None,
    is_free: Callable[[Place], bool],
) -> MemberHolding:
    """Take the next step.

    Args:
        holding: what the member has.
        target: what it shall have.
        owned: what it says it owns; None if it says nothing, which is as before.
        is_free: whether nobody else has a partition.
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
