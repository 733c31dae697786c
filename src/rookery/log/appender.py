"""Where an append goes: the file under way, or a new one when it is full or has failed.

This is the journal without its thread: every call blocks until the bytes are durable. Laws:

- a file belongs to one incarnation and is created by it, never found; numbers only go up;
- an append that failed in one file is written whole to another, never again to the same;
- a file in which no append has succeeded is known to nobody, so it may be removed at once.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from rookery.clock import Clock
from rookery.errors import Conflict, Unavailable
from rookery.formats.keys import (
    NUMBER_LIMIT,
    journal_name,
    object_id,
    parse_journal_name,
    split_object_id,
)
from rookery.log.journalfile import Disk, JournalFile
from rookery.log.place import Place
from rookery.log.settings import Durability, JournalSettings
from rookery.outage import Outage
from rookery.wire.buffer import Buffer

log = logging.getLogger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Another file would fail in the same way at once.
_HOPELESS = _FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR}


class Appender:
    """Writes to one file after the other; for one thread."""

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
        """Files given up after a failed write or sync."""
        self.retired: list[JournalFile] = []
        """Files that were ended without a sync: it is for the caller to sync and close them."""
        _refuse_own_files(folder, incarnation)

    @property
    def end(self) -> Place | None:
        """The file under way, and where the next append to it goes."""
        file = self._file
        return Place(file.identity, file.end) if file else None

    def append(self, parts: list[Buffer], size: int) -> Place:
        """Write the parts, `size` bytes in all, together in one file; return where they begin."""
        attempts = self._attempts()
        for attempt in range(1, attempts + 1):
            try:
                place = self._try(parts, size)
            except OSError as error:
                self._abandon(error)
                if attempt == attempts or error.errno in _HOPELESS:
                    raise self._failed(error) from error
            except Exception as error:
                # How much of it was written is unknown, so the file must not be used again.
                self._abandon(error)
                raise
            else:
                self.failure = self._retry_at_ms = None
                self._outage.end()
                return place
        raise AssertionError("unreachable")

    def roll(self) -> None:
        """End the file under way; the next append begins another."""
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
        # Every try may use up a file number, so a disk that stays bad gets one at a time.
        return 1

    def _try(self, parts: list[Buffer], size: int) -> Place:
        file = self._file
        if file is not None and file.end and file.end + size > self._settings.file_bytes:
            self.roll()
            file = None
        if file is None:
            file = self._file = self._create()
        return Place(file.identity, file.append(parts, size))

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
            # Earlier appends to it were acknowledged unsynced. One sync tells what became of them.
            self.retired.append(file)
            return
        try:
            file.close()
            if not file.end:
                file.unlink()
        except OSError as again:
            log.warning("cannot tidy up %s: %s", file.path, again, extra={"error": again.errno})

    def _failed(self, error: OSError) -> Unavailable:
        if error.errno in _FULL:
            remedy = "free space on it, or lower the topics' retention"
        else:
            remedy = "check the disk, its mount and permissions, and the kernel's messages"
        path = error.filename or self._folder / journal_name(self._last())
        self.failure = (
            f"cannot write journal file {path}: {error.strerror or error};"
            f" {remedy}; writing goes on by itself once the disk takes it"
        )
        self._retry_at_ms = self._clock.monotonic_ms() + self._settings.retry_ms
        failed = Unavailable(self.failure)
        self._outage.fail(failed)
        return failed

    def _last(self) -> int:
        return object_id(self._incarnation, max(0, self._number - 1))


def _refuse_own_files(folder: Path, incarnation: int) -> None:
    # An incarnation is new when it begins. Files of it mean that the cluster log was lost or put
    # back to an older state, or that two processes think they are the same one.
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
