"""Orders that change while workers run apply to all workers or to none."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rookery.errors import ConfigError
from rookery.service.process import OK, StopRequest
from rookery.service.supervisor import Orders, OrdersOf, Report, Supervisor
from rookery.service.worker import LaterOrders, Tell, run_worker
from rookery.testing.wait import PATIENCE_SECONDS, wait_until_async

COMMAND = (sys.executable, "-m", "tests.service.test_laterorders")
ACCEPTED = {"error": "", "name": ""}


async def _work(later: LaterOrders, orders: dict[str, Any], stop: StopRequest, tell: Tell) -> int:
    """Write each value that is ordered as a line of a file, until the end."""

    async def follow(message: dict[str, Any]) -> None:
        value = message.get("orders", message)["value"]
        if value == orders["refused"]:
            raise ConfigError("no such value", name="value")
        _note(orders["file"], value)

    later.handle = follow
    _note(orders["file"], orders["value"])
    tell({"pid": os.getpid()})
    await stop.wanted.wait()
    return OK


def _note(file: str, value: str) -> None:
    with Path(file).open("a", encoding="utf-8") as output:
        output.write(f"{value}\n")


class ChangedWorkers:
    """A supervisor of two workers, each of which refuses one value."""

    def __init__(self, folder: Path) -> None:
        self.reports: list[Report] = []
        self._files = [folder / "0", folder / "1"]
        self.supervisor = Supervisor(COMMAND, self.all("first"), 5_000, self.reports.extend)

    def all(self, value: str) -> list[OrdersOf]:
        """Return orders with a value for both."""
        return [partial(self._orders, index, value) for index in range(2)]

    def _orders(self, index: int, value: str, _: Report | None) -> Orders:
        refused = ("bad for 0", "bad for 1")[index]
        file = str(self._files[index])
        return {"log_level": "info", "file": file, "value": value, "refused": refused}

    @property
    def values(self) -> list[list[str]]:
        """The values that each worker has followed."""
        return [each.read_text().split("\n")[:-1] for each in self._files]


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[ChangedWorkers]:
    workers, stop = ChangedWorkers(folder), StopRequest()
    task = asyncio.create_task(workers.supervisor.run(stop))
    try:
        await wait_until_async(lambda: len(workers.reports) == 2)
        yield workers
    finally:
        stop.wanted.set()
        assert await asyncio.wait_for(task, PATIENCE_SECONDS) == OK


async def test_all_workers_follow_later_orders(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        assert await workers.supervisor.change(workers.all("second")) == ACCEPTED
        await workers.supervisor.tell({"value": "told"})

        assert workers.values == [["first", "second", "told"]] * 2


async def test_refusal_of_one_worker_takes_back_the_orders_of_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        reply = await workers.supervisor.change(workers.all("bad for 1"))

        assert reply == {"error": "no such value", "name": "value"}
        assert workers.values == [["first", "bad for 1", "first"], ["first"]]


async def test_worker_that_dies_begins_with_the_later_orders(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        await workers.supervisor.change(workers.all("second"))
        os.kill(workers.reports[0]["pid"], signal.SIGKILL)

        await wait_until_async(lambda: workers.values[0] == ["first", "second", "second"])
        assert workers.values[1] == ["first", "second"]


async def test_orders_that_change_while_a_worker_starts_reach_it(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        os.kill(workers.reports[0]["pid"], signal.SIGKILL)
        # the new process has its orders, and is not ready
        await wait_until_async(lambda: workers.supervisor.starting == 1)
        assert await workers.supervisor.change(workers.all("second")) == ACCEPTED

        await wait_until_async(lambda: workers.values[0][-1] == "second")


async def test_worker_ignores_hang_ups(tmp_path: Path) -> None:
    async with running(tmp_path) as workers:
        os.kill(workers.reports[0]["pid"], signal.SIGHUP)

        assert await workers.supervisor.change(workers.all("second")) == ACCEPTED
        assert workers.values == [["first", "second"]] * 2


def _main() -> int:
    later = LaterOrders()
    return run_worker("rookery test", partial(_work, later), later)


if __name__ == "__main__":
    sys.exit(_main())
