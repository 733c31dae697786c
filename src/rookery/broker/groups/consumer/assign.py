"""The assignors that a coordinator offers (KIP-848), as pure functions.

Both start from the current target assignment and change as little of it as possible.

- `uniform` balances the number of partitions per member, regardless of topics.
- `range` assigns contiguous partitions of each topic. Topics with equal subscribers and partition
  counts are split alike, so that records with the same key reach the same member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heapreplace
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

Place: TypeAlias = tuple[bytes, int]
"""A topic id and a partition index."""
Places: TypeAlias = frozenset[Place]


class AssignedMember(NamedTuple):
    """A member, as an assignor sees it."""

    topics: frozenset[bytes]
    """The ids of the topics that the member subscribes to."""
    current: Places
    """Its current target; it can contain partitions that are deleted or no longer subscribed to."""


Assignor: TypeAlias = Callable[
    [Mapping[bytes, int], Mapping[str, AssignedMember]], dict[str, Places]
]
"""Takes the partition count of each topic and the members; returns each member's assignment."""


def uniform(
    topics: Mapping[bytes, int], members: Mapping[str, AssignedMember]
) -> dict[str, Places]:
    """Assign every partition to a subscriber of its topic, with balanced counts.

    In the result no partition can move, directly or through other members, from one member to
    another that has fewer by two or more.
    """
    hands = _Hands(topics, members)
    hands.keep()
    hands.deal()
    hands.balance()
    return {member: frozenset(hands.places(member)) for member in members}


class _Hands:
    """The partitions that each member holds during the assignment."""

    def __init__(self, topics: Mapping[bytes, int], members: Mapping[str, AssignedMember]) -> None:
        self._counts = topics
        self._members = members
        alike: dict[frozenset[bytes], list[bytes]] = {}
        for member in members.values():
            if member.topics not in alike:
                alike[member.topics] = sorted(member.topics & topics.keys())
        self._wanted = {
            member: alike[assigned.topics] for member, assigned in sorted(members.items())
        }
        """The topics each member subscribes to; members with equal subscriptions share one list."""
        self._held: dict[str, dict[bytes, list[int]]] = {member: {} for member in self._wanted}
        self._loads = dict.fromkeys(self._wanted, 0)
        self._holders: dict[bytes, dict[str, None]] = {topic: {} for topic in topics}
        self._free: dict[bytes, list[int]] = {}

    def places(self, member: str) -> list[Place]:
        """Return the partitions that a member holds."""
        held = self._held[member]
        return [(topic, partition) for topic, some in held.items() for partition in some]

    def keep(self) -> None:
        """Keep current partitions that still exist and are still subscribed to."""
        taken: set[Place] = set()
        for member, wanted in self._wanted.items():
            known = set(wanted)
            for place in sorted(self._members[member].current):
                topic, partition = place
                is_there = topic in known and partition < self._counts[topic]
                if is_there and place not in taken:
                    taken.add(place)
                    self._give(member, topic, partition)
        for topic, count in sorted(self._counts.items()):
            free = [number for number in range(count) if (topic, number) not in taken]
            if free:
                self._free[topic] = free

    def deal(self) -> None:
        """Assign free partitions to the least loaded subscribers.

        Topics with the fewest subscribers come first.
        """
        shared = _by_subscribers(self._free, self._members)
        for names, topics in sorted(shared, key=lambda row: len(row[0])):
            pile = [(self._loads[member], member) for member in names]
            heapify(pile)
            for topic in topics:
                self._deal_topic(topic, pile)

    def _deal_topic(self, topic: bytes, pile: list[tuple[int, str]]) -> None:
        """Assign a topic's free partitions, using a heap of subscribers by load."""
        for partition in self._free[topic]:
            member = pile[0][1]
            self._give(member, topic, partition)
            heapreplace(pile, (self._loads[member], member))

    def balance(self) -> None:
        """Move single partitions to the least loaded members until the assignment is balanced."""
        settled: set[str] = set()
        while True:
            most = max(self._loads.values(), default=0)
            poor = [name for name, load in self._loads.items() if load <= most - 2]
            poor = [name for name in poor if name not in settled]
            if not poor:
                return
            member = min(poor, key=self._loads.__getitem__)
            if not self._bring_one(member, most):
                # All members that could pass a partition to this one hold at most one more. Members
                # processed later hold no fewer partitions, so they take nothing from there, and
                # nothing changes there.
                settled.add(member)

    def _bring_one(self, poorest: str, most: int) -> bool:
        """Move one partition to a member from the most loaded one that can pass one on to it."""
        steps: dict[str, tuple[str, bytes]] = {poorest: ("", b"")}
        richest = poorest
        for member, topic, holder in self._routes(poorest):
            steps[holder] = member, topic
            if self._loads[holder] > self._loads[richest]:
                richest = holder
            if self._loads[holder] == most:
                break
        if self._loads[richest] < self._loads[poorest] + 2:
            return False
        self._pass_on(richest, poorest, steps)
        return True

    def _routes(self, poorest: str) -> Iterator[tuple[str, bytes, str]]:
        """Search breadth-first: a member, a topic it subscribes to, and a holder of that topic."""
        reached, todo = {poorest}, [poorest]
        seen: set[bytes] = set()
        lists: set[int] = set()
        for member in todo:
            wanted = self._wanted[member]
            if id(wanted) in lists:
                continue
            lists.add(id(wanted))
            for topic in (new for new in wanted if new not in seen):
                seen.add(topic)
                for holder in self._holders[topic]:
                    if holder not in reached:
                        reached.add(holder)
                        todo.append(holder)
                        yield member, topic, holder

    def _pass_on(self, giver: str, poorest: str, steps: dict[str, tuple[str, bytes]]) -> None:
        while giver != poorest:
            taker, topic = steps[giver]
            self._give(taker, topic, self._take(giver, topic))
            giver = taker

    def _give(self, member: str, topic: bytes, partition: int) -> None:
        self._held[member].setdefault(topic, []).append(partition)
        self._holders[topic][member] = None
        self._loads[member] += 1

    def _take(self, member: str, topic: bytes) -> int:
        """Take the partition that was added last."""
        held = self._held[member][topic]
        partition = held.pop()
        if not held:
            del self._held[member][topic]
            del self._holders[topic][member]
        self._loads[member] -= 1
        return partition


def ranges(topics: Mapping[bytes, int], members: Mapping[str, AssignedMember]) -> dict[str, Places]:
    """Assign to every subscriber of a topic a range of its partitions, with balanced lengths.

    Topics with the same subscribers and partition counts are split alike. Members keep their
    current order, and new ones come last.
    """
    result: dict[str, set[Place]] = {member: set() for member in members}
    for names, some in _by_subscribers(topics, members):
        counts = {topic: topics[topic] for topic in some}
        stands = {name: _stand(members[name].current, counts) for name in names}
        order = sorted(names, key=lambda name: (stands[name], name))
        for topic, count in counts.items():
            for member, part in _cut(count, order):
                result[member].update((topic, partition) for partition in part)
    return {member: frozenset(places) for member, places in result.items()}


def _by_subscribers(
    topics: Iterable[bytes], members: Mapping[str, AssignedMember]
) -> list[tuple[list[str], list[bytes]]]:
    """Group topics by their sets of subscribers; equal subscriptions are handled once."""
    alike: dict[frozenset[bytes], list[str]] = {}
    for name in sorted(members):
        alike.setdefault(members[name].topics, []).append(name)
    wanting: dict[bytes, list[int]] = {topic: [] for topic in sorted(topics)}
    for number, wanted in enumerate(alike):
        for topic in wanted & wanting.keys():
            wanting[topic].append(number)
    shared: dict[tuple[int, ...], list[bytes]] = {}
    for topic, numbers in wanting.items():
        if numbers:
            shared.setdefault(tuple(numbers), []).append(topic)
    names = list(alike.values())
    return [
        (sorted(chain.from_iterable(names[number] for number in numbers)), some)
        for numbers, some in shared.items()
    ]


def _stand(current: Places, counts: Mapping[bytes, int]) -> float:
    """Return the relative position of a member in these topics: 0 to 1, and 1 if it has none."""
    stands = (number / counts[topic] for topic, number in current if topic in counts)
    return min(stands, default=1.0)


def _cut(count: int, members: list[str]) -> list[tuple[str, range]]:
    """Split a topic into ranges; the first ones are longer by one if necessary."""
    size, longer = divmod(count, len(members))
    starts = [index * size + min(index, longer) for index in range(len(members) + 1)]
    return [(member, range(starts[at], starts[at + 1])) for at, member in enumerate(members)]


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": ranges}
"""The assignors by name; the first is the default."""


def choose_assignor(preferences: Iterable[str | None]) -> str:
    """Return the assignor that most members prefer, or the default one."""
    votes = Counter(name for name in preferences if name in ASSIGNORS)
    default = next(iter(ASSIGNORS))
    return max(ASSIGNORS, key=lambda name: (votes[name], name == default))
