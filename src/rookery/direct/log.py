"""The open handles of a log that is used without a broker.

A reader gets the newest state with `barrier` and is not visible to other processes. A writer is a
member of the cluster: it joins before its first event and leaves at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.cluster.member import ClusterMember, process_registration
from rookery.cluster.numbers import Numbers
from rookery.cluster.replica import Replica
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.state import State
from rookery.direct import kafscale
from rookery.direct.kafkafolder import KafkaFolder
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.log.lostlog import check_not_lost
from rookery.log.maintain import snapshots
from rookery.log.origin import Handles
from rookery.log.read.cache import BlockCache
from rookery.log.read.files import MissingObject
from rookery.log.read.objects import EntryReader, Places
from rookery.log.read.reader import LogReader
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Tail
from rookery.log.settings import CacheSettings
from rookery.wire.buffer import Buffer
from rookery.wire.message import Message

T = TypeVar("T")

_PLANS: Final = 5
"""How many times a plan is attempted while the log is being rewritten."""
# For lookups only: scans bypass it.
_CACHE: Final = CacheSettings(
    max_bytes=64 * 1024 * 1024, block_bytes=256 * 1024, stored_block_bytes=256 * 1024, max_ahead=0
)


class DirectLog:
    """A log's state and bytes and, after its first write, a process of its cluster.

    It belongs to the event loop on which it was opened.
    """

    def __init__(
        self,
        place: ClusterAddress,
        purpose: str = "direct",
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Open the handles; `start` reads the state.

        Args:
            place: the location of the log.
            purpose: the name under which other processes see this one, if it writes.
            clock: provides the timestamps of events.
            random: generates the process's id.

        Raises:
            ConfigError: there is no log at the place.
            Unavailable: the store or the cluster log cannot be reached.
        """
        origin = place.origin()
        origin.check_there(with_log=True)
        self.place = place
        self.clock = clock or SystemClock()
        self.handles = Handles(origin)
        self.store = self.handles.store
        self._folder = KafkaFolder(place.log_dirs, self.clock) if place.log_dir else None
        self.namespace = origin.namespace
        self.replica = Replica(
            self.handles.cluster_log, self.clock, partial(snapshots.load, self.store)
        )
        self.places: Places = self.handles.places(lambda: self.state)
        """Finds objects by id, independent of their names."""
        self._entries = EntryReader(self.handles.cluster_log, self.places.read)
        self._cache = BlockCache(self.places.read, _CACHE, self.places.name)
        self.layouts = Layouts(self.places, self._cache.read)
        """The indexes of segments."""
        self.reader = LogReader(
            self.handles.cluster_log, self._cache, Tail(0), self.places.read, self.layouts
        )
        """Reads a few batches, such as those in which a timestamp is searched."""
        self._process = process_registration(purpose, random or SystemRandom())
        self._member = ClusterMember(self.replica, self.clock, self._registration)
        self._member.check = self._check_owner
        self._is_claimed = False
        self.is_foreign = False
        """Whether another cluster's log was found at this place: reopen it and keep nothing."""

    @classmethod
    @asynccontextmanager
    async def open(cls, place: ClusterAddress, purpose: str = "direct") -> AsyncIterator[DirectLog]:
        """Open a log for the duration of the block.

        Raises:
            ConfigError: there is no log at the place.
            Corrupt: the data at the place is corrupt.
            Unavailable: the store or the cluster log cannot be reached.
        """
        opened = cls(place, purpose)
        try:
            await opened.start()
            yield opened
        finally:
            await opened.close()

    async def start(self) -> None:
        """Read the state.

        Raises:
            ConfigError: no cluster has its log here.
            Corrupt, Unavailable: as `open`.
        """
        if self.place.is_listed:
            await self._list()
            return
        await self.replica.open(follow=False)
        if not self.state.cluster_id:
            raise ConfigError(
                f"{self.handles.origin.name}: no cluster has its log there (yet); start a broker "
                "with the same store, cluster and namespace, or name another place"
            )
        owner = await self.handles.owner()
        if owner not in (None, self.state.cluster_id):
            raise ConfigError(
                f"{self.handles.origin.name} holds the log of cluster {owner}, but the cluster "
                f"log is that of {self.state.cluster_id}: name the two that belong together"
            )
        self._is_claimed = owner is not None

    @property
    def state(self) -> State:
        """The state as of the last barrier."""
        return self.replica.state

    @property
    def is_usable(self) -> bool:
        """Whether this handle can still be used; if not, the log must be reopened."""
        return not self.is_foreign and self.replica.failure is None

    async def barrier(self) -> State:
        """Apply everything that was committed before this call; return the state.

        Raises:
            ConfigError: another cluster now has its log here.
            Unavailable: the cluster log cannot be reached.
        """
        if self.place.is_listed:
            await self._list()
            return self.state
        checked, reached = await asyncio.gather(
            self._check_owner(), self.replica.barrier(), return_exceptions=True
        )
        # The ownership error comes first: errors from another cluster's entries are meaningless.
        for error in (checked, reached):
            if isinstance(error, BaseException):
                raise error
        return self.state

    async def plan(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of work that reads by the state; repeat it if bytes have moved.

        Raises:
            MissingObject: bytes that the newest state names were missing several times in a row.
            ConfigError, Unavailable: as `barrier`; and the errors of the work.
        """
        for _ in range(_PLANS - 1):
            try:
                return await work()
            except MissingObject:
                await self.barrier()
        return await work()

    async def _list(self) -> None:
        """Load the state of a place that has no cluster log."""
        if self._folder is not None:
            await self._folder.fill(self.state)
        else:
            await kafscale.fill(self.state, self.store, self.namespace)

    async def read(self, object_id: int, position: int, size: int) -> Buffer:
        """Return bytes of an object, of a journal file or (negative id) of an entry's payload.

        Raises:
            MissingObject: the bytes no longer exist: refresh the state, then retry.
            Corrupt, Unavailable: as `Places.read`.
        """
        return await self._entries.read(object_id, position, size)

    @property
    def incarnation(self) -> int:
        """The incarnation under which this process writes; 0 if it has none yet."""
        return self.replica.incarnation

    async def numbers(self) -> Numbers:
        """Join the cluster if this process is not a member; return its object ids.

        An expired process joins again and gets new object ids.

        Raises:
            ConfigError: another cluster now has its log here.
            Corrupt: the cluster log was lost.
            Unavailable: the cluster log cannot be reached.
        """
        return await self._member.join()

    async def propose(
        self, events: Sequence[Message], payload: Sequence[Buffer] = ()
    ) -> list[Outcome]:
        """Propose events; return the outcome of each.

        Raises:
            IncarnationFenced: other processes considered this one dead; nothing was applied.
            Unavailable: it is unknown whether the events were applied.
        """
        await self.numbers()
        return await self.replica.propose(events, payload)

    async def propose_all(self, events: Sequence[Message]) -> list[Outcome]:
        """Propose a list of any length, as `Replica.propose_all` does; this is not atomic.

        Raises:
            IncarnationFenced, Unavailable: as `propose`, for a part of the list.
        """
        await self.numbers()
        return await self.replica.propose_all(events)

    async def close(self) -> None:
        """Leave the cluster if this process is a member, and close all handles."""
        await (self._member.close() if self.is_foreign else self._member.leave())
        await self.replica.close()
        await self.layouts.close()
        await self._cache.close()
        await self.handles.close()

    async def _check_owner(self) -> None:
        """Check that the log still belongs to the cluster whose state is loaded.

        Without this check, a process that keeps its log open, such as a Spark worker, would not
        notice.
        """
        owner = None if self.place.is_listed else await self.handles.owner()
        if owner == self.state.cluster_id or (owner is None and not self._is_claimed):
            return
        self.is_foreign = True
        now = (
            "belongs to no cluster now"
            if owner is None
            else f"holds the log of cluster {owner} now"
        )
        raise ConfigError(
            f"{self.handles.origin.name} {now} now; when this process opened it, it was that of "
            f"cluster {self.state.cluster_id}, which was deleted since. Nothing was written there; "
            "begin again, with a new checkpoint if this is a stream"
        )

    async def _registration(self) -> Message:
        if self.place.is_listed:
            raise ConfigError(f"layout={self.place.layout}: can be read only")
        await check_not_lost(self.handles.cluster_log, self.store)
        return await self._process()
