"""Periodic tasks: they run again after a failure, and the failure is known until they succeed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rookery.errors import Unavailable
from rookery.service.periodic import PeriodicTasks
from rookery.testing.wait import wait_until_async


class Task:
    """Fails with the errors it is given, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.runs = 0
        self.may_go_on = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        await self.may_go_on.wait()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Unavailable("the disk is full"), "the disk is full"), (KeyError("x"), "KeyError('x')")],
)
async def test_failing_task_runs_again_and_its_failure_is_reported(
    error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tasks, task = PeriodicTasks(), Task(error)
    tasks.every(1, "cleaning", task.run)
    await wait_until_async(lambda: task.runs == 2)
    assert tasks.failing == {"cleaning": reason}

    task.may_go_on.set()
    await wait_until_async(lambda: not tasks.failing)

    await tasks.stop()
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"cleaning fails: {error}", "cleaning works again after 1 failures"]


async def test_stop_cancels_a_running_task() -> None:
    tasks, task = PeriodicTasks(), Task()
    tasks.every(1, "cleaning", task.run)
    await wait_until_async(lambda: task.runs == 1)

    await tasks.stop()

    task.may_go_on.set()
    assert task.runs == 1
    assert tasks.failing == {}
