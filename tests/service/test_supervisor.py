"""Worker processes: their orders, restarts, exit codes and common end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest

from rookery.errors import ConfigError
from rookery.service.process import BAD_SETTING, FAILED, OK, StopRequest
from rookery.service.supervisor import Orders, OrdersOf, Report, Supervisor
from rookery.service.worker import Tell, run_worker
from rookery.testing.wait import PATIENCE_SECONDS, wait_until_async

COMMAND = (sys.executable, "-m", "tests.service.test_supervisor")


async def _work(orders: dict[str, Any], stop: StopRequest, tell: Tell) -> int:
    """Report the orders and the process id, then wait for the end."""
    if orders.get("is_bad"):
        raise ConfigError("listen: no such port")
    tell({"pid": os.getpid(), **orders})
    await stop.wanted.wait()
    return int(orders.get("code", OK))


class Workers:
    """A supervisor under test, and what was reported to it."""

    def __init__(self, *orders: Orders) -> None:
        self.announced: list[Report] = []
        self.lives: list[list[Report | None]] = [[] for _ in orders]
        self.stop = StopRequest()
        workers = [self._orders_of(index, each) for index, each in enumerate(orders)]
        supervisor = Supervisor(COMMAND, workers, 5_000, self.announced.extend)
        self._running = asyncio.create_task(supervisor.run(self.stop))

    def _orders_of(self, index: int, orders: Orders) -> OrdersOf:
        def orders_of(report: Report | None) -> Orders:
            self.lives[index].append(report)
            return {"log_level": "info", "life": len(self.lives[index]), **orders}

        return orders_of

    async def end(self) -> int:
        self.stop.wanted.set()
        return await asyncio.wait_for(self._running, PATIENCE_SECONDS)

    async def code(self) -> int:
        return await asyncio.wait_for(self._running, PATIENCE_SECONDS)


async def test_all_workers_are_announced_once_and_stopped_together() -> None:
    workers = Workers({"name": "a"}, {"name": "b"})
    await wait_until_async(lambda: len(workers.announced) == 2)

    assert await workers.end() == OK

    assert [report["name"] for report in workers.announced] == ["a", "b"]
    assert not any(_is_alive(report["pid"]) for report in workers.announced)


async def test_worker_that_dies_is_restarted_with_its_last_report() -> None:
    workers = Workers({"name": "a"})
    await wait_until_async(lambda: len(workers.announced) == 1)
    victim = workers.announced[0]["pid"]

    os.kill(victim, signal.SIGKILL)

    await wait_until_async(lambda: len(workers.lives[0]) == 2)
    await workers.end()
    assert workers.lives[0][0] is None
    assert workers.lives[0][1] == workers.announced[0]
    assert len(workers.announced) == 1


async def test_worker_that_cannot_start_ends_all(capfd: pytest.CaptureFixture[str]) -> None:
    workers = Workers({"name": "a"}, {"is_bad": True})

    assert await workers.code() == BAD_SETTING

    assert "rookery test: worker 2: listen: no such port" in capfd.readouterr().err


async def test_failure_of_one_worker_at_the_end_is_the_exit_code() -> None:
    workers = Workers({"name": "a"}, {"name": "b", "code": 7})
    await wait_until_async(lambda: len(workers.announced) == 2)

    assert await workers.end() == FAILED


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(run_worker("rookery test", _work))
