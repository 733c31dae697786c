"""The memory budget for requests that arrive."""

from __future__ import annotations

from rookery.net.outbox import Budget


class Reader:
    """Stands for a connection that is paused and resumed."""

    def __init__(self, budget: Budget, *, is_willing: bool = True) -> None:
        self.budget = budget
        self.is_willing = is_willing
        self.is_reading = True

    def resume(self) -> bool:
        self.is_reading = self.is_willing and self.budget.may_read(self.resume)
        return self.is_reading


def full_budget(*, working: int) -> Budget:
    budget = Budget(1_000_000)
    budget.receive(1_000_000)
    budget.start(working)
    return budget


def test_readers_are_admitted_below_the_limit() -> None:
    budget = Budget(10)
    budget.receive(9)
    assert Reader(budget).resume()


def test_readers_are_woken_in_order_as_the_budget_allows() -> None:
    budget = full_budget(working=1_000_000)
    readers = [Reader(budget) for _ in range(4)]
    assert not any(reader.resume() for reader in readers)
    budget.finish(2 * 65_536)
    assert [reader.is_reading for reader in readers] == [True, True, False, False]


def test_unwilling_reader_passes_its_turn_to_the_next() -> None:
    budget = full_budget(working=1_000_000)
    readers = [Reader(budget) for _ in range(2)]
    assert not any(reader.resume() for reader in readers)
    readers[0].is_willing = False
    budget.finish(1)
    assert [reader.is_reading for reader in readers] == [False, True]


def test_one_reader_is_admitted_while_unfinished_frames_fill_the_budget() -> None:
    budget = full_budget(working=0)
    first, second = Reader(budget), Reader(budget)
    assert first.resume()
    assert not second.resume()
    budget.receive(65_536)
    assert first.resume()
    budget.start(500_000)
    assert not first.resume()
    budget.finish(500_000)
    assert second.is_reading
    assert first.is_reading


def test_admission_passes_to_another_reader_when_its_connection_is_lost() -> None:
    budget = full_budget(working=0)
    first, second = Reader(budget), Reader(budget)
    assert first.resume()
    assert not second.resume()
    budget.forget(first.resume)
    budget.drop(0)
    assert second.is_reading


def test_lost_connections_are_not_woken() -> None:
    budget = full_budget(working=1_000_000)
    reader = Reader(budget)
    assert not reader.resume()
    budget.forget(reader.resume)
    budget.finish(1_000_000)
    assert not reader.is_reading
