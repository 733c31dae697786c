"""Wait for a condition, and report its last value if it never holds."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""Generous on purpose: a wait that ends early on a busy host says nothing about the product."""
_PAUSE_SECONDS = 0.01


def wait_until(
    condition: Callable[[], T],
    what: str = "",
    *,
    accepts: Callable[[T], object] = bool,
    seconds: float = PATIENCE_SECONDS,
    pause: float = _PAUSE_SECONDS,
) -> T:
    """Return the condition's value as soon as it is accepted.

    Args:
        condition: called repeatedly; an exception from it ends the wait.
        what: names the awaited state in the error.
        accepts: decides whether a value ends the wait; by default any true value does.
        seconds: how long to wait.
        pause: seconds between two calls, for a condition that is expensive.

    Raises:
        TimeoutError: no value was accepted in time. The message shows the last one.
    """
    deadline = monotonic() + seconds
    while not accepts(value := condition()):
        if monotonic() > deadline:
            raise TimeoutError(_describe(condition, what, value, seconds))
        sleep(pause)
    return value


async def wait_until_async(
    condition: Callable[[], T],
    what: str = "",
    *,
    accepts: Callable[[T], object] = bool,
    seconds: float = PATIENCE_SECONDS,
) -> T:
    """Do the same as `wait_until` while the event loop runs on.

    Raises:
        TimeoutError: no value was accepted in time. The message shows the last one.
    """
    deadline = monotonic() + seconds
    while not accepts(value := condition()):
        if monotonic() > deadline:
            raise TimeoutError(_describe(condition, what, value, seconds))
        await asyncio.sleep(_PAUSE_SECONDS)
    return value


def _describe(condition: Callable[[], object], what: str, value: object, seconds: float) -> str:
    return f"{what or _source(condition)}: not so after {seconds:g} s; the last value was {value!r}"


def _source(condition: Callable[[], object]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):  # a callable object, or code without a file
        return repr(condition)
