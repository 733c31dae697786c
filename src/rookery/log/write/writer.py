"""Gathers batches of all connections, makes them durable, commits and acknowledges them.

    append ──► pending ──┬─ small: in the commit's own entry ───────────────► propose ──► offsets
                         └─ large: journal or object, then its extents ─────►    │
                                                                                 └──► answer

A flush starts immediately when none is in progress. Otherwise arriving batches are gathered for the
next flush. Several objects may be uploaded to a store at the same time. Batches are committed in
the order of their arrival, so that the sequences of idempotent producers stay in order. A small
flush never overtakes a large one, and a fast upload never overtakes a slow one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rookery import metrics
from rookery.clock import loop_seconds, stopwatch
from rookery.cluster.entry import MAX_EVENTS, Entry
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import AppendOutcome, EntryOutcome, Outcome
from rookery.cluster.state.topics import Topic
from rookery.errors import ErrorCode
from rookery.log.read.tail import Key, Tail
from rookery.log.write import markers
from rookery.log.write.flushtarget import CheckedBatch, FlushSettings, FlushTarget, NoFlushTarget
from rookery.log.write.journal import FlushPosition
from rookery.log.write.traffic import WRITTEN
from rookery.outage import Outage
from rookery.records import batches
from rookery.wire.buffer import Buffer

log = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE

FLUSH_BYTES: Final = metrics.histogram(
    "rookery_log_flush_bytes", "Bytes of batches that were committed together.", metrics.BYTES
)
FLUSH_SECONDS: Final = metrics.histogram(
    "rookery_log_flush_seconds", "From taking what waits to its commit: journal, then cluster log."
)


class _Work:
    """The batches of one request, and the future that waits for them."""

    __slots__ = ("batches", "future", "size", "started")

    def __init__(
        self, work: Sequence[CheckedBatch], future: asyncio.Future[list[AppendOutcome]]
    ) -> None:
        self.batches = work
        # Most requests contain one batch.
        self.size = len(work[0].data) if len(work) == 1 else sum(len(batch.data) for batch in work)
        self.future = future
        self.started = 0.0  # start time of the flush that begins with it


class _Write:
    """A flush that is being written to the flush target."""

    __slots__ = ("error", "is_done", "task", "works", "written")

    def __init__(self, works: list[_Work]) -> None:
        self.works = works
        self.is_done = False
        self.written: FlushPosition | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None


class LogWriter:
    """The only way to append to the log."""

    def __init__(self, replica: Replica, tail: Tail, settings: FlushSettings | None = None) -> None:
        self.flushes = 0
        self.flushed_bytes = 0
        self._settings = settings or FlushSettings()
        self._replica = replica
        self._target: FlushTarget = NoFlushTarget()
        self._tail = tail
        self._loop = asyncio.get_running_loop()
        self._pending: list[_Work] = []
        self._pending_bytes = 0
        self._is_flush_due = False
        self._writes: deque[_Write] = deque()
        self._last_write = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._commits = 0
        self._outage = Outage(log, "a produce")
        self._idle = asyncio.Event()
        self._idle.set()
        replica.listen(self._on_applied)

    def use(self, target: FlushTarget) -> None:
        """Set the target of large flushes."""
        self._target = target

    def append(self, work: Sequence[CheckedBatch]) -> asyncio.Future[list[AppendOutcome]]:
        """Write batches; the future has one outcome for each, in the same order.

        It fails with Unavailable or Fenced if their durability is not known.
        """
        item = _Work(work, self._loop.create_future())
        self._pending.append(item)
        self._pending_bytes += item.size
        self._idle.clear()
        if not self._is_flush_due:
            # Include the other requests of this turn of the loop.
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        return item.future

    async def drain(self) -> None:
        """Return when all appends are acknowledged."""
        await self._idle.wait()

    def _flush(self) -> None:
        self._is_flush_due = False
        while self._pending and self._may_flush():
            works = self._take()
            self.flushes += 1
            size = sum(work.size for work in works)
            self.flushed_bytes += size
            FLUSH_BYTES.observe(size)
            works[0].started = stopwatch()
            if size <= self._settings.inline_bytes and not self._writes:
                self._commit(works, object_id=0, position=0)
            else:
                self._last_write = loop_seconds()
                write = _Write(works)
                self._writes.append(write)
                write.task = self._loop.create_task(self._write(write))

    def _may_flush(self) -> bool:
        """Whether to flush the pending batches now or to wait for more."""
        settings = self._settings
        if self._pending_bytes <= settings.inline_bytes:
            # Small batches wait until the commits and writes in progress are finished.
            return not self._commits and not self._writes
        if len(self._writes) >= settings.lanes:
            return False
        if not self._writes or self._pending_bytes >= settings.flush_bytes:
            return True
        rest = self._last_write + settings.interval_ms / 1000 - loop_seconds()
        if rest <= 0:
            return True
        if self._timer is None:
            self._timer = self._loop.call_later(rest, self._interval_over)
        return False

    def _interval_over(self) -> None:
        self._timer = None
        self._flush()

    def _take(self) -> list[_Work]:
        """Take pending work, up to the bounds of a flush."""
        count = size = extents = 0
        limit = self._settings.flush_bytes
        for work in self._pending:
            size += work.size
            extents += len(work.batches)
            if count and (size > limit or extents > MAX_EVENTS):
                break
            count += 1
        works = self._pending[:count]
        del self._pending[:count]
        self._pending_bytes -= sum(work.size for work in works)
        return works

    async def _write(self, write: _Write) -> None:
        try:
            write.written = await self._target.write(
                [batch for work in write.works for batch in work.batches]
            )
        except Exception as error:  # noqa: BLE001 (nothing was acknowledged)
            write.error = error
        write.is_done = True
        self._commit_written()
        self._flush()

    def _commit_written(self) -> None:
        """Commit written flushes, as far as all earlier flushes are written."""
        while self._writes and self._writes[0].is_done:
            write = self._writes.popleft()
            if write.written is not None:
                self._commit(write.works, write.written.object_id, write.written.position)
            else:
                self._fail(write.works, write.error or asyncio.CancelledError())
                self._rest()

    def _commit(self, works: list[_Work], object_id: int, position: int) -> None:
        extents: list[Extent] = []
        for work in works:
            for batch in work.batches:
                extents.append(_extent(batch, position))
                position += len(batch.data)
        payload = [] if object_id else _parts(works)
        self._commits += 1
        # One request can contain more partitions than an entry has room for.
        futures = [
            self._replica.propose(
                [
                    BatchesCommitted(
                        object_id=object_id, extents=extents[start : start + MAX_EVENTS]
                    )
                ],
                payload,
            )
            for start in range(0, len(extents), MAX_EVENTS)
        ]
        done = futures[0] if len(futures) == 1 else asyncio.gather(*futures)
        done.add_done_callback(lambda done: self._on_committed(works, object_id, done))

    def _on_committed(self, works: list[_Work], object_id: int, done: asyncio.Future[Any]) -> None:
        self._commits -= 1
        FLUSH_SECONDS.observe(stopwatch() - works[0].started)
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            self._target.on_uncertain(object_id)
            self._fail(works, error or asyncio.CancelledError())
        else:
            outcomes: list[AppendOutcome] = []
            for result in _flat(done.result()):
                outcomes += result.value
            self._target.on_committed(object_id, outcomes)
            self._outage.end()
            self._answer(works, outcomes)
        self._flush()
        self._rest()

    def _answer(self, works: list[_Work], outcomes: list[AppendOutcome]) -> None:
        topics = self._replica.state.topics.by_id
        index = 0
        for work in works:
            stop = index + len(work.batches)
            own = outcomes[index:stop]
            index = stop
            for batch, outcome in zip(work.batches, own, strict=True):
                if outcome.error is _NONE and not outcome.is_duplicate:
                    topic = topics.get(batch.topic_id)
                    if topic is not None:
                        self._keep(topic, batch, outcome)
            if not work.future.done():
                work.future.set_result(own)

    def _keep(self, topic: Topic, batch: CheckedBatch, outcome: AppendOutcome) -> None:
        """Stamp the offset into the batch, in place, and keep it for readers."""
        topic_id, index, data, header, _ = batch
        _, base, append_time_ms, _ = outcome
        epoch = topic.partitions[index].epoch_at(base)
        if append_time_ms >= 0:
            stamped = header.with_append_time(append_time_ms)._replace(
                base_offset=base, partition_leader_epoch=epoch, position=0
            )
            batches.restamp_into(data, stamped)
        else:
            batches.stamp_into(data, base, epoch)
        count = header.last_offset_delta + 1
        self._tail.add((topic_id, index), base, base + count, data)
        WRITTEN.add(topic_id, topic.name, count, len(data))

    def _on_applied(self, applied: EntryOutcome, _entry: Entry) -> None:
        """Keep markers for readers too, after the batches before them."""
        if applied.marked:
            self._keep_markers(applied.marked)
            if self._commits:
                # Batches of the same entry are kept when they are acknowledged.
                self._loop.call_soon(self._keep_markers, applied.marked)

    def _keep_markers(self, keys: list[Key]) -> None:
        for key in keys:
            partition = self._replica.state.topics.partition(*key)
            if partition is not None:
                markers.keep(self._tail, key, partition)

    def _fail(self, works: list[_Work], error: BaseException) -> None:
        self._outage.fail(error)
        for work in works:
            if not work.future.done():
                work.future.set_exception(error)

    def _rest(self) -> None:
        if not self._pending and not self._commits and not self._writes:
            self._idle.set()


def _flat(result: list[Outcome] | list[list[Outcome]]) -> Iterator[Outcome]:
    """Yield the outcomes of one proposal or of several."""
    for item in result:
        if isinstance(item, Outcome):
            yield item
        else:
            yield from item


def _parts(works: list[_Work]) -> list[Buffer]:
    return [batch.data for work in works for batch in work.batches]


def _extent(batch: CheckedBatch, position: int) -> Extent:
    header = batch.header
    return Extent(
        topic_id=batch.topic_id,
        partition=batch.partition,
        position=position,
        size=len(batch.data),
        records=header.last_offset_delta + 1,
        attributes=header.attributes,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        joins_transaction=batch.joins_transaction,
    )
