"""The memory that responses of all connections share: sizes, and who is disconnected."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rookery.clock import loop_seconds
from rookery.net import answers
from rookery.net.answers import AnswerBudget
from rookery.testing.virtualtime import run_virtually

MEBIBYTE = 1024 * 1024
LIMIT = 100 * MEBIBYTE
PATIENCE = 60


class Reader:
    """Stands for a connection."""

    def __init__(self, budget: AnswerBudget, held: int = 0) -> None:
        self.peer = "reader"
        self.held_bytes = self.unread_bytes = held
        self.sent_bytes = 0
        self.is_cut_off = asyncio.Event()
        self._budget = budget
        budget.join(self)
        budget.add(held)

    def abort(self) -> None:
        self.is_cut_off.set()
        self._budget.leave(self)

    def take(self, count: int) -> None:
        self.sent_bytes += count
        self.held_bytes -= count
        self.unread_bytes -= count


async def test_answer_gets_a_share_of_the_remaining_budget() -> None:
    budget = AnswerBudget(LIMIT)
    assert budget.room() == LIMIT // 4
    reader = Reader(budget, LIMIT // 2)
    assert budget.room() == LIMIT // 8
    reader.take(LIMIT // 2)
    budget.leave(reader)


async def test_sent_answers_are_found_by_counting_bytes() -> None:
    budget = AnswerBudget(LIMIT)
    reader = Reader(budget)
    for _ in range(1000):
        budget.add(MEBIBYTE)  # made, and sent at once
        assert budget.room() > LIMIT // 16
    assert not budget.is_full
    assert reader.held_bytes == 0


async def test_concurrent_answers_stay_within_the_limit() -> None:
    budget = AnswerBudget(LIMIT)
    readers = []
    while not budget.is_full:
        readers.append(Reader(budget, min(budget.room(), 50 * MEBIBYTE)))
    total = sum(reader.held_bytes for reader in readers)
    assert total <= LIMIT * 5 // 4 + MEBIBYTE
    assert len(readers) > 100, "late ones got nothing"


async def test_client_that_does_not_read_is_disconnected_largest_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budget = AnswerBudget(LIMIT, patience_ms=100)
    large, small = Reader(budget, LIMIT - MEBIBYTE), Reader(budget, 2 * MEBIBYTE)
    with caplog.at_level(logging.WARNING):
        assert budget.room() == 64 * 1024
        async with asyncio.timeout(PATIENCE):
            await large.is_cut_off.wait()
    assert not small.is_cut_off.is_set(), "one was enough"
    assert budget.cut_off == 1
    assert "it holds 103809024 bytes of responses that it has not read" in caplog.text
    assert budget.room() > LIMIT // 5


async def test_client_that_reads_is_not_disconnected() -> None:
    budget = AnswerBudget(LIMIT, patience_ms=300)
    reading, idle = Reader(budget, LIMIT), Reader(budget, MEBIBYTE)

    async def read() -> None:
        while not idle.is_cut_off.is_set():
            reading.take(1)
            reading.sent_bytes += 64 * 1024
            await asyncio.sleep(0)

    budget.room()
    async with asyncio.timeout(PATIENCE):
        await read()
    assert not reading.is_cut_off.is_set()


async def test_client_that_waits_for_a_promised_response_is_not_disconnected() -> None:
    budget = AnswerBudget(LIMIT, patience_ms=50)
    waiting, slow = Reader(budget, LIMIT), Reader(budget, MEBIBYTE)
    waiting.unread_bytes = 0  # it is read from a slow disk
    budget.room()
    async with asyncio.timeout(PATIENCE):
        await slow.is_cut_off.wait()
    assert not waiting.is_cut_off.is_set()


def test_time_in_which_the_process_stood_still_is_not_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stood_still = 0.0
    monkeypatch.setattr(answers, "loop_seconds", lambda: loop_seconds() + stood_still)

    async def run() -> None:
        nonlocal stood_still
        budget = AnswerBudget(LIMIT, patience_ms=30_000)
        reader = Reader(budget, LIMIT + 1)
        budget.room()
        await asyncio.sleep(1)
        stood_still = 3600.0
        await asyncio.sleep(28)
        assert not reader.is_cut_off.is_set()
        await asyncio.sleep(2)
        assert reader.is_cut_off.is_set()

    run_virtually(run())


async def test_large_answers_wait_when_the_budget_is_full() -> None:
    budget = AnswerBudget(LIMIT, patience_ms=600_000)
    slow = Reader(budget, 2 * LIMIT)
    assert budget.is_full
    order: list[int] = []

    async def ask(number: int) -> None:
        await budget.wait()
        order.append(number)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(ask(number))
        # The patience is long, but not for one that fills all there is.
        await slow.is_cut_off.wait()
        assert not order
    assert order == [0, 1, 2, 3, 4]


async def test_cancelled_waiter_does_not_block_the_next() -> None:
    budget = AnswerBudget(LIMIT, patience_ms=50)
    Reader(budget, 2 * LIMIT)
    first, second = (asyncio.ensure_future(budget.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(PATIENCE):
        await second
    assert first.cancelled()
