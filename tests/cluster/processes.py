"""Separate processes for tests, and handles that are closed at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rookery.cluster.backends.sqlite import SqliteLog

CHILD = Path(__file__).with_name("child.py")


class Opener(Protocol):
    """Opens a handle on the test's log; it is closed when the test ends."""

    def __call__(self, patience: float = 30.0) -> SqliteLog: ...


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start a process; it is killed if it still runs at the end."""
    process = subprocess.Popen(
        [sys.executable, CHILD, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).rstrip()


async def rest(process: subprocess.Popen[str]) -> str:
    """Return what a process says until it ends (`communicate` would miss what was buffered)."""
    assert process.stdout is not None
    return await asyncio.to_thread(process.stdout.read)
