"""Who reads which partition of a classic group, when we are its leader. No I/O is done here.

It does what Kafka's `cooperative-sticky` assignor promises, so that members of other makes can be
in the same group: all have about as many partitions, as few as possible move, and one that moves
is given to nobody until the member that has it has let it go and joined again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rookery.model.partition import TopicPartition

NAME: Final = "cooperative-sticky"
"""What members call it."""


class MemberClaim(NamedTuple):
    """A member, as the leader sees it."""

    topics: frozenset[str]
    """What it wants to read."""
    owned: frozenset[TopicPartition] = frozenset()
    """What it says to own."""
    generation: int = -1
    """Since when; of two claims the later one counts."""


def assign(
    counts: Mapping[str, int], members: Mapping[str, MemberClaim]
) -> dict[str, set[TopicPartition]]:
    """Return what each member shall read from now on.

    Args:
        counts: how many partitions each topic has; those that do not exist are left out.
        members: by their ids.
    """
    hands = _kept(counts, members)
    _deal(counts, members, hands)
    _balance(members, hands)
    return {
        member: {place for place in hand if _may_have(place, member, members)}
        for member, hand in hands.items()
    }


def _kept(
    counts: Mapping[str, int], members: Mapping[str, MemberClaim]
) -> dict[str, set[TopicPartition]]:
    """Let all have what is theirs; what two claim alike is nobody's."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member, claim in members.items():
        for place in claim.owned:
            if place.topic in claim.topics and place.partition < counts.get(place.topic, 0):
                claims.setdefault(place, []).append((claim.generation, member))
    hands: dict[str, set[TopicPartition]] = {member: set() for member in sorted(members)}
    for place, many in claims.items():
        latest = max(generation for generation, _ in many)
        owners = [member for generation, member in many if generation == latest]
        if len(owners) == 1:
            hands[owners[0]].add(place)
    return hands


def _deal(
    counts: Mapping[str, int],
    members: Mapping[str, MemberClaim],
    hands: dict[str, set[TopicPartition]],
) -> None:
    """Give what is free to those who have least."""
    taken = set().union(*hands.values())
    for topic, count in sorted(counts.items()):
        readers = [member for member in hands if topic in members[member].topics]
        for number in range(count if readers else 0):
            place = TopicPartition(topic, number)
            if place not in taken:
                hands[min(readers, key=lambda one: len(hands[one]))].add(place)


def _balance(members: Mapping[str, MemberClaim], hands: dict[str, set[TopicPartition]]) -> None:
    """Move partitions from those who have more to those who have less by two or more."""
    while True:
        order = sorted(hands, key=lambda one: len(hands[one]))
        for poor in order:
            rich = next(
                (
                    one
                    for one in reversed(order)
                    if len(hands[one]) - len(hands[poor]) > 1
                    and any(place.topic in members[poor].topics for place in hands[one])
                ),
                None,
            )
            if rich is not None:
                spare = max(p for p in hands[rich] if p.topic in members[poor].topics)
                hands[rich].remove(spare)
                hands[poor].add(spare)
                break
        else:
            return


def _may_have(place: TopicPartition, member: str, members: Mapping[str, MemberClaim]) -> bool:
    """Tell whether nobody else still holds a partition."""
    if place in members[member].owned:
        return True
    return not any(place in claim.owned for claim in members.values())
