"""The ledger finds each thing that a reader must not see, and what it must not miss."""

from __future__ import annotations

import pytest

from rookery.records.recordcodec import Record
from tests.faults.ledger import Ledger, SentBatch

TOPIC = "birds"


def sent(*values: bytes | None, key: bytes | None = None) -> SentBatch:
    return SentBatch(TOPIC, 0, [Record(key, value, (), 1_000) for value in values])


def read(value: bytes | None, offset: int, key: bytes | None = None) -> Record:
    return Record(key, value, (), 1_000, offset)


def test_records_as_they_were_sent_are_accepted() -> None:
    ledger = Ledger()
    ledger.note_stored(sent(b"a", b"b"), 4)
    ledger.note_read(TOPIC, 0, [read(b"a", 4), read(b"b", 5)])
    # It may be stored, although its writer does not know.
    ledger.note_read(TOPIC, 0, [read(b"c", 6)])

    ledger.check_complete(TOPIC, 0, 4, [read(b"a", 4), read(b"b", 5), read(b"c", 6)])
    ledger.check_complete(TOPIC, 0, 6, [read(b"c", 6)])
    assert ledger.reads == 2


@pytest.mark.parametrize(
    "other",
    [
        read(b"other", 4),
        read(None, 4),
        read(b"a", 4, key=b"key"),
        read(b"a", 4)._replace(timestamp=1_001),
        read(b"a", 4)._replace(headers=(("name", None),)),
    ],
)
def test_a_record_that_changes_is_found(other: Record) -> None:
    ledger = Ledger()
    ledger.note_read(TOPIC, 0, [read(b"a", 4)])
    ledger.note_read(TOPIC, 1, [other])

    with pytest.raises(AssertionError, match="has changed"):
        ledger.note_read(TOPIC, 0, [other])


def test_a_record_that_was_not_sent_like_this_is_found() -> None:
    early, late = Ledger(), Ledger()
    early.note_read(TOPIC, 0, [read(b"other", 4)])
    late.note_stored(sent(b"a"), 4)

    with pytest.raises(AssertionError, match="is not what was sent"):
        early.note_stored(sent(b"a"), 4)
    with pytest.raises(AssertionError, match="is not what was sent"):
        late.note_read(TOPIC, 0, [read(b"other", 4)])


def test_uncommitted_and_aborted_records_are_found() -> None:
    ledger = Ledger()
    ledger.note_read(TOPIC, 0, [read(b"a", 4)])
    with pytest.raises(AssertionError, match="before its transaction ended"):
        ledger.hide(sent(b"a"), 4)

    ledger.hide(sent(b"b"), 5)
    ledger.note_aborted(sent(b"b"))
    with pytest.raises(AssertionError, match="is not committed"):
        ledger.note_read(TOPIC, 0, [read(b"b", 5)])

    ledger.hide(sent(b"c"), 6)
    ledger.reveal(sent(b"c"), 6)
    ledger.note_read(TOPIC, 0, [read(b"c", 6)])


def test_missing_and_doubled_records_are_found() -> None:
    ledger = Ledger()
    ledger.note_stored(sent(b"a", b"b"), 4)

    with pytest.raises(AssertionError, match=r"1 records are missing.*offset=5"):
        ledger.check_complete(TOPIC, 0, 4, [read(b"a", 4)])
    with pytest.raises(AssertionError, match="stored twice"):
        ledger.check_complete(TOPIC, 0, 4, [read(b"a", 4), read(b"b", 5), read(b"a", 6)])


@pytest.mark.parametrize(
    ("value", "found", "is_right"),
    [
        (b"new", [read(b"new", 5, b"k")], True),
        (b"new", [read(b"old", 4, b"k"), read(b"new", 5, b"k")], True),
        (b"new", [], False),
        (b"new", [read(b"old", 4, b"k")], False),
        (b"new", [read(b"new", 5, b"k"), read(b"old", 6, b"k")], False),
        (None, [read(b"old", 4, b"k"), read(None, 5, b"k")], True),
        (None, [], True),
        (None, [read(b"old", 4, b"k")], False),
    ],
)
def test_the_last_record_of_a_key_is_checked(
    value: bytes | None, found: list[Record], *, is_right: bool
) -> None:
    ledger = Ledger()
    ledger.note_stored(sent(b"old", key=b"k"), 4)
    ledger.note_stored(sent(value, key=b"k"), 5)
    expected = ledger.last_records(TOPIC, 0)
    assert expected == {b"k": read(value, 5, b"k")}

    if is_right:
        ledger.check_last(TOPIC, 0, expected, found)
    else:
        with pytest.raises(AssertionError, match="another last record"):
            ledger.check_last(TOPIC, 0, expected, found)


def test_keys_with_a_write_under_way_are_left_out() -> None:
    ledger = Ledger()
    ledger.note_stored(sent(b"old", key=b"k"), 4)
    expected = ledger.last_records(TOPIC, 0)
    newer = sent(b"new", key=b"k")

    ledger.begin(newer)
    assert ledger.last_records(TOPIC, 0) == {}
    ledger.check_last(TOPIC, 0, expected, [])

    ledger.note_aborted(newer)
    assert ledger.last_records(TOPIC, 0) == expected

    ledger.begin(newer)
    ledger.forget(newer)
    assert ledger.last_records(TOPIC, 0) == {}
