"""Dependencies that do not answer: when they are logged, counted and probed."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from rookery.errors import Conflict, Unavailable
from rookery.metrics import Registry
from rookery.service.stalls import StallMetrics, StallWatch
from rookery.store.pendingcalls import PendingCalls
from rookery.testing.clock import ManualClock
from rookery.testing.wait import PATIENCE_SECONDS


@pytest.fixture
def metrics() -> StallMetrics:
    return StallMetrics("test", Registry())


async def hang(calls: PendingCalls, answer: asyncio.Event, what: str = "create 'a'") -> None:
    with calls.call(what):
        await answer.wait()


async def begin(calls: PendingCalls, answer: asyncio.Event) -> asyncio.Task[None]:
    task = asyncio.create_task(hang(calls, answer))
    await asyncio.sleep(0)
    return task


def fail(calls: PendingCalls, clock: ManualClock) -> None:
    with suppress(Unavailable), calls.call("read 'a'"):
        clock.advance(4_000)
        raise Unavailable("no answer in time")


async def test_stall_is_logged_once_when_it_begins_and_once_when_it_ends(
    metrics: StallMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, answer = ManualClock(), asyncio.Event()
    calls = PendingCalls("store s3://b", clock)
    watch = StallWatch({"store": calls}, 5_000, metrics)
    task = await begin(calls, answer)

    clock.advance(4_999)
    await watch.look()
    assert watch.problem("store") == ""
    assert not caplog.records
    for _ in range(3):
        clock.advance(1_000)
        await watch.look()

    assert watch.problem("store") == "no answer to create 'a' for 8.0 s"
    assert metrics.seconds.labels("store").value == pytest.approx(7.999)
    assert metrics.stalls.labels("store").value == 1
    answer.set()
    await task
    await watch.look()
    assert watch.problem("store") == ""
    assert metrics.seconds.labels("store").value == 0
    assert [record.message for record in caplog.records] == [
        "the store s3://b is stuck: no answer to create 'a' for 6.0 s",
        "the store s3://b answers again, after 8.0 s",
    ]
    keys = [(vars(record)["dependency"], vars(record)["duration_ms"]) for record in caplog.records]
    assert keys == [("store", 5_999), ("store", 7_999)]


async def test_consecutive_failures_are_one_stall() -> None:
    clock = ManualClock()
    calls = PendingCalls("store", clock)
    for _ in range(3):
        fail(calls, clock)

    assert str(calls.stall(5_000)) == "no answer to read 'a' for 12.0 s: no answer in time"


@pytest.mark.parametrize("refusal", [None, Conflict("it is there")])
async def test_any_answer_ends_a_stall(refusal: Exception | None) -> None:
    clock = ManualClock()
    calls = PendingCalls("store", clock)
    fail(calls, clock)

    with suppress(Conflict), calls.call("create 'a'"):
        if refusal is not None:
            raise refusal

    assert calls.stall(0) is None


async def test_idle_dependency_is_probed_after_failures(metrics: StallMetrics) -> None:
    clock = ManualClock()
    calls = PendingCalls("store", clock)
    asked = asyncio.Event()

    async def probe() -> None:
        with calls.call("size"):
            asked.set()

    watch = StallWatch({"store": calls}, 1, metrics, {"store": probe})
    fail(calls, clock)
    await watch.look()
    await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)
    assert watch.problem("store") == ""
    await watch.stop()
