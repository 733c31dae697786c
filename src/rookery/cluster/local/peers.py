"""Locking and wake-up between the processes of a host that share a log.

Both use files in a folder next to the database. The lock is fair, and the kernel releases it when
its holder dies. Waiting for SQLite's own lock means sleeping, up to 100 ms at a time (correctness
9). With a plain `flock`, the last holder can take the lock again before the waiters wake. A
`Turnstile` has a gate before the lock. A process that passed the gate holds it until it has the
lock, so the last holder queues after it.

Every handle also has a doorbell: a datagram socket. A ring carries the number of the entry just
committed. A full bell drops rings, but then it still holds earlier ones: a handle that finds more
than one ring must read the head of the log.
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
    """A lock made of two files; one instance per handle, used by one thread at a time.

    Create it after forking: a forked child would share its parent's lock.
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
        """Announce a new handle: `arrivals` grows for all handles."""
        os.write(self._lock, b".")

    def arrivals(self) -> int:
        """Return the number of handles ever opened; it costs one system call.

        The folder's modification time is not precise enough: it has a resolution of milliseconds.
        """
        return os.fstat(self._lock).st_size

    def close(self) -> None:
        """Close the files, which releases the lock if it is held."""
        os.close(self._gate)
        os.close(self._lock)


def describe_holder(folder: Path) -> str:
    """Describe the process that holds the lock, and whether it is stopped; empty if unknown.

    The lock is never taken from a stopped process: it may be in the middle of a commit, and two
    SQLite writers would corrupt the file.
    """
    try:
        inode = (folder / "lock").stat().st_ino
        held = [line.split() for line in _LOCKS.read_text().splitlines() if "->" not in line]
        [pid] = [
            fields[4] for fields in held if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}")
        ]
        # The fields after the command, which may contain any characters.
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
            # A socket file exists for a moment before it accepts connections, and then it looks
            # dead. The rename prevents that state under its real name.
            (folder / unfinished).rename(self._path)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the file descriptor to watch for reading."""
        return self._socket.fileno()

    def answer(self) -> tuple[int, int]:
        """Receive the pending rings; return the highest number and the number of rings.

        If rings remain, the socket stays readable.
        """
        highest = count = 0
        with suppress(BlockingIOError):
            while count < _RINGS_AT_ONCE:
                ring = self._socket.recv(_RING_BYTES)
                highest, count = max(highest, int.from_bytes(ring)), count + 1
        return highest, count

    def close(self) -> None:
        """Remove the bell."""
        self._path.unlink(missing_ok=True)
        self._socket.close()


class Ringer:
    """Rings the bells of all other handles; used by one thread at a time."""

    def __init__(self, folder: Path, own: str) -> None:
        self._folder = folder
        self._own = own
        # One socket per bell: rings that a stopped process does not receive fill the sender's
        # buffer, which must not block rings to other processes.
        self._bells: dict[str, socket.socket] = {}

    def look_around(self) -> None:
        """Connect to new bells, and remove those of killed processes."""
        with _Folder(self._folder) as opened:
            for path in list(self._folder.glob("*" + _SUFFIX)):
                if path.name != self._own and path.name not in self._bells:
                    self._connect(opened, path)

    def sweep(self) -> None:
        """Remove the leftovers of a process that was killed while it created its bell.

        Call it only while no other process can be doing so.
        """
        for path in list(self._folder.glob("*" + _UNFINISHED)):
            path.unlink(missing_ok=True)

    def ring(self, number: int) -> None:
        """Ring every bell once; never blocks."""
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
        """Close the connections to the other bells."""
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
    """A folder that provides socket addresses within the length limit."""

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
