"""Standard input or a file as lines, read by a thread so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError

_CHUNK_BYTES: Final = 1 << 18
_AHEAD: Final = 8
_LONGEST_LINE: Final = 1 << 30


def open_input(name: str) -> int:
    """Return the descriptor of a file, or of standard input for `-`.

    Raises:
        ConfigError: it cannot be opened.
    """
    if name == "-":
        return sys.stdin.fileno()
    try:
        return os.open(Path(name), os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"--file: {error}") from error


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the available lines together, without their line ends.

    Raises:
        ConfigError: the input cannot be read, or a line has no end.
    """
    rest: list[bytes] = []
    size = 0
    async for chunk in _chunks(descriptor):
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*rest, lines[0]))
            rest, size = [], 0
            yield [line.removesuffix(b"\r") for line in lines]
        rest.append(last)
        size += len(last)
        if size > _LONGEST_LINE:
            raise ConfigError(f"--file: a line is longer than {_LONGEST_LINE} bytes")
    if size:
        yield [b"".join(rest)]


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)

    def read() -> None:
        while room.acquire():
            try:
                got: bytes | OSError = os.read(descriptor, _CHUNK_BYTES)
            except OSError as error:
                got = error
            try:
                loop.call_soon_threadsafe(queue.put_nowait, got)
            except RuntimeError:
                return  # the loop has ended, and nothing waits for the input
            if not got or isinstance(got, OSError):
                return

    # A daemon, and no lock of a file object: the program must be able to end while it reads.
    threading.Thread(target=read, name="input", daemon=True).start()
    while got := await queue.get():
        if isinstance(got, OSError):
            raise ConfigError(f"--file: cannot be read: {got}")
        room.release()
        yield got
