"""Lists of callbacks that can be left again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C")


def register(callbacks: list[C], callback: C) -> Callable[[], None]:
    """Append a callback; return a function that undoes this."""
    callbacks.append(callback)

    def undo() -> None:
        if callback in callbacks:
            callbacks.remove(callback)

    return undo
