"""Reads journal files with pread in a few threads; files are never memory-mapped.

A failed read of a mapping kills the process (SIGBUS). A failed pread is an error.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from rookery.errors import Conflict, Unavailable
from rookery.formats.journal import HEADER_BYTES, check_journal_header
from rookery.formats.keys import journal_name, parse_journal_name
from rookery.log.settings import FilesSettings


class MissingObject(Conflict):
    """An object does not exist any more: read the state again, then plan the read again."""

    def __init__(self, object_id: int, text: str) -> None:
        super().__init__(text)
        self.object_id = object_id


class MissingJournal(MissingObject):
    """A journal file is not in the log's folder."""

    def __init__(self, object_id: int) -> None:
        super().__init__(
            object_id, f"journal file {journal_name(object_id)} is not in the log's folder"
        )


class _Handle:
    """A descriptor and the number of threads that read from it."""

    __slots__ = ("fd", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0


class OpenFiles:
    """Descriptors by object id; may be used by several threads.

    A descriptor is closed only when no thread uses it. The system may reuse its number immediately,
    and a late read would return the bytes of another file.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._lock = Lock()
        self._handles: OrderedDict[int, _Handle] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handles)

    @contextmanager
    def use(self, object_id: int) -> Iterator[int]:
        """Lend the descriptor of a file; open and check the file if necessary.

        Raises:
            MissingJournal: There is no such file.
            Corrupt: The header of the file is invalid.
            OSError: It cannot be opened.
        """
        handle = self._take(object_id)
        try:
            yield handle.fd
        finally:
            self._give_back(object_id, handle)

    def forget(self, object_id: int) -> None:
        """Close the file when no read uses it, so that its space is freed after an unlink."""
        with self._lock:
            handle = self._handles.pop(object_id, None)
            unused = handle is not None and not handle.users
        if handle is not None and unused:
            os.close(handle.fd)

    def close(self) -> None:
        """Close all files; files that are being read are closed when the read ends."""
        for object_id in list(self._handles):
            self.forget(object_id)

    def _take(self, object_id: int) -> _Handle:
        with self._lock:
            handle = self._handles.get(object_id)
            if handle is not None:
                handle.users += 1
                self._handles.move_to_end(object_id)
                return handle
        # Opening may wait for the disk, so the lock is not held.
        opened = _Handle(self._open(object_id))
        opened.users = 1
        with self._lock:
            # If another thread was faster, its descriptor is kept and ours is used once.
            self._handles.setdefault(object_id, opened)
            unused = self._evict()
        for fd in unused:
            os.close(fd)
        return opened

    def _give_back(self, object_id: int, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            kept = self._handles.get(object_id) is handle
            unused = not handle.users and not kept
        if unused:
            os.close(handle.fd)

    def _evict(self) -> list[int]:
        unused = []
        while len(self._handles) > self._limit:
            _, handle = self._handles.popitem(last=False)
            if not handle.users:
                unused.append(handle.fd)
        return unused

    def _open(self, object_id: int) -> int:
        path = self._folder / journal_name(object_id)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise MissingJournal(object_id) from error
        try:
            check_journal_header(object_id, os.pread(fd, HEADER_BYTES, 0))
        except BaseException:
            os.close(fd)
            raise
        return fd


class FoundJournal(NamedTuple):
    """A journal file in the folder."""

    object_id: int
    size: int


class JournalFiles:
    """The journal files in a folder, of every incarnation."""

    def __init__(self, folder: Path, settings: FilesSettings | None = None) -> None:
        settings = settings or FilesSettings()
        self._folder = folder
        self._open = OpenFiles(folder, settings.max_open)
        self._threads = ThreadPoolExecutor(settings.threads, "rookery-read")

    async def read(self, object_id: int, position: int, size: int) -> bytes:
        """Return `size` bytes from the position on, fewer only where the file ends.

        Raises:
            MissingJournal: There is no such file.
            Corrupt: The header of the file is invalid.
            Unavailable: The disk could not read it.
        """
        if position < 0 or size < 0:
            raise ValueError(f"cannot read {size} bytes at position {position}")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._read, object_id, position, size)

    async def find(self) -> list[FoundJournal]:
        """List the journal files by object id; other files in the folder are ignored."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._journals)

    def forget(self, object_id: int) -> None:
        """Close a file after it was unlinked, so that its space is freed."""
        self._open.forget(object_id)

    async def close(self) -> None:
        """Finish the reads in progress and close all files."""
        await asyncio.to_thread(self._threads.shutdown)
        self._open.close()

    def _read(self, object_id: int, position: int, size: int) -> bytes:
        try:
            with self._open.use(object_id) as fd:
                return read_at(fd, position, size)
        except OSError as error:
            path = self._folder / journal_name(object_id)
            raise Unavailable(
                f"cannot read {size} bytes at position {position} of {path}: {error.strerror};"
                " check the disk and the kernel's messages"
            ) from error

    def _journals(self) -> list[FoundJournal]:
        journals = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                object_id = parse_journal_name(entry.name)
                if object_id is not None:
                    journals.append(FoundJournal(object_id, entry.stat().st_size))
        return sorted(journals)


def read_at(fd: int, position: int, size: int) -> bytes:
    """Return `size` bytes of a file from the position on, fewer only where it ends."""
    data = os.pread(fd, size, position)
    if len(data) == size or not data:
        return data
    # A short read happens at the end of the file, after a signal or at the 2 GiB limit: read on.
    pieces = [data]
    position, size = position + len(data), size - len(data)
    while size and (data := os.pread(fd, size, position)):
        pieces.append(data)
        position, size = position + len(data), size - len(data)
    return b"".join(pieces)
