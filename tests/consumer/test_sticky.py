"""The assignor of classic groups: balanced, sticky, and never two owners at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.consumer.group.sticky import MemberClaim, assign
from rookery.model.partition import TopicPartition as Place

COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1)
NAMES = st.lists(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), min_size=1, unique=True)


def settled(counts: dict[str, int], members: dict[str, MemberClaim]) -> dict[str, MemberClaim]:
    """Let members join again, after applying their assignments, until nothing moves."""
    for generation in range(10):
        given_now = assign(counts, members)
        told = {
            name: MemberClaim(claim.topics, frozenset(given_now[name]), generation)
            for name, claim in members.items()
        }
        if all(told[name].owned == claim.owned for name, claim in members.items()):
            return told
        members = told
    raise AssertionError(f"it does not come to rest: {members}")


def owned(members: dict[str, MemberClaim]) -> list[Place]:
    return sorted(place for claim in members.values() for place in claim.owned)


@settings(deadline=None, max_examples=200)
@given(COUNTS, NAMES, st.data())
def test_all_partitions_are_assigned_once(
    counts: dict[str, int], names: list[str], data: st.DataObject
) -> None:
    topics = st.frozensets(st.sampled_from("abcd"), min_size=1)
    members = {name: MemberClaim(data.draw(topics)) for name in names}

    claims = settled(counts, members)

    wanted = {topic for claim in members.values() for topic in claim.topics}
    assert owned(claims) == sorted(
        Place(topic, n) for topic, count in counts.items() if topic in wanted for n in range(count)
    )
    for claim in claims.values():
        assert {place.topic for place in claim.owned} <= claim.topics


@settings(deadline=None, max_examples=200)
@given(COUNTS, NAMES, NAMES)
def test_membership_change_moves_as_few_partitions_as_possible(
    counts: dict[str, int], before: list[str], after: list[str]
) -> None:
    topics = frozenset(counts)
    first = settled(counts, {name: MemberClaim(topics) for name in before})
    joining = {name: first.get(name, MemberClaim(topics)) for name in after}

    step = assign(counts, joining)
    second = settled(counts, joining)

    sizes = sorted(len(claim.owned) for claim in second.values())
    assert sizes[-1] - sizes[0] <= 1
    # No member gets a partition that another still has.
    for name, places in step.items():
        others = {p for other, claim in joining.items() if other != name for p in claim.owned}
        assert not (places - joining[name].owned) & others
    # A member that stays gives up only partitions above an equal share.
    share = sum(counts.values()) // len(after)
    for name in set(before) & set(after):
        kept = len(first[name].owned & second[name].owned)
        assert kept >= min(len(first[name].owned), share)


def test_later_of_two_claims_takes_precedence() -> None:
    place, both = Place("a", 0), frozenset("a")
    late, early = MemberClaim(both, frozenset({place}), 7), MemberClaim(both, frozenset({place}), 5)

    assert assign({"a": 1}, {"x": early, "y": late}) == {"x": set(), "y": {place}}
    # Of two that are alike neither counts: both may keep it for a moment, and one must get it.
    assert assign({"a": 1}, {"x": late, "y": late}) == {"x": {place}, "y": set()}


def test_deleted_partitions_are_not_assigned() -> None:
    claim = MemberClaim(frozenset({"a", "gone"}), frozenset({Place("gone", 0), Place("a", 5)}), 3)

    assert assign({"a": 1}, {"x": claim}) == {"x": {Place("a", 0)}}
