"""Lists of callbacks from which a callback can be removed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C")


def register(callbacks: list[C], callback: C) -> Callable[[], None]:
    """Append a callback; return a function that removes it."""
    callbacks.append(callback)

    def undo() -> None:
        if callback in callbacks:
            callbacks.remove(callback)

    return undo
