"""Checks a history for broken promises. Pure: events in, findings out.

To extend it: write a check that takes `Facts` and yields findings, and name it in `CHECKS`.

Nothing is found where Kafka promises nothing: records whose producer never learned of their fate
may be there or not, and a group's reader may see again what was not committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from tests.faults.history.events import COMMITTED, Event, Op, Place, Source, State
from tests.faults.history.facts import Facts, Outcome, Step


class Kind(StrEnum):
    """The kinds of broken promises."""

    LOST = "lost"
    """Acknowledged, committed, read by others, or passed over, but not read in the end."""
    DUPLICATE = "duplicate"
    """Sent once, and stored twice."""
    REORDERED = "reordered"
    """Two records of one producer in one partition, the later one first."""
    ABORTED_READ = "aborted read"
    """A reader of committed records saw one that was aborted, or not committed yet."""
    TORN = "torn transaction"
    """Only a part of a transaction is stored."""
    REGRESS = "offset regress"
    """A group's offset went back, or a reader did."""
    INCONSISTENT = "inconsistent offsets"
    """An offset has had two records, or an end has decreased."""
    COPY = "not exactly once"
    """A record was copied twice, or not at all although a transaction has committed it."""


class Finding(NamedTuple):
    """A broken promise."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def check(events: Iterable[Event]) -> list[Finding]:
    """Return everything that is wrong in a history."""
    facts = Facts(events)
    return [finding for each in CHECKS for finding in each(facts)]


def offsets_mean_one_thing(facts: Facts) -> Iterator[Finding]:
    """Compare the value of an offset wherever it was seen."""
    meaning: dict[tuple[Place, int], str] = {}
    told = set()
    for place, offset, value, who in _sightings(facts):
        known = meaning.setdefault((place, offset), value)
        if known != value and (place, offset) not in told:
            told.add((place, offset))
            yield Finding(
                Kind.INCONSISTENT, f"{place} {offset} was {known}, and for {who} it is {value}"
            )


def ends_go_forward(facts: Facts) -> Iterator[Finding]:
    """Check that no end is lower than one that was known before the question."""
    for (isolation, place), back in _going_back(
        facts.of(Op.SEEN_ENDS), lambda event: event.isolation
    ):
        yield Finding(Kind.INCONSISTENT, f"the {isolation} end of {place} went back {back}")


def nothing_is_lost(facts: Facts) -> Iterator[Finding]:
    """Check that the log finally has every acknowledged and committed record."""
    for value, offset in facts.acked.items():
        if facts.outcome(value) is not Outcome.COMMITTED or value in facts.visible:
            continue
        sent = facts.sent[value]
        if _is_partly_visible(facts, sent.who, sent.txn):
            continue  # torn
        yield Finding(Kind.LOST, f"{value}, acknowledged as {sent.place} {offset}")
    seen = {(step.place, step.offset, step.value) for step in facts.steps}
    for place, offset, value in sorted(seen):
        unfit = value not in facts.sent or facts.outcome(value) is not Outcome.UNKNOWN
        if value not in facts.visible and value not in facts.acked and not unfit:
            yield Finding(Kind.LOST, f"{value}, read as {place} {offset}")


def groups_read_all(facts: Facts) -> Iterator[Finding]:
    """Check that a group reads every record below what it has committed."""
    seen: dict[str, set[str]] = defaultdict(set)
    for step in facts.steps:
        seen[step.event.group].add(step.value)
    for (group, place), end in sorted(_committed_offsets(facts).items()):
        for offset, value in facts.committed.get(place, []) if group in seen else []:
            if offset < end and value not in seen[group]:
                kind = Kind.TORN if _mates(facts, value) & seen[group] else Kind.LOST
                what = f"{place} {offset} ({value}), though it has committed {end}"
                yield Finding(kind, f"group {group} never read {what}")


def members_skip_nothing(facts: Facts) -> Iterator[Finding]:
    """Check that a member which continues to read leaves out nothing, and moves forward."""
    rank = {
        place: {offset: number for number, (offset, _) in enumerate(records)}
        for place, records in facts.committed.items()
    }
    for step in facts.steps:
        if step.before is None:
            continue
        if step.offset <= step.before:
            yield Finding(Kind.REGRESS, f"{_reader(step)} read {step.offset} after {step.before}")
            continue
        ranks = rank.get(step.place, {})
        here, there = ranks.get(step.before), ranks.get(step.offset)
        if here is not None and there is not None and there > here + 1:
            left_out = facts.committed[step.place][here + 1 : there]
            yield _skipped(facts, step, left_out)


def nothing_is_twice(facts: Facts) -> Iterator[Finding]:
    """Check that no value is at two offsets."""
    for records_by_place in facts.log.values():
        places: dict[str, list[str]] = defaultdict(list)
        for place, records in records_by_place.items():
            for offset, value in records:
                places[value].append(f"{place} {offset}")
        for value, where in places.items():
            if len(where) > 1:
                yield Finding(Kind.DUPLICATE, f"{value} is at {', '.join(where)}")


def order_is_kept(facts: Facts) -> Iterator[Finding]:
    """Check that every producer's records are in the order in which it sent them."""
    for place, records in facts.committed.items():
        last: dict[str, tuple[int, str]] = {}
        for offset, value in records:
            sent = facts.sent.get(value)
            if sent is None:
                yield Finding(
                    Kind.INCONSISTENT, f"{place} {offset} is {value}, which was never sent"
                )
                continue
            number, before = last.get(sent.who, (-1, ""))
            if sent.number < number:
                yield Finding(Kind.REORDERED, f"{place} {offset}: {value} comes after {before}")
            last[sent.who] = max((number, before), (sent.number, value))


def copies_keep_order(facts: Facts) -> Iterator[Finding]:
    """Check that copies are in the order of their originals, whichever process made them."""
    for place, records in facts.committed.items():
        last: dict[Place, tuple[int, str]] = {}
        for offset, value in records:
            source = facts.sent[value].source if value in facts.sent else None
            if source is None:
                continue
            origin = Place(source.topic, source.partition)
            number, before = last.get(origin, (-1, ""))
            if source.offset < number:
                yield Finding(
                    Kind.REORDERED,
                    f"{place} {offset}: {value}, a copy of {origin} {source.offset},"
                    f" comes after {before}, a copy of {number}",
                )
            last[origin] = (source.offset, value)


def readers_see_committed(facts: Facts) -> Iterator[Finding]:
    """Check that no reader of committed records saw another one, or one too early."""
    told = set()
    for place, offset, value, who, at in _committed_reads(facts):
        if value not in facts.sent or value in told:
            continue
        asked = facts.asked(value)
        if facts.outcome(value) is Outcome.ABORTED:
            why = "which was aborted"
        elif asked is not None and at < asked:
            why = f"at {at}, though its commit was asked for at {asked}"
        else:
            continue
        told.add(value)
        yield Finding(Kind.ABORTED_READ, f"{who} read {value} at {place} {offset}, {why}")


def transactions_are_whole(facts: Facts) -> Iterator[Finding]:
    """Check that all records of each transaction are there, or none."""
    for (who, number), txn in facts.txns.items():
        missing = [value for value in txn.values if value not in facts.visible]
        is_expected = txn.outcome in {Outcome.COMMITTED, Outcome.UNKNOWN}
        if is_expected and 0 < len(missing) < len(txn.values):
            yield Finding(
                Kind.TORN,
                f"of the {len(txn.values)} records of {who}'s transaction {number}"
                f" there is no {', '.join(missing[:5])}",
            )


def group_offsets_go_forward(facts: Facts) -> Iterator[Finding]:
    """Check that no client gets an offset lower than one known before its request."""
    told = [*facts.of(Op.SEEN_OFFSETS), *facts.of(Op.OFFSETS)]
    told = [event for event in told if event.state is State.OK]
    unsure = {
        (event.group, place, offset)
        for event in facts.without_answer(Op.OFFSETS)
        for place, offset in event.offsets.items()
    }
    for (group, place), back in _going_back(told, lambda event: event.group):
        # A commit whose answer never came may be carried out late, as in any Kafka.
        if (group, place, back.now) not in unsure:
            yield Finding(Kind.REGRESS, f"group {group}, {place}: went back {back}")


def members_begin_at_offsets(facts: Facts) -> Iterator[Finding]:
    """Check that a member which is given a partition reads nothing that was committed before."""
    commits = [event for event in facts.of(Op.OFFSETS) if event.state is State.OK]
    done: dict[tuple[str, Place], list[tuple[float, int]]] = defaultdict(list)
    for commit in commits:
        for place, offset in commit.offsets.items():
            done[commit.group, place].append((commit.at, offset))
    for step in facts.steps:
        if step.before is not None:
            continue
        known = done[step.event.group, step.place]
        highest = max((offset for at, offset in known if at < step.assigned), default=0)
        if step.offset < highest:
            yield Finding(
                Kind.REGRESS,
                f"{_reader(step)} began at {step.offset}, though {highest} was committed before",
            )


def copies_are_exact(facts: Facts) -> Iterator[Finding]:
    """Check that every record below a copying group's offset has one copy, and no other has any."""
    for group, target in sorted(_copiers(facts)):
        copies: dict[Source, list[str]] = defaultdict(list)
        for place, records in facts.committed.items():
            if place.topic != target:
                continue
            for _, value in records:
                sent = facts.sent.get(value)
                if sent is not None and sent.source is not None:
                    copies[sent.source].append(value)
        yield from _wrong_copies(facts, group, copies)


CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    offsets_mean_one_thing,
    ends_go_forward,
    nothing_is_lost,
    groups_read_all,
    members_skip_nothing,
    nothing_is_twice,
    order_is_kept,
    copies_keep_order,
    readers_see_committed,
    transactions_are_whole,
    group_offsets_go_forward,
    members_begin_at_offsets,
    copies_are_exact,
)


class Back(NamedTuple):
    """A value that should only grow, and did not."""

    before: int
    now: int
    at: float

    def __str__(self) -> str:
        return f"from {self.before} to {self.now} at {self.at}"


def _going_back(
    events: Iterable[Event], name: Callable[[Event], str]
) -> Iterator[tuple[tuple[str, Place], Back]]:
    """Find values that are lower than one known before the request."""
    # The known values and their times, highest last; both grow.
    known: dict[tuple[str, Place], list[tuple[float, int]]] = defaultdict(list)
    for event in sorted(events, key=lambda asked: asked.at):
        for place, offset in event.offsets.items():
            past = known[name(event), place]
            before = next((high for at, high in reversed(past) if at < event.began), -1)
            if event.op is not Op.OFFSETS and offset < before:
                yield (name(event), place), Back(before, offset, event.at)
            if not past or offset > past[-1][1]:
                past.append((event.at, offset))


def _sightings(facts: Facts) -> Iterator[tuple[Place, int, str, str]]:
    for value, offset in facts.acked.items():
        if offset >= 0:
            sent = facts.sent[value]
            yield sent.place, offset, value, sent.who
    for step in facts.steps:
        yield step.place, step.offset, step.value, step.event.who
    for isolation, places in facts.log.items():
        for place, records in places.items():
            for offset, value in records:
                yield place, offset, value, f"the last reader ({isolation})"


def _committed_reads(facts: Facts) -> Iterator[tuple[Place, int, str, str, float]]:
    for step in facts.steps:
        if step.event.isolation == COMMITTED:
            yield step.place, step.offset, step.value, step.event.who, step.event.at
    for event in facts.of(Op.FINAL):
        if event.isolation == COMMITTED:
            for offset, value in event.records:
                yield event.place, offset, value, event.who, event.at


def _is_partly_visible(facts: Facts, who: str, txn: int) -> bool:
    return bool(txn) and any(value in facts.visible for value in facts.txns[who, txn].values)


def _mates(facts: Facts, value: str) -> set[str]:
    """Return the records of the same transaction."""
    sent = facts.sent.get(value)
    if sent is None or not sent.txn:
        return set()
    return set(facts.txns[sent.who, sent.txn].values) - {value}


def _skipped(facts: Facts, step: Step, left_out: list[tuple[int, str]]) -> Finding:
    """Return the kind: torn if it is of a transaction of which more was read, else lost."""
    is_torn = any(value in _mates(facts, step.value) for _, value in left_out)
    offsets = ", ".join(str(offset) for offset, _ in left_out[:5])
    what = f"{_reader(step)} went from {step.before} to {step.offset} without {offsets}"
    return Finding(Kind.TORN if is_torn else Kind.LOST, what)


def _committed_offsets(facts: Facts) -> dict[tuple[str, Place], int]:
    """Return the highest offset that each group's members have committed."""
    highest: dict[tuple[str, Place], int] = defaultdict(int)
    for event in facts.of(Op.OFFSETS):
        if event.state is State.OK:
            for place, offset in event.offsets.items():
                highest[event.group, place] = max(highest[event.group, place], offset)
    return highest


def _copiers(facts: Facts) -> set[tuple[str, str]]:
    """Return each copying group and the topic it copies to."""
    return {
        (event.group, event.place.topic)
        for event in facts.of(Op.SEND)
        if event.source is not None and event.group
    }


def _wrong_copies(facts: Facts, group: str, copies: dict[Source, list[str]]) -> Iterator[Finding]:
    ends: dict[Place, int] = defaultdict(int)
    for event in facts.of(Op.SEEN_OFFSETS):
        if event.group == group and event.state is State.OK:
            ends.update(event.offsets)
    for place, end in ends.items():
        originals = facts.committed.get(place, [])
        for offset, value in originals:
            copied_to = copies.pop(Source(*place, offset), [])
            what = f"group {group}, {place} {offset} ({value}), offset {end} is committed"
            if offset < end and not copied_to:
                yield Finding(Kind.COPY, f"{what}: there is no copy")
            elif len(copied_to) > (1 if offset < end else 0):
                yield Finding(Kind.COPY, f"{what}: the copies are {', '.join(copied_to)}")
    for source, copied_to in copies.items():
        what = f"copies of {source}, which is not there: {', '.join(copied_to)}"
        yield Finding(Kind.COPY, f"group {group}: {what}")


def _reader(step: Step) -> str:
    return f"{step.event.who} of group {step.event.group} in {step.place}"
