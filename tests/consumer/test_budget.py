"""The division of a stream's memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.consumer.fetch import budget

MIB = 1 << 20


@given(memory=st.integers(MIB, 1 << 40))
def test_memory_is_split_into_answers_and_rows(memory: int) -> None:
    assert budget.of_answer(memory) + budget.of_rows(memory) == memory
    assert budget.of_answer(memory) <= memory // 4


@given(memory=st.integers(1, MIB))
def test_any_budget_allows_a_fetch_and_a_row(memory: int) -> None:
    assert budget.of_answer(memory) >= 64 * 1024
    assert 0 < budget.of_rows(memory) <= memory


@given(rows=st.integers(1, 1 << 40))
def test_computed_budget_is_sufficient_and_minimal(rows: int) -> None:
    memory = budget.enough(rows)

    assert budget.of_rows(memory) >= rows
    assert budget.of_rows(memory - 2) < rows
