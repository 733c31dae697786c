"""Assigns the partitions of a classic group when this member is its leader. No I/O.

It keeps the guarantees of Kafka's `cooperative-sticky` assignor, so that members of other clients
can join the same group. All members have about the same number of partitions, and as few as
possible move. A partition that moves is not assigned until its owner has released it and rejoined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rookery.model.partition import TopicPartition

NAME: Final = "cooperative-sticky"
"""The protocol name that members use."""


class MemberClaim(NamedTuple):
    """A member's subscription, as the leader sees it."""

    topics: frozenset[str]
    """The topics it subscribes to."""
    owned: frozenset[TopicPartition] = frozenset()
    """The partitions it reports to own."""
    generation: int = -1
    """The generation of the claim; of two claims, the later one counts."""


def assign(
    counts: Mapping[str, int], members: Mapping[str, MemberClaim]
) -> dict[str, set[TopicPartition]]:
    """Return the new assignment of each member.

    Args:
        counts: the partition count of each topic; topics that do not exist are left out.
        members: by their ids.
    """
    hands = _keep_claims(counts, members)
    _deal(counts, members, hands)
    _balance(members, hands)
    return {
        member: {place for place in hand if _may_have(place, member, members)}
        for member, hand in hands.items()
    }


def _keep_claims(
    counts: Mapping[str, int], members: Mapping[str, MemberClaim]
) -> dict[str, set[TopicPartition]]:
    """Let members keep their partitions; one that two claim equally is unassigned."""
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
    """Assign free partitions to the members with the fewest."""
    taken = set().union(*hands.values())
    for topic, count in sorted(counts.items()):
        readers = [member for member in hands if topic in members[member].topics]
        for number in range(count if readers else 0):
            place = TopicPartition(topic, number)
            if place not in taken:
                hands[min(readers, key=lambda reader: len(hands[reader]))].add(place)


def _balance(members: Mapping[str, MemberClaim], hands: dict[str, set[TopicPartition]]) -> None:
    """Move partitions from members that have at least two more than another member."""
    while True:
        order = sorted(hands, key=lambda member: len(hands[member]))
        for poor in order:
            rich = next(
                (
                    member
                    for member in reversed(order)
                    if len(hands[member]) - len(hands[poor]) > 1
                    and any(place.topic in members[poor].topics for place in hands[member])
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
    """Return whether no other member still holds a partition."""
    if place in members[member].owned:
        return True
    return not any(place in claim.owned for claim in members.values())
