"""A disk whose calls fail on demand, and which records all calls."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from rookery.wire.buffer import Buffer


class FaultyDisk:
    """The real disk, but with faults; each fault is used once, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """The calls by file, in order."""
        self.faults: dict[str, list[int]] = {}
        """By call: errors to come; 0 lets one call pass."""
        self.short: list[int] = []
        """Bytes that the next writes leave out."""
        self.gate = threading.Event()
        """Writes wait until it is set."""
        self.gate.set()
        self.writing = threading.Event()
        """Set when a write has begun."""
        self._names: dict[int, str] = {}

    def fail(self, call: str, *errors: int) -> None:
        self.faults.setdefault(call, []).extend(errors)

    def on(self, name: str) -> list[str]:
        """Return what was done to one file, without its name."""
        return [call.split()[0] for call in self.calls if call.endswith(name)]

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        name = Path(path).name
        self._note("create" if flags & os.O_CREAT else "open", name)
        fd = os.open(path, flags, mode)
        self._names[fd] = name
        return fd

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, /) -> int:
        self.writing.set()
        assert self.gate.wait(20)
        self._note("pwritev", self._names[fd])
        missing = self.short.pop(0) if self.short else 0
        if not missing:
            return os.pwritev(fd, buffers, offset)
        return os.pwrite(fd, b"".join(buffers)[:-missing], offset)

    def fdatasync(self, fd: int) -> None:
        self._note("fdatasync", self._names[fd])
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self._note("fsync", self._names[fd])
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)
        self._note("close", self._names[fd])

    def unlink(self, path: str) -> None:
        self._note("unlink", Path(path).name)
        os.unlink(path)  # noqa: PTH108 (this is the disk)

    def _note(self, call: str, name: str) -> None:
        self.calls.append(f"{call} {name}")
        faults = self.faults.get(call)
        error = faults.pop(0) if faults else 0
        if error:
            raise OSError(error, os.strerror(error), name)


EIO = errno.EIO
ENOSPC = errno.ENOSPC
