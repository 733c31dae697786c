"""A worker of `service.supervisor`: reads orders from standard input, writes reports to output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from rookery.errors import ConfigError, Error
from rookery.net.loop import run_loop
from rookery.service import logs
from rookery.service.process import BAD_SETTING, FAILED, StopRequest

log = logging.getLogger(__name__)

Tell = Callable[[Mapping[str, object]], None]
Work = Callable[[dict[str, Any], StopRequest, Tell], Awaitable[int]]
"""Serves until asked to stop; reports when it is ready; returns the exit code."""


class LaterOrders:
    """The lines that the supervisor writes while the worker serves, each answered by one."""

    def __init__(self) -> None:
        self.handle: Callable[[dict[str, Any]], Awaitable[None]] | None = None
        """Does what a line says, or raises an `Error`; set by the worker's main function."""
        self._part = b""
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()

    def on_data(self, data: bytes) -> None:
        """Take bytes of the standard input."""
        *lines, self._part = (self._part + data).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line)

    async def run(self) -> None:
        """Handle the lines in order, until cancelled."""
        while True:
            message = json.loads(await self._lines.get())
            error = Error("this worker takes no later orders")
            if self.handle is not None:
                error = await self._try(self.handle, message)
            _tell_supervisor({"error": error.reason, "name": error.name})

    async def _try(
        self, handle: Callable[[dict[str, Any]], Awaitable[None]], message: dict[str, Any]
    ) -> Error:
        """Return the error of a line, without a reason if there is none."""
        try:
            await handle(message)
        except Error as error:
            return error
        except Exception as error:
            # The root of a task: the supervisor waits for a reply.
            log.exception("later orders failed", extra={"error": repr(error)})
            return Error(repr(error))
        return Error()


def run_worker(command: str, work: Work, later: LaterOrders | None = None) -> int:
    """Run a worker process; return the exit code.

    Args:
        command: the program's name for users, for errors.
        work: the worker's main function. Its orders have a `log_level`.
        later: takes what the supervisor writes while the worker serves.
    """
    line = sys.stdin.buffer.readline()
    if not line:
        return FAILED
    message = json.loads(line)
    number, orders = message["number"], message["orders"]
    logs.set_up(orders["log_level"], worker=number)
    try:
        return run_loop(_work(work, orders, later or LaterOrders()))
    except Error as error:
        # For the user: the supervisor sees only the exit code.
        print(f"{command}: worker {number}: {error}", file=sys.stderr)  # noqa: T201
        return BAD_SETTING if isinstance(error, ConfigError) else FAILED


async def _work(work: Work, orders: dict[str, Any], later: LaterOrders) -> int:
    stop = StopRequest()
    # The supervisor handles hang-ups, and tells the workers.
    stop.when_hung_up = partial(log.info, "the supervisor handles hang-ups; the signal is ignored")
    stop.on_signals()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _watch_supervisor, stop, later)
    handling = asyncio.create_task(later.run())
    try:
        return await work(orders, stop, _tell_supervisor)
    finally:
        handling.cancel()
        await asyncio.gather(handling, return_exceptions=True)


def _watch_supervisor(stop: StopRequest, later: LaterOrders) -> None:
    stdin = sys.stdin.fileno()
    if data := os.read(stdin, 65_536):
        later.on_data(data)
        return
    asyncio.get_running_loop().remove_reader(stdin)
    if not stop.wanted.is_set():
        log.warning("stopping: the supervisor is gone")
        stop.wanted.set()


def _tell_supervisor(report: Mapping[str, object]) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
