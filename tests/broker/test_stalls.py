"""What a broker reports of a store, a cluster log or a disk that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.broker.broker import Broker
from rookery.broker.process.observe import Observer
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.objectlog import ObjectLogBacking
from rookery.store.pendingcalls import PendingCalls
from rookery.testing.wait import PATIENCE_SECONDS


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


async def until(check: Observer, name: str, *, is_wrong: bool) -> str:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while bool(problem := check.ready_checks()[name]()) != is_wrong:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return problem


@pytest.mark.parametrize("dependency", ["store", "cluster log", "disk"])
async def test_readiness_names_the_hanging_dependency(broker: Broker, dependency: str) -> None:
    observer, answer = Observer(broker), asyncio.Event()
    task = await begin(broker.backing.dependencies[dependency], answer)

    assert "no answer to create 'a' for 0." in await until(observer, dependency, is_wrong=True)

    answer.set()
    await task
    assert await until(observer, dependency, is_wrong=False) == ""


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
    assert "no answer to size '" in await until(observer, "store", is_wrong=True)
    assert "no answer to a look at its end" in await until(observer, "cluster log", is_wrong=True)
    answer.set()
    await asyncio.gather(*tasks)
