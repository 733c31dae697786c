"""The event loop that programs run on: uvloop where it is installed, else Python's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory for the fastest available event loop."""
    try:
        import uvloop  # noqa: PLC0415 (optional, and 20 ms that only a program need pay)
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a program's main coroutine to completion, and return its result."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
