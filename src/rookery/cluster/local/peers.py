"""How the processes of a host that share a log take turns, and how they wake each other.

Both use files in a folder beside the database. The lock is fair, and the kernel frees it when its
holder dies. SQLite's own lock is waited for by sleeping, up to 100 ms at a time (correctness 9),
and a plain `flock` lets its last holder take it again before those who wait are awake. A
`Turnstile` has a gate before the lock. A process that passed the gate holds it until it has the
lock, so the last holder queues up after it.

Every handle also has a doorbell: a datagram socket. A ring carries the number of the entry just
committed. A full bell drops rings, but then it holds others that were not answered: a handle that
finds more than one ring must look up how far the log goes.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from rookery.clock import SystemRandom
from rookery.errors import ConfigError

_LOCKS: Final = Path("/proc/locks")

_SUFFIX: Final = ".bell"
_UNFINISHED: Final = ".new"
# sun_path has 108 bytes on Linux, 104 elsewhere, with a NUL at its end.
_MAX_ADDRESS: Final = 103
_RINGS_AT_ONCE: Final = 64
_RING_BYTES: Final = 8


class Turnstile:
    """A lock by two files; one instance a handle, used by one thread at a time.

    Make it after forking: a forked child would share its parent's hold.
    """

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._gate = os.open(folder / "gate", flags, 0o600)
        self._lock = os.open(folder / "lock", flags, 0o600)

    def __enter__(self) -> None:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def count_arrival(self) -> None:
        """Let the others see that someone has come: `arrivals` grows for all of them."""
        os.write(self._lock, b".")

    def arrivals(self) -> int:
        """Return how many have ever come; it costs one system call.

        A folder's time of change would not do: it moves in steps of milliseconds.
        """
        return os.fstat(self._lock).st_size

    def close(self) -> None:
        """Let go of the files, and of the lock if it is held."""
        os.close(self._gate)
        os.close(self._lock)


def describe_holder(folder: Path) -> str:
    """Say which process holds the lock, and whether it is stopped; empty if that is not known.

    The lock is not taken away from a process that is stopped: it may be in the middle of a commit,
    and SQLite would let two writers spoil the file.
    """
    try:
        inode = (folder / "lock").stat().st_ino
        held = [line.split() for line in _LOCKS.read_text().splitlines() if "->" not in line]
        [pid] = [one[4] for one in held if one[1] == "FLOCK" and one[5].endswith(f":{inode}")]
        # After the command, which may have any characters in it.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return ""
    if state in {"T", "t"}:
        return f"process {pid} holds it and is stopped: continue it (kill -CONT {pid}) or end it"
    return f"process {pid} holds it"


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
