"""Doorbells: how a process that committed wakes the others of its host.

Every handle has a datagram socket in a folder beside the database. A ring tells the number of the
entry just committed. A bell that is full drops rings, but then it holds others that have not been
answered: who finds more than one ring must look for himself how far the log goes.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from rookery.clock import SystemRandom
from rookery.errors import ConfigError

_SUFFIX: Final = ".bell"
_UNFINISHED: Final = ".new"
# sun_path has 108 bytes on Linux, 104 elsewhere, with a NUL at its end.
_MAX_ADDRESS: Final = 103
_RINGS_AT_ONCE: Final = 64
_RING_BYTES: Final = 8


class Bell:
    """This handle's own doorbell; watch `fileno` and call `answer` when it is readable."""

    def __init__(self, folder: Path) -> None:
        self.name: Final = SystemRandom().token(8).hex() + _SUFFIX
        self._path = folder / self.name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.settimeout(0.0)
            unfinished = self.name + _UNFINISHED
            with _Folder(folder) as opened:
                self._socket.bind(opened.address(unfinished))
            # A socket file exists a moment before anyone can connect to it, and in that moment
            # it looks dead; under its real name it never does.
            (folder / unfinished).rename(self._path)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return what to watch for reading."""
        return self._socket.fileno()

    def answer(self) -> tuple[int, int]:
        """Take the rings that have come; return the highest number, and how many they were.

        What is left makes the socket readable again.
        """
        highest = count = 0
        with suppress(BlockingIOError):
            while count < _RINGS_AT_ONCE:
                ring = self._socket.recv(_RING_BYTES)
                highest, count = max(highest, int.from_bytes(ring)), count + 1
        return highest, count

    def close(self) -> None:
        """Take the bell down."""
        self._path.unlink(missing_ok=True)
        self._socket.close()


class Ringer:
    """Rings the bells of all others; used by one thread at a time."""

    def __init__(self, folder: Path, own: str) -> None:
        self._folder = folder
        self._own = own
        # A socket for each: rings that a stopped process does not take fill its sender's buffer,
        # which must not be the one that the others' rings go through.
        self._bells: dict[str, socket.socket] = {}

    def look_around(self) -> None:
        """Find bells that are new, and remove those of processes that were killed."""
        with _Folder(self._folder) as opened:
            for path in list(self._folder.glob("*" + _SUFFIX)):
                if path.name != self._own and path.name not in self._bells:
                    self._connect(opened, path)

    def sweep(self) -> None:
        """Remove what a process left that was killed while it hung up its bell.

        Call it only while nobody else can be doing so.
        """
        for path in list(self._folder.glob("*" + _UNFINISHED)):
            path.unlink(missing_ok=True)

    def ring(self, number: int) -> None:
        """Ring every bell once; never waits."""
        ring = number.to_bytes(_RING_BYTES)
        for name, bell in list(self._bells.items()):
            try:
                bell.send(ring)
            except BlockingIOError:
                pass  # It has not answered an earlier ring.
            except OSError:
                bell.close()
                del self._bells[name]
                (self._folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the others' bells."""
        for bell in self._bells.values():
            bell.close()
        self._bells.clear()

    def _connect(self, opened: _Folder, path: Path) -> None:
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell.settimeout(0.0)
        try:
            bell.connect(opened.address(path.name))
        except (ConnectionRefusedError, FileNotFoundError):
            bell.close()
            path.unlink(missing_ok=True)
        else:
            self._bells[path.name] = bell


class _Folder:
    """A folder whose sockets can be named within the bound that addresses have."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def address(self, name: str) -> str:
        path = str(self._path / name)
        if len(os.fsencode(path)) <= _MAX_ADDRESS:
            return path
        if sys.platform != "linux":
            raise ConfigError(f"{self._path}: the path is too long for sockets; choose a shorter")
        return f"/proc/self/fd/{self._fd}/{name}"
