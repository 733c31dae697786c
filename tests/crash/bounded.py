"""Calls that have no time limit of their own, with one.

A main thread that waits in C code runs no Python, so that pytest-timeout cannot end its test. The
call therefore runs in another thread. That helps with functions of librdkafka's client that release
the interpreter's lock, such as `close`. `tests/frozen.py` lists those that keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from rookery.testing.wait import PATIENCE_SECONDS

T = TypeVar("T")


def within(call: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Return what a call returns. A call that does not return is left to itself.

    Args:
        call: is called in a thread.
        what: names the call in the error.
        seconds: how long to wait.

    Raises:
        TimeoutError: it did not return in time.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 (raised below)
            future.set_exception(error)

    Thread(target=run, name=what, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # of the call itself
            raise
        raise TimeoutError(f"{what} did not return within {seconds:g} s") from None
