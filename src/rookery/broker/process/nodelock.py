"""Locks that show whether the owner of a node id is a live process of this host.

The kernel releases a lock when its process ends, also after kill -9. A broker writes the mark of
its lock file into its registration. A new process that has the same file can therefore decide
immediately whether the owner is alive. Owners with another mark run elsewhere, or held a file that
was deleted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from pathlib import Path
from typing import Final

from rookery.clock import Random

_MARK_BYTES: Final = 8
_PROCESS_BYTES: Final = 16
# Locks belong to the open file, not the process, so two brokers of one process exclude each other.
_SET_LOCK: Final = getattr(fcntl, "F_OFD_SETLK", None)
_GET_LOCK: Final = getattr(fcntl, "F_OFD_GETLK", None)
_FLOCK: Final = "hhqqi4x"


class NodeLock:
    """One byte of a shared file per node id, locked by the broker that has this id."""

    def __init__(self, path: Path | None, boot_id: str, random: Random) -> None:
        """Open the file; without one, every owner counts as running elsewhere.

        Args:
            path: the file; None if brokers of this host share nothing.
            boot_id: distinguishes files that can have the same number on another host.
            random: creates the mark if there is no file.
        """
        self._file = -1 if path is None or _SET_LOCK is None else _open(path)
        # Only temporary files must be removed.
        self._path = path if boot_id else None
        self._random = random
        self._node_id = -1
        self._mark = random.token(_MARK_BYTES)
        if self._file >= 0:
            status = os.fstat(self._file)
            name = f"{boot_id}/{status.st_dev if boot_id else 0}/{status.st_ino}"
            self._mark = hashlib.blake2b(name.encode(), digest_size=_MARK_BYTES).digest()

    def new_process_id(self) -> bytes:
        """Return an id for a registration; it carries the mark of this file."""
        return self._mark + self._random.token(_PROCESS_BYTES - _MARK_BYTES)

    def can_judge(self, process_id: bytes) -> bool:
        """Return whether the process that registered with this id uses the same lock file."""
        return process_id.startswith(self._mark)

    def hold(self, node_id: int) -> bool:
        """Lock a node id instead of the previous one; return False if another process holds it."""
        if node_id != self._node_id and self._file >= 0:
            if not self._set(fcntl.F_WRLCK, node_id):
                return False
            if self._node_id >= 0:
                self._set(fcntl.F_UNLCK, self._node_id)
        self._node_id = node_id
        return True

    def is_held(self, node_id: int) -> bool:
        """Return whether another process has locked a node id."""
        if self._file < 0:
            return False
        return self._finds(_flock(fcntl.F_WRLCK, node_id))

    def close(self) -> None:
        """Release the lock; the last process to do so removes a temporary file.

        A process that opens the file at that moment has a file without a name. Others cannot judge
        it by that file, and watch the cluster log instead.
        """
        if self._file < 0:
            return
        if self._path is not None and not self._finds(_flock(fcntl.F_WRLCK, 0, size=0)):
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = -1

    def _finds(self, lock: bytes) -> bool:
        if _GET_LOCK is None:
            return True
        answer = fcntl.fcntl(self._file, _GET_LOCK, lock)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def _set(self, kind: int, node_id: int) -> bool:
        assert _SET_LOCK is not None  # noqa: S101 (there would be no file)
        try:
            fcntl.fcntl(self._file, _SET_LOCK, _flock(kind, node_id))
        except BlockingIOError:
            return False
        except PermissionError:  # some systems return EACCES for a held lock
            return False
        return True


def _flock(kind: int, node_id: int, size: int = 1) -> bytes:
    # A size of 0 reaches to the end of the file.
    return struct.pack(_FLOCK, kind, os.SEEK_SET, node_id, size, 0)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except OSError:
        return -1
