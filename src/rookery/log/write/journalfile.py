"""Journal files: writing one, choosing the file for an append, and deferred syncs.

This is the journal without its thread: every call blocks until the bytes are durable. Laws:

- A file belongs to the incarnation that creates it. Numbers only increase.
- A file whose write or sync failed is never touched again. After a failed fdatasync the kernel may
  drop the pages and mark them clean, so that a second one succeeds although the data is lost.
- An append that failed in one file is written completely to another.
- No commit references a file in which no append succeeded, so it may be removed immediately.

Files are not preallocated. On ext4 preallocation made no append faster by more than a tenth. A
size that exceeds the bytes written would let readers see bytes that were never written.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

from rookery.clock import Clock
from rookery.errors import Conflict, Unavailable
from rookery.formats.journal import HEADER_BYTES, journal_header
from rookery.formats.keys import (
    NUMBER_LIMIT,
    journal_name,
    object_id,
    parse_journal_name,
    split_object_id,
)
from rookery.log.settings import Durability, JournalSettings
from rookery.outage import Outage
from rookery.wire.buffer import Buffer

log = logging.getLogger(__name__)

MAX_PARTS = 1024
"""Linux's IOV_MAX: the number of buffers that one pwritev accepts."""
MAX_WRITE_BYTES = 1 << 30
"""Below the 2 GiB at which Linux truncates a write, so that a short write is always a fault."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Another file would fail immediately in the same way.
_HOPELESS = _FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR}


class JournalPosition(NamedTuple):
    """A position in a journal file."""

    object_id: int
    position: int


class Disk(Protocol):
    """The operating system calls that the journal uses; the module `os` implements them."""

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """Open or create a file."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, /) -> int:
        """Write the buffers at an offset and return the number of bytes written."""

    def fdatasync(self, fd: int) -> None:
        """Flush the file's bytes to the disk."""

    def fsync(self, fd: int) -> None:
        """Flush the file or folder to the disk."""

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
        """The position of the next append: after the last byte known to be written (and synced)."""
        self._folder = folder
        self._durability = durability
        self._disk = disk
        self._fd = disk.open(self.path, _CREATE, 0o600)

    @property
    def path(self) -> str:
        """The path of the file."""
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
        """Flush the whole file and its name to the disk."""
        self._disk.fdatasync(self._fd)
        self._sync_folder()

    def close(self) -> None:
        """Close the file permanently."""
        self._disk.close(self._fd)

    def unlink(self) -> None:
        """Remove a file in which no append succeeded, so that nothing can reference it."""
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
    """Split the parts into chunks that one pwritev accepts, each with its size in bytes."""
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


class JournalAppender:
    """Writes to the current file, or to a new one if it is full or has failed; for one thread."""

    def __init__(
        self,
        folder: Path,
        incarnation: int,
        durability: Durability,
        settings: JournalSettings,
        clock: Clock,
        disk: Disk = os,
    ) -> None:
        self._folder = folder
        self._incarnation = incarnation
        self._durability: Durability = durability
        self._settings = settings
        self._clock = clock
        self._disk = disk
        self._number = 0
        self._file: JournalFile | None = None
        self._retry_at_ms: int | None = None
        self._outage = Outage(log, "the journal")
        self.failure: str | None = None
        """Why the last append failed; None when it succeeded."""
        self.abandoned = 0
        """The number of files abandoned after a failed write or sync."""
        self.retired: list[JournalFile] = []
        """Files that were ended without a sync; the caller must sync and close them."""
        _refuse_own_files(folder, incarnation)

    @property
    def end(self) -> JournalPosition | None:
        """The current file, and the position of the next append to it."""
        file = self._file
        return JournalPosition(file.identity, file.end) if file else None

    def append(self, parts: list[Buffer], size: int) -> JournalPosition:
        """Write the parts, `size` bytes in all, contiguously in one file; return their position."""
        attempts = self._attempts()
        for attempt in range(1, attempts + 1):
            try:
                place = self._try(parts, size)
            except OSError as error:
                self._abandon(error)
                if attempt == attempts or error.errno in _HOPELESS:
                    raise self._make_error(error) from error
            except Exception as error:
                # It is unknown how much was written, so the file must not be used again.
                self._abandon(error)
                raise
            else:
                self.failure = self._retry_at_ms = None
                self._outage.end()
                return place
        raise AssertionError("unreachable")

    def roll(self) -> None:
        """End the current file; the next append starts another."""
        file, self._file = self._file, None
        if file is None:
            return
        if self._durability == "os":
            self.retired.append(file)
        else:
            file.close()

    def _attempts(self) -> int:
        if self._retry_at_ms is None:
            return self._settings.attempts
        if self._clock.monotonic_ms() < self._retry_at_ms:
            raise Unavailable(self.failure or "")
        # Every attempt may use up a file number, so a disk that stays bad gets one attempt at a
        # time.
        return 1

    def _try(self, parts: list[Buffer], size: int) -> JournalPosition:
        file = self._file
        if file is not None and file.end and file.end + size > self._settings.file_bytes:
            self.roll()
            file = None
        if file is None:
            file = self._file = self._create()
        return JournalPosition(file.identity, file.append(parts, size))

    def _create(self) -> JournalFile:
        if self._number == NUMBER_LIMIT:
            raise Unavailable(
                f"incarnation {self._incarnation} has used all {NUMBER_LIMIT} journal file"
                " numbers; restart the broker to get a new incarnation"
            )
        identity = object_id(self._incarnation, self._number)
        self._number += 1
        try:
            return JournalFile(self._folder, identity, self._durability, self._disk)
        except FileExistsError as error:
            raise _exists(self._folder, identity) from error

    def _abandon(self, error: Exception) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        self.abandoned += 1
        level = logging.DEBUG if self._outage.failures else logging.ERROR
        log.log(
            level,
            "abandoning a journal file after a failed write: %s",
            error,
            extra={"file": file.path},
        )
        if file.end and self._durability == "os":
            # Earlier appends to it were acknowledged unsynced. One sync shows whether they
            # survived.
            self.retired.append(file)
            return
        try:
            file.close()
            if not file.end:
                file.unlink()
        except OSError as again:
            log.warning("cannot tidy up %s: %s", file.path, again, extra={"error": again.errno})

    def _make_error(self, error: OSError) -> Unavailable:
        if error.errno in _FULL:
            remedy = "free space on it, or lower the topics' retention"
        else:
            remedy = "check the disk, its mount and permissions, and the kernel's messages"
        path = error.filename or self._folder / journal_name(self._last())
        self.failure = (
            f"cannot write journal file {path}: {error.strerror or error};"
            f" {remedy}; writing resumes once the disk accepts it"
        )
        self._retry_at_ms = self._clock.monotonic_ms() + self._settings.retry_ms
        failed = Unavailable(self.failure)
        self._outage.fail(failed)
        return failed

    def _last(self) -> int:
        return object_id(self._incarnation, max(0, self._number - 1))


def _refuse_own_files(folder: Path, incarnation: int) -> None:
    # An incarnation is new when it starts. Existing files of it mean that the cluster log was lost
    # or restored to an older state, or that two processes use the same incarnation.
    for path in folder.iterdir():
        identity = parse_journal_name(path.name)
        if identity is not None and split_object_id(identity)[0] == incarnation:
            raise _exists(folder, identity)


def _exists(folder: Path, identity: int) -> Conflict:
    return Conflict(
        f"journal file {folder / journal_name(identity)} exists already, though its incarnation has"
        " just begun: the cluster log does not belong to this folder (was it deleted or restored?);"
        " bring back the right cluster log, or move the folder away"
    )


class JournalSyncer:
    """Syncs and closes full files under durability "os", whose appends were acknowledged unsynced.

    It uses a separate thread and processes the files in order, so that appends are not delayed.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "rookery-journal-sync")
        self._failed = False
        self.end: JournalPosition | None = None
        """All bytes before it are known to be on the disk."""

    def add(self, file: JournalFile) -> None:
        """Sync and close the file when its turn comes."""
        self._executor.submit(self._sync, file)

    def close(self) -> None:
        """Wait for the last file."""
        self._executor.shutdown()

    def _sync(self, file: JournalFile) -> None:
        try:
            try:
                file.sync()
            finally:
                file.close()
        except OSError as error:
            # The contents of the file may be lost, so the known end never moves past it.
            self._failed = True
            log.exception(
                "a journal file could not be synced; after a power loss records in it may be"
                " missing; check the disk",
                extra={"file": file.path, "error": error.errno},
            )
        if not self._failed:
            self.end = JournalPosition(file.identity, file.end)
