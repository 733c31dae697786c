"""The folder of a demo, which is removed in any case, and the signals that end a demo."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, Protocol, TypeVar

_LIKE_CTRL_C: Final = (signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


class EndableServer(Protocol):
    """A server that writes to the folder."""

    def end(self) -> None:
        """Kill it, and return when none of its processes writes any more."""


E = TypeVar("E", bound=EndableServer)


class DemoFolder:
    """A folder, and the servers that write to it."""

    def __init__(self, prefix: str) -> None:
        """Create a folder whose name begins with the prefix."""
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._servers: list[EndableServer] = []

    def add(self, server: E) -> E:
        """Let the removal of the folder end this server first; return the server."""
        self._servers.append(server)
        return server

    def remove(self) -> None:
        """End the servers, and remove the folder."""
        for server in reversed(self._servers):
            server.end()
        shutil.rmtree(self.path)


def run_in_folder(work: Callable[[DemoFolder], T], prefix: str = "rookery-demo-") -> T:
    """Return what the work returns; end its servers and remove its folder in any case.

    SIGTERM and SIGHUP end the work as Ctrl-C does. A signal that comes while the folder is created
    or removed is delivered afterwards.

    Raises:
        KeyboardInterrupt: a signal ended the work.
    """
    signals = HeldSignals()
    with _interrupt_on(_LIKE_CTRL_C):
        try:
            return _run_and_remove(work, prefix, signals)
        finally:
            signals.release()


def _run_and_remove(work: Callable[[DemoFolder], T], prefix: str, signals: HeldSignals) -> T:
    signals.hold()
    folder = DemoFolder(prefix)
    try:
        try:
            signals.release()
            return work(folder)
        finally:
            signals.hold()
    finally:
        # Once more: an interrupt can come just before the first call takes effect.
        signals.hold()
        folder.remove()


class HeldSignals:
    """The signals that end a demo; while they are held, they are only noted."""

    def __init__(self) -> None:
        self._handlers: dict[
            signal.Signals, Callable[[int, FrameType | None], object] | int | None
        ] = {}
        self._noted: int | None = None

    def hold(self) -> None:
        """Note signals from now on. Those that this process ignores stay ignored."""
        for number in (signal.SIGINT, *_LIKE_CTRL_C):
            handler = signal.getsignal(number)
            if handler not in {signal.SIG_IGN, self._note}:
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def release(self) -> None:
        """Restore the handlers, and deliver the signal that was noted."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        noted, self._noted = self._noted, None
        if noted is not None:
            signal.raise_signal(noted)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._noted = number


@contextmanager
def _interrupt_on(numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Treat some signals as Ctrl-C, unless this process ignores them."""
    earlier = {number: signal.getsignal(number) for number in numbers}
    for number, handler in earlier.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does: an event loop cancels its task, all else is interrupted."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # a background job ignores Ctrl-C only
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
