"""A fair lock between the processes of a host, freed by the kernel when its holder dies.

SQLite's own lock is waited for by sleeping, up to 100 ms at a time (correctness 9), and a plain
`flock` lets its last holder take it again before those who wait are awake. Here one has to pass
a gate first, and who passed the gate holds it until he has the lock: the last holder queues up
behind him.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")


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
