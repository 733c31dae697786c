"""The journal: one thread makes appends durable in the order of their arrival.

The event loop never waits for the disk. Appends that arrive during a write are gathered, then
written and synced together. Each append returns its own position. With durability "disk" an append
returns when it is on the disk (bytes, then the name of a new file). With "os" it returns when the
operating system has the bytes; files are synced when they are full and when the journal is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple, TypeVar

from rookery.clock import Clock, SystemClock
from rookery.errors import ConfigError, Conflict, Error, Unavailable
from rookery.formats.keys import journal_name
from rookery.log.settings import Durability, JournalSettings
from rookery.log.write.journalfile import Disk, JournalAppender, JournalPosition, JournalSyncer
from rookery.store.syncfolder import sync_folder
from rookery.wire.buffer import Buffer

log = logging.getLogger(__name__)

T = TypeVar("T")


class FlushPosition(NamedTuple):
    """The location of an append."""

    object_id: int
    position: int
    size: int


class _Append(NamedTuple):
    parts: Sequence[Buffer]
    size: int
    answer: asyncio.Future[FlushPosition]


class _Roll(NamedTuple):
    answer: asyncio.Future[None]


class _Stop:
    """The last item in the queue."""


class Journal:
    """The files of one incarnation; used by one event loop, closed once."""

    def __init__(
        self,
        folder: Path,
        incarnation: int,
        durability: Durability = "disk",
        settings: JournalSettings | None = None,
        *,
        clock: Clock | None = None,
        disk: Disk = os,
    ) -> None:
        """Create the folder if necessary; reject one that holds files of this incarnation.

        Raises:
            Conflict: The incarnation has written here before. The folder belongs to another cluster
                log, or another process uses the same incarnation.
            ConfigError: The folder cannot be created, or a setting is invalid.
        """
        self._settings = settings or JournalSettings()
        _check(self._settings)
        self._folder = folder
        self._durability = durability
        _make_folder(folder)
        self._appender = JournalAppender(
            folder, incarnation, durability, self._settings, clock or SystemClock(), disk
        )
        self._queue: SimpleQueue[_Append | _Roll | _Stop] = SimpleQueue()
        self._held: _Roll | _Stop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._syncer = JournalSyncer()
        self._synced: JournalPosition | None = None
        self.pending_bytes = 0
        """Bytes of appends that are not acknowledged yet."""
        self.appends = 0
        """Appends that have succeeded."""
        self.groups = 0
        """The number of disk writes for these appends."""
        self.written_bytes = 0
        """Bytes of these appends."""
        self._thread = Thread(target=self._run, name="rookery-journal", daemon=True)
        self._thread.start()

    @property
    def durable(self) -> JournalPosition | None:
        """The end of the bytes known to be on the disk; a power loss cannot affect them."""
        return self._synced if self._durability == "disk" else self._syncer.end

    @property
    def failure(self) -> str | None:
        """Why the last append failed and what to do; None while writing works."""
        return self._appender.failure

    @property
    def abandoned(self) -> int:
        """The number of files abandoned after a failed write or sync."""
        return self._appender.abandoned

    @property
    def current(self) -> int | None:
        """The object id of the current file; None before the first append and after a roll."""
        end = self._appender.end
        return end.object_id if end else None

    async def append(self, parts: Sequence[Buffer]) -> FlushPosition:
        """Write the parts one after the other and return their location when they are durable.

        The parts must not change until then. An append that is cancelled may still be written.

        Raises:
            Unavailable: The disk rejected it, in several files; the text says what to do. The bytes
                may be in an abandoned file, but nothing references them.
        """
        size = sum(map(len, parts))
        if size == 0:
            raise ValueError("an append must have at least one byte")
        answer: asyncio.Future[FlushPosition] = self._require_loop().create_future()
        self._queue.put(_Append(parts, size, answer))
        self.pending_bytes += size
        try:
            return await answer
        finally:
            self.pending_bytes -= size

    async def roll(self) -> None:
        """Close the current file, so that it can be unlinked when it has no live bytes."""
        answer: asyncio.Future[None] = self._require_loop().create_future()
        self._queue.put(_Roll(answer))
        await answer

    async def unlink(self, object_id: int) -> None:
        """Remove a file, of any incarnation, that no live extent and no pending commit references.

        Readers must close it afterwards (`Files.forget`, `BlockCache.invalidate`), or its space is
        not freed. A file that does not exist is not an error.

        Raises:
            Conflict: It is the current file: appends would go to a file without a name.
            Unavailable: The operating system refused.
        """
        if object_id == self.current:
            raise Conflict(
                f"journal file {journal_name(object_id)} is being written; roll the journal first"
            )
        await asyncio.to_thread(_unlink, self._folder / journal_name(object_id))

    async def close(self) -> None:
        """Finish and sync pending appends and end the thread; later appends fail."""
        if not self._closed:
            self._closed = True
            self._queue.put(_Stop())
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._syncer.close)

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise Unavailable(f"the journal in {self._folder} is closed; the broker is stopping")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    # The following methods run in the journal's thread.

    def _run(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        """Process the next item; a separate function, so that no local keeps its buffers alive."""
        item = self._queue.get() if self._held is None else self._held
        self._held = None
        match item:
            case _Append():
                self._write(self._gather(item))
            case _Roll():
                self._roll()
                self._tell(partial(_finish, [item.answer], [None]))
            case _Stop():
                self._roll()
        return not isinstance(item, _Stop)

    def _gather(self, first: _Append) -> list[_Append]:
        """Take the appends that wait after this one, up to a bound, to write them together."""
        group = [first]
        size = first.size
        while size < self._settings.group_bytes:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if not isinstance(item, _Append):
                self._held = item
                break
            group.append(item)
            size += item.size
        return group

    def _write(self, group: list[_Append]) -> None:
        answers = [append.answer for append in group]
        try:
            written = self._place(group)
        except Error as error:
            self._tell(partial(_fail, answers, error))
        except Exception as error:
            log.exception("the journal failed", extra={"file": str(self._folder)})
            failure = Unavailable(f"the journal in {self._folder} failed: {error!r}")
            self._tell(partial(_fail, answers, failure))
        else:
            self._tell(partial(_finish, answers, written))
        self._hand_over()

    def _place(self, group: list[_Append]) -> list[FlushPosition]:
        size = sum(append.size for append in group)
        parts = [part for append in group for part in append.parts]
        object_id, position = self._appender.append(parts, size)
        written = []
        for append in group:
            written.append(FlushPosition(object_id, position, append.size))
            position += append.size
        self.appends += len(group)
        self.groups += 1
        self.written_bytes += size
        self._synced = JournalPosition(object_id, position)
        return written

    def _roll(self) -> None:
        try:
            self._appender.roll()
        except OSError as error:
            # With "disk" all bytes were synced before, so a failed close loses nothing.
            log.warning("closing a journal file failed: %s", error, extra={"error": error.errno})
        self._hand_over()

    def _hand_over(self) -> None:
        retired, self._appender.retired = self._appender.retired, []
        for file in retired:
            self._syncer.add(file)

    def _tell(self, what: Callable[[], None]) -> None:
        if self._loop is not None:
            # A closed loop has no waiting callers.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(what)


def _finish(answers: Sequence[asyncio.Future[T]], results: Sequence[T]) -> None:
    for answer, result in zip(answers, results, strict=True):
        if not answer.done():
            answer.set_result(result)


def _fail(answers: Sequence[asyncio.Future[FlushPosition]], error: Error) -> None:
    for answer in answers:
        if not answer.done():
            # One exception for each: a raised exception collects the traceback of the caller that
            # awaits it.
            answer.set_exception(type(error)(*error.args))


def _check(settings: JournalSettings) -> None:
    for name in ("file_bytes", "group_bytes", "attempts"):
        value = getattr(settings, name)
        if value < 1:
            raise ConfigError(f"{name} of the journal is {value}; it must be 1 or more")


def _make_folder(folder: Path) -> None:
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in missing:
            sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(
            f"the journal's folder {folder} cannot be made: {error.strerror}; name another folder"
        ) from error


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot remove journal file {path}: {error.strerror}") from error
