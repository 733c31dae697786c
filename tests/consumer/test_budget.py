"""A stream's memory, shared out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.consumer.fetch import budget

MIB = 1 << 20


@given(memory=st.integers(MIB, 1 << 40))
def test_an_answer_and_what_is_held_are_all_of_it(memory: int) -> None:
    assert budget.of_answer(memory) + budget.of_rows(memory) == memory
    assert budget.of_answer(memory) <= memory // 4


@given(memory=st.integers(1, MIB))
def test_however_little_it_is_something_can_be_asked_for_and_held(memory: int) -> None:
    assert budget.of_answer(memory) >= 64 * 1024
    assert 0 < budget.of_rows(memory) <= memory


@given(rows=st.integers(1, 1 << 40))
def test_what_is_said_to_be_enough_is(rows: int) -> None:
    memory = budget.enough(rows)

    assert budget.of_rows(memory) >= rows
    assert budget.of_rows(memory - 2) < rows
