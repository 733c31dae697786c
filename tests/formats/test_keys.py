"""Names of journals, and object ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.formats.keys import (
    INCARNATION_LIMIT,
    NUMBER_LIMIT,
    SNAPSHOT_LIMIT,
    journal_name,
    object_id,
    parse_journal_name,
    parse_snapshot_key,
    snapshot_key,
    split_object_id,
)

INCARNATIONS = st.integers(1, INCARNATION_LIMIT - 1)
NUMBERS = st.integers(0, NUMBER_LIMIT - 1)


def test_names_are_as_documented() -> None:
    assert journal_name(object_id(0xABC, 0x1F)) == "journal-0000000000000abc-0000001f.log"
    assert snapshot_key(42) == "_rookery/snapshots/00000000000000000042.snapshot"


@given(INCARNATIONS, NUMBERS)
def test_object_ids_and_names_round_trip(incarnation: int, number: int) -> None:
    identity = object_id(incarnation, number)
    assert 0 < identity < 1 << 63
    assert split_object_id(identity) == (incarnation, number)
    assert parse_journal_name(journal_name(identity)) == identity


@given(st.tuples(INCARNATIONS, NUMBERS), st.tuples(INCARNATIONS, NUMBERS))
def test_ids_and_names_sort_by_creation(left: tuple[int, int], right: tuple[int, int]) -> None:
    first, second = object_id(*left), object_id(*right)
    assert (left < right) == (first < second) == (journal_name(first) < journal_name(second))


@pytest.mark.parametrize(
    ("incarnation", "number"),
    [(0, 0), (-1, 0), (INCARNATION_LIMIT, 0), (1, -1), (1, NUMBER_LIMIT)],
)
def test_numbers_out_of_bounds_are_refused(incarnation: int, number: int) -> None:
    with pytest.raises(ValueError, match="is not within"):
        object_id(incarnation, number)


@pytest.mark.parametrize("identity", [-1, 0, NUMBER_LIMIT - 1, 1 << 63])
def test_ids_out_of_bounds_are_refused(identity: int) -> None:
    with pytest.raises(ValueError, match="is not within"):
        journal_name(identity)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "journal.log",
        "journal-0000000000000abc-0000001f.log.tmp",
        "journal-0000000000000abc-0000001f.log\n",
        " journal-0000000000000abc-0000001f.log",
        "journal-0000000000000ABC-0000001f.log",
        "journal-abc-1f.log",
        "journal-0000000000000000-00000000.log",
        "journal-ffffffffffffffff-00000000.log",
        "journal-0000000000000001-01000000.log",
        "journal-000000000000000٣-00000000.log",
    ],
)
def test_other_names_are_not_journals(name: str) -> None:
    assert parse_journal_name(name) is None


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    identity = parse_journal_name(text)
    assert identity is None or journal_name(identity) == text
    number = parse_snapshot_key(text)
    assert number is None or snapshot_key(number) == text


@given(st.integers(0, SNAPSHOT_LIMIT - 1), st.integers(0, SNAPSHOT_LIMIT - 1))
def test_snapshot_keys_round_trip_and_sort(left: int, right: int) -> None:
    assert parse_snapshot_key(snapshot_key(left)) == left
    assert (left < right) == (snapshot_key(left) < snapshot_key(right))


@pytest.mark.parametrize("number", [-1, SNAPSHOT_LIMIT])
def test_entry_numbers_out_of_bounds_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match="is not within"):
        snapshot_key(number)


@pytest.mark.parametrize(
    "key",
    [
        "_rookery/snapshots/42.snapshot",
        "_rookery/snapshots/00000000000000000042.snapshot.tmp",
        "snapshots/00000000000000000042.snapshot",
        "_rookery/snapshots/99999999999999999999.snapshot",
        "_rookery/snapshots/0000000000000000004٣.snapshot",
    ],
)
def test_other_keys_are_not_snapshots(key: str) -> None:
    assert parse_snapshot_key(key) is None
