"""Journal files as they are read: by pread in a few threads, never mapped.

A read of a mapping that fails kills the process (SIGBUS); a pread that fails is an error.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rookery.errors import Unavailable
from rookery.formats.keys import journal_name, parse_journal_name
from rookery.log.openfiles import OpenFiles
from rookery.log.settings import FilesSettings


class Found(NamedTuple):
    """A journal file in the folder."""

    object_id: int
    size: int


class Files:
    """The journal files in a folder, of every incarnation."""

    def __init__(self, folder: Path, settings: FilesSettings | None = None) -> None:
        settings = settings or FilesSettings()
        self._folder = folder
        self._open = OpenFiles(folder, settings.max_open)
        self._threads = ThreadPoolExecutor(settings.threads, "rookery-read")

    async def read(self, object_id: int, position: int, size: int) -> bytes:
        """Return that many bytes from the position on, fewer only where the file ends.

        Raises:
            Missing: There is no such file.
            Corrupt: The file does not begin as it must.
            Unavailable: The disk could not read it.
        """
        if position < 0 or size < 0:
            raise ValueError(f"cannot read {size} bytes at position {position}")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._read, object_id, position, size)

    async def found(self) -> list[Found]:
        """List the journal files by object id; other files in the folder are left out."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._found)

    def forget(self, object_id: int) -> None:
        """Let go of a file after it was unlinked, so that its space is freed."""
        self._open.forget(object_id)

    async def close(self) -> None:
        """Finish the reads under way and close all files."""
        await asyncio.to_thread(self._threads.shutdown)
        self._open.close()

    def _read(self, object_id: int, position: int, size: int) -> bytes:
        try:
            with self._open.use(object_id) as fd:
                return _pread(fd, position, size)
        except OSError as error:
            path = self._folder / journal_name(object_id)
            raise Unavailable(
                f"cannot read {size} bytes at position {position} of {path}: {error.strerror};"
                " check the disk and the kernel's messages"
            ) from error

    def _found(self) -> list[Found]:
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                object_id = parse_journal_name(entry.name)
                if object_id is not None:
                    found.append(Found(object_id, entry.stat().st_size))
        return sorted(found)


def _pread(fd: int, position: int, size: int) -> bytes:
    data = os.pread(fd, size, position)
    if len(data) == size or not data:
        return data
    # Short at the end of the file, or where a signal or the 2 GiB bound cut it: ask on.
    pieces = [data]
    position, size = position + len(data), size - len(data)
    while size and (data := os.pread(fd, size, position)):
        pieces.append(data)
        position, size = position + len(data), size - len(data)
    return b"".join(pieces)
