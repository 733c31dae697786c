"""What a broker reports of a store, a cluster log or a disk that does not answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.broker.broker import Broker
from rookery.broker.process.observe import Observer
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.objectlog import ObjectLogBacking
from rookery.store.pendingcalls import PendingCalls
from rookery.testing.clock import ManualClock
from rookery.testing.wait import wait_until_async


async def hang(calls: PendingCalls, answer: asyncio.Event, what: str = "create 'a'") -> None:
    with calls.call(what):
        await answer.wait()


async def begin(calls: PendingCalls, answer: asyncio.Event) -> asyncio.Task[None]:
    task = asyncio.create_task(hang(calls, answer))
    await asyncio.sleep(0)
    return task


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


async def until_reported(observer: Observer, name: str, call: str) -> None:
    """Wait for a problem of a dependency; a call of the broker itself can be reported before."""
    problem = observer.ready_checks()[name]
    await wait_until_async(problem, accepts=re.compile(f"no answer to {call} for ").match)


async def until_ready(observer: Observer, name: str) -> None:
    problem = observer.ready_checks()[name]
    await wait_until_async(problem, accepts=lambda text: not text)


@pytest.mark.parametrize("dependency", ["store", "cluster log", "disk"])
async def test_readiness_names_the_hanging_dependency(broker: Broker, dependency: str) -> None:
    observer, answer = Observer(broker), asyncio.Event()
    task = await begin(broker.backing.dependencies[dependency], answer)

    await until_reported(observer, dependency, "create 'a'")

    answer.set()
    await task
    await until_ready(observer, dependency)


@pytest.mark.parametrize("dependency", ["store", "cluster log", "disk"])
async def test_dependency_without_an_answer_for_five_seconds_is_a_problem_by_default(
    tmp_path: Path, dependency: str
) -> None:
    clock, answer = ManualClock(), asyncio.Event()
    silent = Broker(BrokerSettings(data=str(tmp_path), listen="127.0.0.1:0"), clock=clock)
    task = await begin(silent.backing.dependencies[dependency], answer)

    clock.advance(4_999)
    assert silent.stalls.problem(dependency) == ""
    clock.advance(1)
    assert silent.stalls.problem(dependency) == "no answer to create 'a' for 5.0 s"

    answer.set()
    await task
    await silent.abandon()
    await silent.backing.close()


async def test_broker_calls_are_pending_until_answered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = asyncio.Event()
    backing = broker.backing
    assert isinstance(backing, ObjectLogBacking)

    async def no_answer(*_: object) -> int:
        await answer.wait()
        return 0

    store, cluster_log = backing.handles.store, backing.cluster_log
    monkeypatch.setattr(store._store, "size", no_answer)  # type: ignore[attr-defined]
    monkeypatch.setattr(cluster_log._log, "head", no_answer)  # type: ignore[attr-defined]
    tasks = [
        asyncio.ensure_future(backing.probes["store"]()),
        asyncio.create_task(broker.replica.lag()),
    ]
    observer = Observer(broker)
    await until_reported(observer, "store", "size '.*'")
    await until_reported(observer, "cluster log", "a look at its end")
    answer.set()
    await asyncio.gather(*tasks)
