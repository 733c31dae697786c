"""How many bytes all connections of a broker together may hold in requests not yet answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.wire.frame import CHUNK_BYTES

DEFAULT_BYTES: Final = 512 * 1024 * 1024

Resume = Callable[[], bool]
"""Called when there is room again; returns whether the connection does read now."""


class Budget:
    """Counts received bytes until their requests are answered; connections wait while it is full.

    It is a mark and not a wall: a connection that may read can bring one chunk more. When
    unfinished frames alone fill it, nothing would ever be given back unless one of them gets its
    rest; then one connection at a time is favoured and reads on until its frame is whole.
    """

    __slots__ = ("_favoured", "_waiting", "_working", "limit", "used")

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        # The part of `used` that belongs to requests under way, and so will come back by itself.
        self._working = 0
        self._waiting: dict[Resume, None] = {}
        self._favoured: Resume | None = None

    def receive(self, count: int) -> None:
        """Count bytes that have arrived."""
        self.used += count

    def start(self, count: int) -> None:
        """Note that some of the bytes received now belong to a request under way."""
        self._working += count
        self._favoured = None

    def finish(self, count: int) -> None:
        """Give back the bytes of requests that are answered."""
        self._working -= count
        self.drop(count)

    def drop(self, count: int) -> None:
        """Give back bytes of requests that were answered at once, or never became whole."""
        self.used -= count
        self._favoured = None
        if self._waiting:
            self._wake()

    def may_read(self, resume: Resume) -> bool:
        """Tell whether a connection may read; if not, `resume` is called when it may ask again."""
        if self.used < self.limit:
            return True
        if self._working <= 0 and (self._favoured is None or self._favoured == resume):
            self._favoured = resume
            return True
        self._waiting[resume] = None
        return False

    def forget(self, resume: Resume) -> None:
        """Stop waiting: the connection is gone."""
        self._waiting.pop(resume, None)
        if self._favoured == resume:
            self._favoured = None

    def _wake(self) -> None:
        """Let as many read as there is room for, in the order in which they came."""
        room = self.limit - self.used
        if room <= 0 and self._working <= 0 and self._favoured is None:
            room = 1
        for resume in list(self._waiting):
            if room <= 0:
                return
            del self._waiting[resume]
            if resume():
                room -= CHUNK_BYTES
