"""Follows the cluster log: reads its entries, applies them in order, and calls listeners.

other processes ──► log.wait, log.read ──┐
                                         ▼
our own appends, from memory ──► apply, in order ──► listeners
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rookery.cluster.digestcheck import DigestCheck
from rookery.cluster.entry import Entry, read_entry, read_events
from rookery.cluster.port import ClusterLog, EntriesTrimmed
from rookery.cluster.recomputation import LoadSnapshot, recompute
from rookery.cluster.state.state import EntryOutcome, State
from rookery.errors import Corrupt, Unavailable
from rookery.outage import Outage
from rookery.wire.message import Message

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0

Listener = Callable[[EntryOutcome, Entry], None]


class LogFollower:
    """Keeps a state up to date with the cluster log."""

    def __init__(self, cluster_log: ClusterLog, load_snapshot: LoadSnapshot | None) -> None:
        """Start with an empty state; `open` brings it up to date.

        Args:
            cluster_log: the log to follow.
            load_snapshot: loads the newest snapshot, at start and after the log was trimmed. Its
                argument is the lowest entry that the snapshot must cover.
        """
        self.log = cluster_log
        self._load_snapshot = load_snapshot
        self.state = State()
        self.incarnation = 0
        """The incarnation under which this process writes; 0 if it has none."""
        self.digests = DigestCheck()
        self.failure: Exception | None = None
        """Why following has stopped permanently; None while it works."""
        self.log_bytes = 0
        """The size of the entries that were applied here, which a restart would have to read."""
        self.opened_at = 0
        """The entry of the snapshot that `open` started from: all later entries had to be read."""
        self.outage = Outage(log, "the cluster log")
        self.trouble = ""
        """Why the cluster log was last unreachable; empty while it is reachable."""
        self.when_own_applied: Listener = lambda _, __: None
        """Called after every applied entry of our incarnation, before the listeners."""
        self.when_jumped: Callable[[], None] = lambda: None
        """Called when a snapshot replaced the state."""
        self.when_failed: Callable[[Exception], None] = lambda _: None
        """Called once if following stops."""
        self._listeners: list[Listener] = []
        self._reading = asyncio.Lock()
        self._is_open = False
        self._task: asyncio.Task[None] | None = None
        self._barrier: asyncio.Task[None] | None = None

    async def open(self, *, follow: bool) -> None:
        """Start from the newest snapshot, apply the log after it, then follow it if asked to."""
        snapshot = await self._load_snapshot(0) if self._load_snapshot else None
        self._use(snapshot or self.state)
        self.opened_at = self.state.applied
        await self.catch_up()
        self._is_open = True
        if follow:
            self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop following."""
        for task in (self._task, self._barrier):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def listen(self, listener: Listener) -> None:
        """Register a listener that is called after every applied entry."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Remove a listener."""
        self._listeners = [other for other in self._listeners if other != listener]

    async def barrier(self) -> None:
        """Return when every entry that was in the log at the time of the call is applied.

        One request for the log's head serves all callers that arrived before it started.
        """
        running = self._barrier
        if running is not None and not running.done():
            # The running request may have read the head before this call: wait for the next one.
            await asyncio.wait([running])
        if self._barrier is None or self._barrier.done():
            self._barrier = asyncio.create_task(self._reach_head())
        await asyncio.shield(self._barrier)

    async def catch_up(self, until: int | None = None) -> None:
        """Read and apply to the end of the log, or up to a given entry.

        Any error except Unavailable stops the follower, whichever task encounters it.
        """
        async with self._reading:
            with self._stops_on_error():
                await self._read_on(until)

    def apply_own(self, number: int, entry: Entry, events: list[Message]) -> bool:
        """Apply an entry that this process appended, without reading it.

        Returns:
            Whether it was applied. If it is not the next entry, or entries are being read, it must
            be read.
        """
        if number != self.state.applied + 1 or self._reading.locked():
            return False
        with self._stops_on_error():
            self._apply(number, entry, events)
        return True

    def stop(self, error: Exception) -> None:
        """Stop permanently, because the state or the log cannot be trusted."""
        if self.failure is not None:
            return
        log.error("the replica of the cluster's state stops: %s", error, exc_info=error)
        self.failure = error
        self.when_failed(error)

    # Reading.

    async def _follow(self) -> None:
        while self.failure is None:
            try:
                head = await self.log.wait(self.state.applied)
                # Our own appends also wake this task; they are applied from memory.
                if head > self.state.applied:
                    await self.catch_up()
            except Unavailable as error:
                self.trouble = str(error)
                self.outage.fail(error)
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 (a task's root: the process must stop)
                self.stop(error)
                return

    async def _reach_head(self) -> None:
        with self._stops_on_error():
            head = await self.log.head()
        if head > self.state.applied or self.failure is not None:
            await self.catch_up(head)

    async def _read_on(self, until: int | None) -> None:
        while until is None or self.state.applied < until:
            try:
                entries = await self.log.read(self.state.applied)
            except EntriesTrimmed as trimmed:
                await self._jump(trimmed)
                continue
            if not entries:
                return
            for number, data in entries:
                # Our own entries may have been applied from memory in the meantime.
                if number != self.state.applied + 1:
                    continue
                self.log_bytes += len(data)
                entry = read_entry(number, data)
                if not self.state.is_foreign(entry) and self.digests.differs(entry):
                    await self._look_into(number, entry)
                if number == self.state.applied + 1:
                    self._apply(number, entry, read_events(number, entry))

    @contextmanager
    def _stops_on_error(self) -> Iterator[None]:
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:
            self.stop(error)
            raise

    async def _jump(self, trimmed: EntriesTrimmed) -> None:
        """Continue from a snapshot: the log was trimmed beyond the last applied entry."""
        snapshot = await self._load_snapshot(trimmed.floor) if self._load_snapshot else None
        if snapshot is None or snapshot.applied < trimmed.floor:
            raise Corrupt(f"{trimmed}, but there is none; run `rookery recover`")
        self._go_on_from(snapshot)

    def _go_on_from(self, snapshot: State) -> None:
        self._use(snapshot)
        self.when_jumped()

    def _use(self, state: State) -> None:
        self.state = state
        self.digests.restart(state)

    async def _look_into(self, number: int, entry: Entry) -> None:
        """Find out which of the two states is wrong; stop if it is ours.

        The log decides: the state is recomputed from it. A writer whose state is wrong detects
        that in the same way and stops. A writer that continues after reading an entry of ours
        applies the log by different rules; then the younger of the two processes stops.

        Raises:
            Corrupt: this process must stop.
        """
        if self.digests.is_disputed(entry.incarnation):
            self.digests.judge(entry, self.incarnation)
            return
        # A replica that is opening has just computed its state from the log.
        if self._is_open:
            logged = await recompute(self.log, self._load_snapshot, entry.seen)
            if logged.applied > self.state.applied:
                self._go_on_from(logged)
                return
            self.digests.compare(logged, number, entry)
        self.digests.dispute(number, entry)

    # Applying.

    def _apply(self, number: int, entry: Entry, events: list[Message]) -> None:
        applied = self.state.apply(number, entry, events)
        self.digests.record(number, self.state.digest)
        if entry.incarnation == self.incarnation and entry.incarnation:
            self.digests.answer(number, entry)
            self.when_own_applied(applied, entry)
        for listener in self._listeners:
            listener(applied, entry)
