"""The cluster log of a broker that owns a directory: entries become changes of its files.

    append ──► applied to this log's own copy of the state: offsets, duplicates, fencing
           ──► written to the files of the partitions, and synced
           ──► the entry counts: the broker's replica applies it to its copy, and answers

So nothing is visible before it is written, and the rules are those of every other broker. There is
no other process: the directory is locked. Kafka's files hold everything that a restart needs, so
entries are kept only until the replica has read them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rookery.cluster.entry import Entry, read_entry, read_events
from rookery.cluster.port import (
    READ_BYTES,
    Durability,
    EntriesTrimmed,
    LogEntry,
    check_beginning,
    check_empty,
    check_entry,
    check_trim,
)
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.outcome import EntryOutcome
from rookery.cluster.state.state import State
from rookery.errors import Unavailable
from rookery.logdir.server.directorytarget import DirectoryTarget
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.rows import place
from rookery.logdir.server.translate.job import DirectoryJob, Placement
from rookery.logdir.server.translate.scribe import Scribe
from rookery.logdir.writer.appendlog import AppendLog

log = logging.getLogger(__name__)

_KEPT: Final = 1024
# The maximum number of files open for writing: a process can have only about a thousand.
_MAX_OPEN: Final = 256


class DirectoryLog:
    """The only handle on the log of a directory."""

    def __init__(
        self,
        loaded: LoadedDirectory,
        scribe: Scribe | None,
        target: DirectoryTarget,
        durability: Durability,
    ) -> None:
        """Start after the loaded state.

        Args:
            loaded: the directory's state, which this log takes over.
            scribe: decides what is written; None if nothing may be written.
            target: gets the error while writes fail.
            durability: whether entries wait for the disk.
        """
        self._loaded = loaded
        self._state = loaded.state
        self._scribe = scribe
        self._target = target
        self._syncs = durability == "disk"
        self._entries: deque[LogEntry] = deque(maxlen=_KEPT)
        self._head = self._state.applied
        self._waiters: set[asyncio.Future[int]] = set()
        self._writing = asyncio.Lock()
        self._pending: tuple[bytes, DirectoryJob] | None = None
        self._placements: dict[int, list[Placement]] = {}
        self._later: dict[int, list[Callable[[], None]]] = {}
        self._open: OrderedDict[AppendLog, None] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "rookery-logdir")
        self._is_closed = False

    async def snapshot(self, _at_least: int = 0) -> State:
        """Return a copy of the state, for a replica to start with."""
        return read_image(write_image(self._state))

    def set_locations(self, replica: State, applied: EntryOutcome) -> None:
        """Set the locations of an entry's batches in a replica that has applied it."""
        for key, placed in self._placements.pop(applied.number, ()):
            place(replica, *key, placed)
        self._leave_unled(replica)
        for step in self._later.pop(applied.number, ()):
            self._do_later(step)

    def _do_later(self, step: Callable[[], None]) -> None:
        """Run work that nothing waits for, in the order of file writes."""
        if not self._is_closed:
            self._thread.submit(_carefully, step) if self._syncs else _carefully(step)

    def _leave_unled(self, state: State) -> None:
        """Remove the leader of partitions that are located on another broker's disk."""
        for key in self._loaded.elsewhere:
            partition = state.topics.partition(*key)
            if partition is not None and partition.leader >= 0:
                partition.leader = -1
                state.topics.by_id[key[0]].touch()

    # The port.

    async def append(self, data: bytes) -> int:
        """Apply and write one entry."""
        self._check_open()
        check_entry(data)
        async with self._writing:
            number = self._head + 1
            if self._pending is None or self._pending[0] != data:
                self._pending = (data, self._plan(number, data))
            job = self._pending[1]
            await self._carry_out(job)
            self._pending = None
            self._place(number, job)
            self._head = number
            self._entries.append(LogEntry(number, data))
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(number)
        self._waiters.clear()
        return number

    def _plan(self, number: int, data: bytes) -> DirectoryJob:
        entry: Entry = read_entry(number, data)
        events = read_events(number, entry)
        scribe = self._scribe
        doomed = scribe.foresee(events) if scribe is not None else {}
        applied = self._state.apply(number, entry, events)
        self._leave_unled(self._state)
        return scribe.job(entry, events, applied, doomed) if scribe is not None else DirectoryJob()

    async def _carry_out(self, job: DirectoryJob) -> None:
        if job.is_empty:
            return
        try:
            if self._syncs:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, self._run, job)
            else:
                # The page cache takes it immediately: a thread would cost more.
                self._run(job)
        except OSError as error:
            text = (
                f"cannot write {error.filename or self._loaded.directory.paths[0]}: "
                f"{error.strerror or error}; free space or repair the disk; writing then resumes"
            )
            self._target.failure = text
            raise Unavailable(text) from error
        self._target.failure = None

    def _run(self, job: DirectoryJob) -> None:
        job.run(syncs=self._syncs)
        for written in job.written:
            self._open[written] = None
            self._open.move_to_end(written)
        while len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)[0].close()

    def _place(self, number: int, job: DirectoryJob) -> None:
        if job.placements:
            for key, placed in job.placements:
                place(self._state, *key, placed)
            self._placements[number] = job.placements
        if job.later:
            self._later[number] = job.later

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Return the entries that follow number `after`."""
        self._check_open()
        floor = await self.floor()
        if after < floor:
            raise EntriesTrimmed(after, floor)
        entries: list[LogEntry] = []
        size = 0
        for entry in self._entries:
            if entry.number > after:
                size += len(entry.data)
                if entries and size > max_bytes:
                    break
                entries.append(entry)
        return entries

    async def head(self) -> int:
        """Return the last entry's number."""
        self._check_open()
        return self._head

    async def wait(self, after: int) -> int:
        """Return a head above `after`, as soon as there is one."""
        self._check_open()
        if self._head > after:
            return self._head
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            return await waiter
        finally:
            self._waiters.discard(waiter)

    async def trim(self, before: int) -> None:
        """Check the arguments only: old entries are dropped automatically."""
        self._check_open()
        check_trim(before, self._head)

    async def floor(self) -> int:
        """Return the highest number that was trimmed."""
        self._check_open()
        return self._entries[0].number - 1 if self._entries else self._head

    async def begin_after(self, number: int) -> None:
        """Start after a number, if there has never been an entry."""
        self._check_open()
        check_beginning(number)
        check_empty(self._head)
        self._head = number

    async def close(self) -> None:
        """Close the handle."""
        if self._is_closed:
            return
        self._is_closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(_closed())
        self._waiters.clear()
        await asyncio.to_thread(self._thread.shutdown)

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()


def _carefully(step: Callable[[], None]) -> None:
    """Run a step whose failure is harmless: remaining files are deleted another time."""
    try:
        step()
    except OSError as error:
        log.warning("cannot delete: %s", error)


def _closed() -> Unavailable:
    return Unavailable("the log directory was closed: open it again")
