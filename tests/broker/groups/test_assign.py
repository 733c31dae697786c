"""The assignors: every partition once, balanced, with few moves."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.broker.groups.consumer.assign import (
    ASSIGNORS,
    AssignedMember,
    Assignor,
    Places,
    ranges,
    uniform,
)

Topics = dict[bytes, int]
Plan = dict[str, Places]

topic_ids = st.integers(0, 4).map(lambda number: bytes([number]) * 16)
counts = st.dictionaries(topic_ids, st.integers(1, 12), max_size=5)
names = st.integers(0, 7).map(lambda number: f"member-{number}")
places = st.frozensets(st.tuples(topic_ids, st.integers(0, 12)), max_size=12)
subscribers = st.builds(AssignedMember, st.frozensets(topic_ids, max_size=5), places)
groups = st.dictionaries(names, subscribers, max_size=7)
each = pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)


def alike(
    topics: Topics, members: list[str], plan: Plan | None = None
) -> dict[str, AssignedMember]:
    """Let all members subscribe to all topics."""
    known = frozenset(topics)
    return {name: AssignedMember(known, (plan or {}).get(name, frozenset())) for name in members}


def moved(before: Plan, after: Plan) -> int:
    """Count the partitions that a member gets from a member that is still there."""
    kept = frozenset().union(*(before[name] for name in before if name in after))
    return sum(len((after[name] - before.get(name, frozenset())) & kept) for name in after)


@each
@given(topics=counts, members=groups)
def test_every_subscribed_partition_is_assigned_once(
    assign: Assignor, topics: Topics, members: dict[str, AssignedMember]
) -> None:
    plan = assign(topics, members)
    assert plan.keys() == members.keys()
    given_out = Counter(place for some in plan.values() for place in some)
    wanted = frozenset[bytes]().union(*(member.topics for member in members.values()))
    expected = {(topic, at) for topic in topics if topic in wanted for at in range(topics[topic])}
    assert set(given_out) == expected
    assert set(given_out.values()) <= {1}
    for name, some in plan.items():
        assert {topic for topic, _ in some} <= members[name].topics


@each
@given(topics=counts, members=groups)
def test_repeated_assignment_changes_nothing(
    assign: Assignor, topics: Topics, members: dict[str, AssignedMember]
) -> None:
    plan = assign(topics, members)
    again = {name: AssignedMember(member.topics, plan[name]) for name, member in members.items()}
    assert assign(topics, again) == plan


@given(topics=counts, size=st.integers(1, 9), held=st.lists(places, min_size=9, max_size=9))
def test_uniform_gives_equal_members_equal_counts_or_one_more(
    topics: Topics, size: int, held: list[Places]
) -> None:
    members = {f"m{at}": AssignedMember(frozenset(topics), held[at]) for at in range(size)}
    loads = [len(some) for some in uniform(topics, members).values()]
    assert max(loads) - min(loads) <= 1


@given(topics=counts, members=groups)
def test_uniform_leaves_no_member_below_its_fair_share(
    topics: Topics, members: dict[str, AssignedMember]
) -> None:
    plan = uniform(topics, members)
    for name in members:
        reached = _givers(plan, members, name)
        assert all(len(plan[giver]) <= len(plan[name]) + 1 for giver in reached)


def _givers(plan: Plan, members: dict[str, AssignedMember], taker: str) -> set[str]:
    """Return all members that could pass a partition on to the taker, over others or not."""
    reached = {taker}
    while True:
        wanted = frozenset[bytes]().union(*(members[name].topics for name in reached))
        more = {name for name in plan if wanted & {topic for topic, _ in plan[name]}} | reached
        if more == reached:
            return reached
        reached = more


@given(topics=counts, size=st.integers(1, 9), joins=st.booleans())
def test_uniform_moves_as_few_partitions_as_possible(
    topics: Topics, size: int, joins: bool
) -> None:
    members = [f"m{at}" for at in range(size)]
    before = uniform(topics, alike(topics, members))
    members = [*members, "new"] if joins else members[1:]
    if not members:
        return
    after = uniform(topics, alike(topics, members, before))
    total = sum(topics.values())
    # A new member must get its share from others; what a lost one had is free, the rest stays.
    assert moved(before, after) == (total // len(members) if joins else 0)


def test_range_splits_equal_topics_at_the_same_partitions() -> None:
    topics = {b"a" * 16: 7, b"b" * 16: 7, b"c" * 16: 2}
    plan = ranges(topics, alike(topics, ["x", "y", "z"]))
    for name, expected in {"x": {0, 1, 2}, "y": {3, 4}, "z": {5, 6}}.items():
        for topic in (b"a" * 16, b"b" * 16):
            assert {at for assigned, at in plan[name] if assigned == topic} == expected
    assert [len([1 for topic, _ in plan[name] if topic == b"c" * 16]) for name in plan] == [1, 1, 0]


@given(topics=counts, members=groups)
def test_range_assigns_adjacent_partitions_in_equal_shares(
    topics: Topics, members: dict[str, AssignedMember]
) -> None:
    plan = ranges(topics, members)
    for topic in topics:
        parts = [
            sorted(at for assigned, at in plan[name] if assigned == topic)
            for name in members
            if topic in members[name].topics
        ]
        if parts:
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert all(part == list(range(part[0], part[-1] + 1)) for part in parts if part)


def test_range_keeps_the_order_of_members() -> None:
    topics = {b"a" * 16: 4}
    before = ranges(topics, alike(topics, ["m", "z"]))
    after = ranges(topics, alike(topics, ["a", "m", "z"], before))
    assert {at for _, at in after["m"]} == {0, 1}
    assert {at for _, at in after["z"]} == {2}
    assert {at for _, at in after["a"]} == {3}


@each
def test_work_is_linear_in_members_and_partitions(assign: Assignor) -> None:
    topics = {bytes([at]) * 16: 100 for at in range(10)}
    members = [f"member-{at:03}" for at in range(100)]
    before = assign(topics, alike(topics, members))
    wanted = alike(topics, [*members, "member-new"], before)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        assign(topics, wanted)
    finally:
        sys.setprofile(None)
    # Not with their product, which is 101 000.
    assert calls < 30_000
