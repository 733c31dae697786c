"""A separate process that uses a cluster log; its first argument names the action."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rookery.cluster.local.peers import Turnstile
from rookery.cluster.open import open_log
from rookery.cluster.port import Durability
from rookery.errors import Unavailable


def say(text: object) -> None:
    """Tell the tests; they wait for lines."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def append(url: str, name: str, count: str, durability: Durability = "disk") -> None:
    """Append `name-0`, `name-1` …, two at a time, and say every number when it is known."""
    log = open_log(url, durability=durability)
    say("ready")

    async def append_one(index: int) -> None:
        number = await log.append(f"{name}-{index}".encode())
        say(f"{number} {name}-{index}")

    for index in range(0, int(count), 2):
        await asyncio.gather(append_one(index), append_one(index + 1))
    await log.close()


async def echo(url: str) -> None:
    """Answer every entry that is not ours with one of ours, and say that it came."""
    log = open_log(url, durability="os")
    after = await log.head()
    say("ready")
    while True:
        await log.wait(after)
        for number, data in await log.read(after):
            after = number
            if data.startswith(b"ping"):
                await log.append(data.replace(b"ping", b"pong"))


async def trim(url: str, step: str) -> None:
    """Trim the log repeatedly, and print each floor that was reached."""
    log = open_log(url)
    say("ready")
    while True:
        before = await log.wait(await log.floor() + int(step)) - 1
        await log.trim(before)
        say(before - 1)


async def fill(url: str) -> None:
    """Append until no file may grow further, then lift the limit and append again."""
    log = open_log(url, durability="os")
    await log.append(b"first")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    acked = 1
    try:
        while True:
            await log.append(b"x" * 50_000)
            acked += 1
    except Unavailable as error:
        say(error)
    say([e.number for e in await log.read(acked)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    say((await log.append(b"again")) - acked)
    await log.close()


def hold(folder: str) -> None:
    """Take the lock, say so, and keep it until the tests close our input."""
    with Turnstile(Path(folder)):
        say("held")
        sys.stdin.read()


def grab(folder: str) -> None:
    """Take the lock repeatedly, and count how often."""
    turnstile = Turnstile(Path(folder))
    say("ready")
    while True:
        with turnstile:
            turnstile.count_arrival()
            sum(range(20_000))  # As long as a commit takes.


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command in {"hold", "grab"}:
        {"hold": hold, "grab": grab}[command](*arguments)
    else:
        commands: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
            "append": append,
            "echo": echo,
            "fill": fill,
            "trim": trim,
        }
        asyncio.run(commands[command](*arguments))
