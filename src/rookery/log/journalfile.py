"""One journal file while it is written: created, appended to, abandoned; never opened again.

Law: a file whose write or sync failed is never touched again. After a failed fdatasync the kernel
may drop the pages and mark them clean, so that a second one succeeds on data that is not there.

Files are not preallocated: on ext4 it made no append faster by more than a tenth, and a size that
runs ahead of the bytes would let readers see what was never written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rookery.formats.journal import HEADER_BYTES, journal_header
from rookery.formats.keys import journal_name
from rookery.log.settings import Durability
from rookery.wire.buffer import Buffer

MAX_PARTS = 1024
"""Linux's IOV_MAX: buffers that one pwritev takes."""
MAX_WRITE_BYTES = 1 << 30
"""Below the 2 GiB at which Linux cuts a write, so that a short write is always a fault."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Disk(Protocol):
    """What is asked of the operating system; the module `os` is one."""

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """Open or create a file."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, /) -> int:
        """Write the buffers at an offset and return how many bytes were written."""

    def fdatasync(self, fd: int) -> None:
        """Bring the file's bytes to the disk."""

    def fsync(self, fd: int) -> None:
        """Bring the file or folder to the disk."""

    def close(self, fd: int) -> None:
        """Close the descriptor."""

    def unlink(self, path: str) -> None:
        """Remove the file's name."""


class JournalFile:
    """One append-only file; its first append also writes the header and syncs the folder."""

    __slots__ = ("_disk", "_durability", "_fd", "_folder", "end", "identity")

    def __init__(self, folder: Path, identity: int, durability: Durability, disk: Disk) -> None:
        self.identity = identity
        """The file's object id."""
        self.end = 0
        """Where the next append goes: after the last byte known to be written (and synced)."""
        self._folder = folder
        self._durability = durability
        self._disk = disk
        self._fd = disk.open(self.path, _CREATE, 0o640)

    @property
    def path(self) -> str:
        """Where the file lies."""
        return str(self._folder / journal_name(self.identity))

    def append(self, parts: Sequence[Buffer], size: int) -> int:
        """Write the parts, `size` bytes in all, sync them, and return their position."""
        if self.end:
            position = self.end
            self._write(parts, position)
        else:
            position = HEADER_BYTES
            self._write([journal_header(self.identity), *parts], 0)
        if self._durability == "disk":
            self._sync()
        self.end = position + size
        return position

    def sync(self) -> None:
        """Bring all of the file to the disk, and its name."""
        self._disk.fdatasync(self._fd)
        self._sync_folder()

    def close(self) -> None:
        """Close the file for ever."""
        self._disk.close(self._fd)

    def unlink(self) -> None:
        """Remove a file in which no append has succeeded, so that nothing can name it."""
        self._disk.unlink(self.path)

    def _sync(self) -> None:
        self._disk.fdatasync(self._fd)
        if not self.end:
            self._sync_folder()

    def _sync_folder(self) -> None:
        fd = self._disk.open(str(self._folder), _FOLDER)
        try:
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)

    def _write(self, parts: Sequence[Buffer], position: int) -> None:
        for chunk, size in _chunks(parts):
            written = self._disk.pwritev(self._fd, chunk, position)
            if written != size:
                raise OSError(errno.EIO, f"only {written} of {size} bytes were written", self.path)
            position += size


def _chunks(parts: Sequence[Buffer]) -> list[tuple[list[Buffer], int]]:
    """Cut the parts into runs that one pwritev takes whole, each with its size in bytes."""
    chunks: list[tuple[list[Buffer], int]] = []
    chunk: list[Buffer] = []
    size = 0
    for part in _pieces(parts):
        if len(chunk) == MAX_PARTS or size + len(part) > MAX_WRITE_BYTES:
            chunks.append((chunk, size))
            chunk, size = [], 0
        chunk.append(part)
        size += len(part)
    chunks.append((chunk, size))
    return chunks


def _pieces(parts: Sequence[Buffer]) -> Sequence[Buffer]:
    if all(len(part) <= MAX_WRITE_BYTES for part in parts):
        return parts
    return [
        memoryview(part)[start : start + MAX_WRITE_BYTES]
        for part in parts
        for start in range(0, len(part), MAX_WRITE_BYTES)
    ]
