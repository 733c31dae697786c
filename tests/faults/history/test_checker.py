"""The checker finds nothing in a true history, and every bug that is planted in it.

`recorded.jsonl.gz` is what a run of `Run` wrote down within 1.5 s, with connections cut twice: a
producer of records, one of transactions, a copier, and a reader of each group protocol.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.history.checker import Kind, check
from tests.faults.history.events import Event, Op, Place, Source, State, parse
from tests.faults.history.facts import Facts, Outcome, Sent

GROUP, READER = "readers-classic", "reader-classic-1"
COPIES = "outputs-classic"
END = 1_000.0


def recorded() -> list[Event]:
    lines = gzip.decompress(Path(__file__).with_name("recorded.jsonl.gz").read_bytes())
    return [parse(line) for line in lines.decode().splitlines()]


@pytest.fixture
def history() -> list[Event]:
    return recorded()


@pytest.fixture
def facts(history: list[Event]) -> Facts:
    return Facts(history)


def kinds(history: list[Event]) -> set[Kind]:
    return {finding.kind for finding in check(history)}


def edited(
    history: list[Event], edit: Callable[[int, str], tuple[int, str] | None], *ops: Op
) -> list[Event]:
    """Change or drop records wherever they were read."""
    changed = []
    for event in history:
        if event.op in (ops or (Op.READ, Op.FINAL)):
            records = (edit(offset, value) for offset, value in event.records)
            event = replace(event, records=tuple(record for record in records if record))  # noqa: PLW2901
        changed.append(event)
    return changed


def without(history: list[Event], value: str, *ops: Op) -> list[Event]:
    return edited(history, lambda at, read: None if read == value else (at, read), *ops)


def plain(facts: Facts, at: int = 3) -> tuple[Place, int, str]:
    """Return a record that is in no transaction."""
    place = Place("plain", 0)
    offset, value = facts.committed[place][at]
    return place, offset, value


def whole(facts: Facts, *, shares_partition: bool = False) -> tuple[Sent, Sent]:
    """Return two records of a committed transaction, perhaps one after the other in one log."""
    for (who, _), txn in facts.txns.items():
        if txn.outcome is Outcome.COMMITTED and who == "txn-1":
            sent = [facts.sent[value] for value in txn.values]
            for first, second in pairwise(sent):
                if not shares_partition or first.place == second.place:
                    return first, second
    raise AssertionError("there is no such transaction in the recorded history")


def read_event(facts: Facts, value: str) -> Event:
    """Return the event in which the reader read a record."""
    return next(
        event
        for event in facts.of(Op.READ)
        if event.who == READER and any(known == value for _, known in event.records)
    )


def last_line(facts: Facts, place: Place) -> tuple[int, str]:
    return facts.committed[place][-1]


def test_every_event_survives_serialisation(history: list[Event]) -> None:
    assert [parse(event.line()) for event in history] == history
    assert {event.op for event in history} >= {Op.SEND, Op.COMMIT, Op.READ, Op.FINAL, Op.FAULT}


def test_correct_history_has_no_finding(history: list[Event]) -> None:
    assert check(history) == []


def test_lost_acknowledged_record_is_found(history: list[Event], facts: Facts) -> None:
    _, _, value = plain(facts)

    assert kinds(without(history, value)) == {Kind.LOST}


def test_lost_committed_transaction_is_found(history: list[Event], facts: Facts) -> None:
    values = {
        value
        for (who, _), txn in facts.txns.items()
        if who == "copier-classic-1" and txn.outcome is Outcome.COMMITTED and len(txn.values) == 1
        for value in txn.values
    }
    [value, *_] = sorted(values)

    assert kinds(without(history, value)) == {Kind.LOST, Kind.COPY}


def test_record_never_delivered_to_a_group_is_found(history: list[Event], facts: Facts) -> None:
    _, _, value = plain(facts)
    history = [
        without([event], value, Op.READ)[0] if event.group == GROUP else event for event in history
    ]

    assert kinds(history) == {Kind.LOST}


def test_duplicated_record_is_found(history: list[Event], facts: Facts) -> None:
    place, _, value = plain(facts, -1)
    again = (last_line(facts, place)[0] + 1, value)
    history = [
        replace(event, records=(*event.records, again))
        if event.op is Op.FINAL and event.place == place
        else event
        for event in history
    ]

    assert kinds(history) == {Kind.DUPLICATE}


def test_reordered_records_of_a_producer_are_found(history: list[Event], facts: Facts) -> None:
    _, first, value = plain(facts, 3)
    _, second, other = plain(facts, 4)
    swapped = {value: other, other: value}
    offsets = {value: second, other: first}
    history = edited(history, lambda at, value: (at, swapped.get(value, value)))
    history = [
        replace(event, offset=offsets[event.value])
        if event.op is Op.SEND and event.state is State.OK and event.value in offsets
        else event
        for event in history
    ]

    assert kinds(history) == {Kind.REORDERED}


def test_reordered_copies_are_found(history: list[Event], facts: Facts) -> None:
    [first, second] = [facts.sent[value] for _, value in facts.committed[Place(COPIES, 0)][:2]]
    sources = {first.value: second.source, second.value: first.source}
    history = [
        replace(event, source=sources[event.value])
        if event.op is Op.SEND and event.source and event.value in sources
        else event
        for event in history
    ]

    assert kinds(history) == {Kind.REORDERED}


def test_visible_aborted_record_is_found(history: list[Event], facts: Facts) -> None:
    value, offset = next(
        (value, offset)
        for value, offset in facts.acked.items()
        if facts.outcome(value) is Outcome.ABORTED
    )
    place = facts.sent[value].place
    seen = Event(
        END,
        READER,
        Op.READ,
        group="another",
        place=place,
        isolation="read_committed",
        records=((offset, value),),
    )

    findings = check([*history, replace(seen, who="another")])

    assert {finding.kind for finding in findings} == {Kind.ABORTED_READ}
    assert value in findings[0].what


def test_record_visible_before_its_commit_is_found(history: list[Event], facts: Facts) -> None:
    sent, _ = whole(facts)
    late = read_event(facts, sent.value).at + 0.0001
    mine = (sent.who, sent.txn)
    history = [
        replace(event, at=max(event.at, late), began=max(event.began, late))
        if event.op is Op.COMMIT and (event.who, event.txn) == mine
        else event
        for event in history
    ]

    assert kinds(history) == {Kind.ABORTED_READ}


def test_partly_lost_transaction_is_found(history: list[Event], facts: Facts) -> None:
    sent, _ = whole(facts)
    copy = next(
        copied.value
        for copied in facts.sent.values()
        if copied.source
        and (copied.source.topic, copied.source.partition) == sent.place
        and copied.source.offset == facts.acked[sent.value]
        and copied.value in facts.visible
    )
    history = without(without(history, sent.value), copy)
    history = [event for event in history if event.value != copy]

    assert kinds(history) == {Kind.TORN}


def test_partly_visible_transaction_is_found(history: list[Event], facts: Facts) -> None:
    sent, _ = whole(facts, shares_partition=True)
    history = [
        without([event], sent.value, Op.READ)[0] if event.group == GROUP else event
        for event in history
    ]

    assert kinds(history) == {Kind.TORN}


def test_decreasing_group_offset_is_found(history: list[Event], facts: Facts) -> None:
    place = Place("plain", 0)
    seen = Event(END, "observer", Op.SEEN_OFFSETS, began=END, group=GROUP, offsets={place: 1})

    assert kinds([*history, seen]) == {Kind.REGRESS}


def test_forgotten_group_offset_is_found(history: list[Event], facts: Facts) -> None:
    place = Place("plain", 0)
    seen = Event(END, "observer", Op.SEEN_OFFSETS, began=END, group=GROUP, offsets={place: -1})

    assert kinds([*history, seen]) == {Kind.REGRESS}


def test_late_commit_with_unknown_outcome_is_accepted(history: list[Event], facts: Facts) -> None:
    what = {"group": GROUP, "offsets": {Place("plain", 0): 1}}
    unsure = Event(0.5, READER, Op.OFFSETS, State.UNKNOWN, 0.4, **what)  # type: ignore[arg-type]
    seen = Event(END, "observer", Op.SEEN_OFFSETS, State.OK, END, **what)  # type: ignore[arg-type]

    assert check([*history, unsure, seen]) == []


def test_late_commit_of_a_killed_member_is_accepted(history: list[Event], facts: Facts) -> None:
    what = {"group": GROUP, "offsets": {Place("plain", 0): 1}}
    begun = Event(0.5, READER, Op.OFFSETS, State.INVOKED, **what)  # type: ignore[arg-type]
    seen = Event(END, "observer", Op.SEEN_OFFSETS, State.OK, END, **what)  # type: ignore[arg-type]

    assert check([*history, begun, seen]) == []

    refused = replace(begun, at=0.6, state=State.FAILED, began=begun.at)
    assert kinds([*history, begun, refused, seen]) == {Kind.REGRESS}


def test_commit_of_a_killed_producer_may_have_either_outcome(
    history: list[Event], facts: Facts
) -> None:
    value = next(
        value
        for value, sent in facts.sent.items()
        if sent.txn and value in facts.visible and facts.outcome(value) is Outcome.COMMITTED
    )
    sent = facts.sent[value]
    killed = [
        event
        for event in history
        if not (
            (event.who, event.txn) == (sent.who, sent.txn)
            and event.op is Op.COMMIT
            and event.state is State.OK
        )
    ]

    assert check(killed) == []

    gone = set(facts.txns[sent.who, sent.txn].values)
    for lost in gone:
        killed = without(killed, lost)
    assert Kind.LOST not in kinds(killed)


def test_member_that_starts_below_the_committed_offset_is_found(
    history: list[Event], facts: Facts
) -> None:
    place, offset, value = plain(facts)
    given = Event(END, "reader-classic-2", Op.ASSIGNED, group=GROUP, offsets={place: -1})
    read = Event(
        END + 1, "reader-classic-2", Op.READ, group=GROUP, place=place, records=((offset, value),)
    )

    assert kinds([*history, given, read]) == {Kind.REGRESS}


def test_member_that_reads_a_record_again_is_found(history: list[Event], facts: Facts) -> None:
    _, _, value = plain(facts)
    read = read_event(facts, value)
    later = next(
        event
        for event in facts.of(Op.READ)
        if event.who == READER and event.place == read.place and event.at > read.at
    )

    assert kinds([*history, replace(read, at=later.at)]) == {Kind.REGRESS}


def test_offset_with_two_records_is_found(history: list[Event], facts: Facts) -> None:
    _, offset, value = plain(facts)
    _, _, other = plain(facts, 5)
    read = read_event(facts, value)
    changed = tuple((at, other if at == offset else known) for at, known in read.records)
    seen = replace(read, at=END, who="another", group="another", records=changed)

    assert kinds([*history, seen]) == {Kind.INCONSISTENT}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_decreasing_end_offset_is_found(history: list[Event], facts: Facts, isolation: str) -> None:
    place = Place("inputs", 1)
    seen = Event(END, "observer", Op.SEEN_ENDS, began=END, isolation=isolation, offsets={place: 1})

    assert kinds([*history, seen]) == {Kind.INCONSISTENT}


def test_answer_to_an_earlier_request_may_be_older(history: list[Event], facts: Facts) -> None:
    place = Place("inputs", 1)
    seen = Event(
        END, "observer", Op.SEEN_ENDS, began=0.0, isolation="read_committed", offsets={place: 0}
    )

    assert check([*history, seen]) == []


def test_record_that_was_never_sent_is_found(history: list[Event], facts: Facts) -> None:
    place = Place("plain", 0)
    strange = (last_line(facts, place)[0] + 1, "strange")
    history = [
        replace(event, records=(*event.records, strange))
        if event.op is Op.FINAL and event.place == place
        else event
        for event in history
    ]

    assert kinds(history) == {Kind.INCONSISTENT}


def test_record_copied_twice_is_found(history: list[Event], facts: Facts) -> None:
    place = Place(COPIES, 0)
    offset, value = last_line(facts, place)
    source = facts.sent[value].source
    assert source is not None
    what = {"txn": 99, "place": place, "value": "copier-classic-9:99:0"}
    again = [
        Event(END, "copier-classic-9", Op.SEND, State.INVOKED, source=source, **what),  # type: ignore[arg-type]
        Event(END, "copier-classic-9", Op.SEND, offset=offset + 2, **what),  # type: ignore[arg-type]
        Event(END, "copier-classic-9", Op.COMMIT, State.INVOKED, txn=99),
        Event(END, "copier-classic-9", Op.COMMIT, txn=99),
        Event(
            END,
            "last",
            Op.FINAL,
            isolation="read_committed",
            place=place,
            records=((offset + 2, "copier-classic-9:99:0"),),
        ),
    ]

    assert kinds([*history, *again]) == {Kind.COPY}


def test_record_skipped_by_a_copy_is_found(history: list[Event], facts: Facts) -> None:
    value = next(
        copied.value
        for copied in facts.sent.values()
        if copied.source and copied.value in facts.visible
    )
    history = [event for event in without(history, value) if event.value != value]

    assert kinds(history) == {Kind.COPY}


def test_copy_of_a_missing_record_is_found(history: list[Event], facts: Facts) -> None:
    _, value = last_line(facts, Place(COPIES, 2))
    history = [
        replace(event, source=Source("inputs", 2, 100_000))
        if event.op is Op.SEND and event.value == value and event.source
        else event
        for event in history
    ]

    assert kinds(history) == {Kind.COPY}


def test_acknowledgements_without_an_offset_have_no_place(history: list[Event]) -> None:
    changed = [
        replace(event, offset=-1) if event.op is Op.SEND and event.state is State.OK else event
        for event in history
    ]
    assert check(changed) == []
