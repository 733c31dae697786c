"""Reads `.log` files by pread in a few threads, by the numbers in rows.

The operating system caches their pages, so there is no other cache.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Final

from rookery.errors import Unavailable
from rookery.formats.keys import NUMBER_BITS
from rookery.log.read.files import MissingObject, OpenFiles, read_at

_THREADS: Final = 4
_MAX_OPEN: Final = 512


class SegmentGone(MissingObject):
    """A segment was deleted in the meantime: refresh the state."""

    def __init__(self, object_id: int, path: Path | None) -> None:
        super().__init__(object_id, f"{path or f'file {object_id}'} does not exist any more")


class SegmentFiles:
    """The files of a directory by number, with the reads that a `LogReader` needs."""

    ahead_bytes = all_ahead_bytes = 0
    stored_block_bytes = 1

    def __init__(self) -> None:
        self._paths: dict[int, Path] = {}
        self._numbers = count(1)
        self._open = _Descriptors(self._paths.get)
        self._threads = ThreadPoolExecutor(_THREADS, "rookery-read")
        self._lock = Lock()

    def number(self, path: Path) -> int:
        """Assign a number to a file; the low bits mark files on this host's disk."""
        with self._lock:
            object_id = next(self._numbers) << NUMBER_BITS
            self._paths[object_id] = path
        return object_id

    def name(self, object_id: int) -> str:
        """Return the name of a file, for messages."""
        return str(self._paths.get(object_id, f"file {object_id}"))

    def forget(self, object_id: int) -> None:
        """Close a file after it was unlinked, so that its space is freed."""
        self._paths.pop(object_id, None)
        self._open.forget(object_id)

    async def read(self, object_id: int, position: int, size: int) -> bytes:
        """Return `size` bytes from the position on, fewer only at the end of the file.

        Raises:
            SegmentGone: the file no longer exists.
            Unavailable: the disk could not read it.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._read, object_id, position, size)

    async def views(self, object_id: int, position: int, size: int) -> list[memoryview]:
        """Return the same as a list of one view."""
        return [memoryview(await self.read(object_id, position, size))]

    def want(self, object_id: int, position: int, size: int) -> None:
        """Do nothing: the operating system reads ahead."""

    def drop(self, object_id: int, position: int, size: int) -> None:
        """Do nothing: there is no cache."""

    async def close(self) -> None:
        """Finish pending reads and close all files."""
        await asyncio.to_thread(self._threads.shutdown)
        self._open.close()

    def _read(self, object_id: int, position: int, size: int) -> bytes:
        try:
            with self._open.use(object_id) as fd:
                return read_at(fd, position, size)
        except OSError as error:
            raise Unavailable(
                f"cannot read {size} bytes at position {position} of {self.name(object_id)}: "
                f"{error.strerror}; check the disk and the kernel's messages"
            ) from error


class _Descriptors(OpenFiles):
    """Open files by number."""

    def __init__(self, path_of: Callable[[int], Path | None]) -> None:
        super().__init__(Path(), _MAX_OPEN)
        self._path_of = path_of

    def _open(self, object_id: int) -> int:
        path = self._path_of(object_id)
        if path is None:
            raise SegmentGone(object_id, None)
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise SegmentGone(object_id, path) from error
