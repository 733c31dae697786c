"""A worker of `service.supervisor`: reads orders from standard input, writes reports to output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from rookery.errors import ConfigError, Error
from rookery.net.loop import run_loop
from rookery.service import logs
from rookery.service.process import BAD_SETTING, FAILED, StopRequest

log = logging.getLogger(__name__)

Tell = Callable[[Mapping[str, object]], None]
Work = Callable[[dict[str, Any], StopRequest, Tell], Awaitable[int]]
"""Serves until asked to stop; reports when it is ready; returns the exit code."""


def run_worker(command: str, work: Work) -> int:
    """Run a worker process; return the exit code.

    Args:
        command: the program's name for users, for errors.
        work: the worker's main function. Its orders have a `log_level`.
    """
    line = sys.stdin.buffer.readline()
    if not line:
        return FAILED
    message = json.loads(line)
    number, orders = message["number"], message["orders"]
    logs.set_up(orders["log_level"], worker=number)
    try:
        return run_loop(_work(work, orders))
    except Error as error:
        # For the user: the supervisor sees only the exit code.
        print(f"{command}: worker {number}: {error}", file=sys.stderr)  # noqa: T201
        return BAD_SETTING if isinstance(error, ConfigError) else FAILED


async def _work(work: Work, orders: dict[str, Any]) -> int:
    stop = StopRequest()
    stop.on_signals()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _watch_supervisor, stop)
    return await work(orders, stop, _tell_supervisor)


def _watch_supervisor(stop: StopRequest) -> None:
    stdin = sys.stdin.fileno()
    if not os.read(stdin, 4096):
        asyncio.get_running_loop().remove_reader(stdin)
        if not stop.wanted.is_set():
            log.warning("stopping: the supervisor is gone")
            stop.wanted.set()


def _tell_supervisor(report: Mapping[str, object]) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
