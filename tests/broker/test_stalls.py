"""What a broker reports of a store, a cluster log or a disk that does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from rookery.broker.broker import Broker
from rookery.broker.observe import Observer
from rookery.broker.settings import BrokerSettings
from rookery.broker.stalls import _SECONDS, _STALLS, StallWatch
from rookery.errors import Conflict, Unavailable
from rookery.store.pending import PendingCalls
from rookery.testing.clock import ManualClock
from rookery.testing.wait import PATIENCE_SECONDS


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


async def test_a_call_without_an_answer_is_logged_once_at_its_beginning_and_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock, answer = ManualClock(), asyncio.Event()
    calls = PendingCalls("store s3://b", clock)
    watch = StallWatch({"store": calls}, 5_000)
    before = _STALLS.labels("store").value
    task = await begin(calls, answer)

    clock.advance(4_999)
    await watch.look()
    assert watch.problem("store") == ""
    assert not caplog.records
    for _ in range(3):
        clock.advance(1_000)
        await watch.look()

    assert watch.problem("store") == "no answer to create 'a' for 8.0 s"
    assert _SECONDS.labels("store").value == pytest.approx(7.999)
    assert _STALLS.labels("store").value == before + 1
    answer.set()
    await task
    await watch.look()
    assert watch.problem("store") == ""
    assert _SECONDS.labels("store").value == 0
    assert [record.message for record in caplog.records] == [
        "the store s3://b is stuck: no answer to create 'a' for 6.0 s",
        "the store s3://b answers again, after 8.0 s",
    ]


async def test_calls_that_fail_one_after_the_other_are_one_stall() -> None:
    clock = ManualClock()
    calls = PendingCalls("store", clock)
    for _ in range(3):
        fail(calls, clock)

    assert str(calls.stall(5_000)) == "no answer to read 'a' for 12.0 s: no answer in time"


@pytest.mark.parametrize("refusal", [None, Conflict("it is there")])
async def test_any_answer_ends_a_series_of_failures(refusal: Exception | None) -> None:
    clock = ManualClock()
    calls = PendingCalls("store", clock)
    fail(calls, clock)

    with suppress(Conflict), calls.call("create 'a'"):
        if refusal is not None:
            raise refusal

    assert calls.stall(0) is None


async def test_after_failures_without_calls_the_dependency_is_asked() -> None:
    clock = ManualClock()
    calls = PendingCalls("store", clock)
    asked = asyncio.Event()

    async def probe() -> None:
        with calls.call("size"):
            asked.set()

    watch = StallWatch({"store": calls}, 1, {"store": probe})
    fail(calls, clock)
    await watch.look()
    await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)
    assert watch.problem("store") == ""
    await watch.stop()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    running = Broker(
        BrokerSettings(
            data=str(tmp_path), listen="127.0.0.1:0", caretaker="off", stall_timeout_ms=20
        )
    )
    await running.start()
    yield running
    await running.stop()


async def until(check: Observer, name: str, *, is_wrong: bool) -> str:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while bool(problem := check.ready_checks()[name]()) != is_wrong:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return problem


@pytest.mark.parametrize("dependency", ["store", "cluster log", "disk"])
async def test_readiness_names_what_hangs(broker: Broker, dependency: str) -> None:
    observer, answer = Observer(broker), asyncio.Event()
    task = await begin(broker.storage.dependencies[dependency], answer)

    assert "no answer to create 'a' for 0." in await until(observer, dependency, is_wrong=True)

    answer.set()
    await task
    assert await until(observer, dependency, is_wrong=False) == ""


async def test_calls_of_the_broker_are_pending_until_they_are_answered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = asyncio.Event()
    storage = broker.storage

    async def no_answer(*_: object) -> int:
        await answer.wait()
        return 0

    monkeypatch.setattr(storage.store._store, "size", no_answer)  # type: ignore[union-attr]
    monkeypatch.setattr(storage.cluster_log._log, "head", no_answer)  # type: ignore[attr-defined]
    tasks = [asyncio.create_task(storage.ask_store()), asyncio.create_task(broker.replica.lag())]
    observer = Observer(broker)
    assert "no answer to size '" in await until(observer, "store", is_wrong=True)
    assert "no answer to a look at its end" in await until(observer, "cluster log", is_wrong=True)
    answer.set()
    await asyncio.gather(*tasks)
