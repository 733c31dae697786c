"""One physical partition, read once for all clients of a process and kept in stretches.

A task reads the log's tail while a client waits for it. Stretches that were evicted from memory
are read again when a consumer needs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from rookery.errors import Corrupt, Error, ErrorCode, Unavailable
from rookery.model.offset import EARLIEST, LATEST
from rookery.proxy.nodes.writeorder import MOVED, BatchStart
from rookery.proxy.virtual.rules import UntaggedPolicy
from rookery.proxy.virtual.slotindex import AbortedRange, SlotIndex
from rookery.proxy.virtual.stretchcache import StretchCache
from rookery.proxy.virtual.stretchloader import StretchLoader
from rookery.proxy.virtual.upstreamcalls import LeaderReader, LogPlace, UpstreamCalls
from rookery.wire.messages.fetch import PartitionData

log = logging.getLogger(__name__)

_WAIT_MS: Final = 500
_PAUSE_SECONDS: Final = 0.1


class SlotRead(NamedTuple):
    """Batches of one slot, and the ends of the slot."""

    batches: list[bytes]
    end: int
    stable: int
    """The last stable offset."""
    aborted: list[AbortedRange]
    """The aborted transactions in the batches."""


class PhysicalLog:
    """The log of one physical partition."""

    def __init__(
        self,
        place: LogPlace,
        slots: int,
        untagged: UntaggedPolicy,
        calls: UpstreamCalls,
        cache: StretchCache,
    ) -> None:
        """Create it without reading the log.

        Args:
            place: the partition.
            slots: how many virtual partitions share it.
            untagged: how batches without a tag are treated.
            calls: sends requests to the upstream.
            cache: keeps stretches of all logs.
        """
        self.place = place
        self.index = SlotIndex(slots, untagged)
        self.trouble = ""
        """Why the partition is refused; empty if it is served."""
        self._calls = calls
        self._tail = LeaderReader(calls, place)
        self._reader = LeaderReader(calls, place)
        self._stretches = StretchLoader(self.index, self._reader, cache)
        self._task: asyncio.Task[None] | None = None
        self._demand = 0
        self._listeners: set[asyncio.Event] = set()
        self._cuts = 0
        self.is_checked = False
        """Whether the log was found to begin at offset 0."""

    def close(self) -> None:
        """Stop reading; refuse requests that still wait."""
        self.trouble = self.trouble or "its topic was deleted, or the proxy stops"
        self._tell()
        if self._task is not None:
            self._task.cancel()
        self._stretches.close()
        self._tail.close()
        self._reader.close()

    async def check(self) -> None:
        """Check that the log is complete from offset 0 on; otherwise refuse it.

        Raises:
            Unavailable: the leader does not answer.
        """
        if not self.is_checked and not self.trouble:
            start = await self._reader.find_offset(EARLIEST)
            self._check_start(start)
            self.is_checked = not self.trouble

    async def catch_up(self) -> None:
        """Wait until the log is known up to its end at the time of the call.

        Raises:
            Unavailable: the leader does not answer.
            Corrupt: the partition is refused.
        """
        await self.check()
        await self.reach(await self._reader.find_offset(LATEST))

    async def reach(self, offset: int) -> None:
        """Wait until the log is known up to a physical offset.

        Raises:
            Corrupt: the partition is refused.
        """
        event = asyncio.Event()
        with self.listen(event):
            while self.index.offset < offset:
                self.raise_trouble()
                event.clear()
                await event.wait()
        self.raise_trouble()

    def raise_trouble(self) -> None:
        """Refuse to serve the partition if something is wrong with it.

        Raises:
            Corrupt: it is refused.
        """
        if self.trouble:
            raise Corrupt(self.trouble, name=f"{self.place.topic}-{self.place.partition}")

    @contextmanager
    def listen(self, event: asyncio.Event) -> Iterator[None]:
        """Read the tail, and set an event after each change, until the block ends."""
        self._listeners.add(event)
        self._demand += 1
        self._read_tail()
        try:
            yield
        finally:
            self._demand -= 1
            self._listeners.discard(event)

    async def locate(
        self, physical_offset: int, slot: int, count: int, start: BatchStart | None = None
    ) -> int:
        """Return the virtual offset of a batch that a broker has acknowledged.

        Args:
            physical_offset: in the acknowledgement.
            slot: of the batch.
            count: of its offsets.
            start: for a batch of a transaction, its producer and sequence.

        Raises:
            Corrupt: the log has another batch there, or the partition is refused.
            Unavailable: the leader does not answer.
        """
        await self.reach(physical_offset + count)
        stretch = await self._stretches.find(self.index.find_physical(physical_offset))
        place = stretch.place(physical_offset)
        if place is None or place.slot != slot or place.start != start:
            raise Corrupt(
                f"offset {physical_offset} of {self.place.topic}-{self.place.partition} does not "
                "have the batch that was acknowledged there"
            )
        return place.offset

    async def read(self, slot: int, offset: int, max_bytes: int, *, is_committed: bool) -> SlotRead:
        """Return batches of a slot from a virtual offset on, at least one if there is any.

        The ends are those known now. The tail is read meanwhile, so that a consumer of old
        records, which never waits for new ones, sees the ends advance from read to read.

        Args:
            slot: whose batches to read.
            offset: the virtual offset.
            max_bytes: how much to read; 0 for nothing.
            is_committed: whether to stop at the last stable offset.

        Raises:
            Corrupt: the partition is refused.
            Unavailable: the leader does not answer.
        """
        self._read_tail()
        parts: list[bytes] = []
        index, at, cuts = self.index, offset, self._cuts
        end, stable = index.counter(slot), index.stable(slot)
        limit = stable if is_committed else end
        while at < limit and max_bytes > 0:
            stretch = await self._stretches.find(index.find(slot, at))
            batches = stretch.find(slot, at)
            if self._cuts != cuts or not batches:
                raise Unavailable("the log was cut while it was read; try again")
            for batch in batches:
                max_bytes -= len(batch.data)
                if batch.first >= limit or (parts and max_bytes < 0):
                    return SlotRead(parts, end, stable, index.find_aborted(slot, offset, at))
                parts.append(batch.data)
                at = batch.end
        return SlotRead(parts, end, stable, index.find_aborted(slot, offset, at))

    # The tail.

    def _read_tail(self) -> None:
        """Read the tail once, and on while there is demand."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        is_wanted = True
        while is_wanted and not self.trouble:
            try:
                await self.check()
                if not self.trouble:
                    end = self.index.open
                    self._learn(await self._tail.fetch(end.offset, end.epoch, _WAIT_MS))
            except Unavailable as error:
                log.info("%s-%d: %s", self.place.topic, self.place.partition, error)
                self._calls.directory.topology.doubt(self.place.topic)
                await asyncio.sleep(_PAUSE_SECONDS)
            except Error as error:
                self._refuse(str(error))
            is_wanted = self._demand > 0
        self._tell()

    def _learn(self, data: PartitionData) -> None:
        """Add the answer to the tail's fetch."""
        diverging = data.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            self._truncate(diverging.end_offset, diverging.epoch)
        elif data.error_code in MOVED:
            raise Unavailable(data.error_code.sentence)
        elif data.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # The log is shorter than it was, or does not begin at 0 any more.
            self.is_checked = False
            self._truncate(0, -1)
        elif data.error_code:
            raise Unavailable(data.error_code.sentence)
        else:
            self._check_start(data.log_start_offset)
            if data.records and not self.trouble:
                self.index.take(data.records)  # type: ignore[arg-type] # fetched records are one view
                closed = self.index.close_stretch()
                if closed is not None:
                    self._stretches.add(len(self.index.starts) - 2, closed)
                self._tell()

    def _truncate(self, end: int, epoch: int) -> None:
        self._cuts += 1
        self._stretches.drop(self.index.truncate(end, epoch) - 1)
        log.warning("%s-%d was cut to offset %d", self.place.topic, self.place.partition, end)
        self._tell()

    def _check_start(self, offset: int) -> None:
        if offset > 0:
            self._refuse(
                f"its log begins at offset {offset}, so virtual offsets cannot be counted; "
                "retention or DeleteRecords has removed records"
            )

    def _refuse(self, reason: str) -> None:
        if not self.trouble:
            self.trouble = reason
            log.error("%s-%d is refused: %s", self.place.topic, self.place.partition, reason)
        self._tell()

    def _tell(self) -> None:
        for event in self._listeners:
            event.set()
