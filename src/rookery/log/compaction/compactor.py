"""Compacts what is due, the dirtiest partition first, and goes on where it was interrupted."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from rookery.clock import Clock, Random, SystemRandom
from rookery.cluster.state.partition import Row
from rookery.cluster.state.topics import Topic
from rookery.errors import Error
from rookery.log.compaction.cleaning import Cleaning, Step, Task
from rookery.log.compaction.output import Output
from rookery.log.compaction.plan import Dirt, Limits, dirt_of, has_max_lag, is_due
from rookery.log.compaction.source import UnreadableRowError
from rookery.log.plan import Lag
from rookery.log.publishing import Proposer, Publisher
from rookery.log.refine import Read
from rookery.log.rewriter import DAMAGED_ROWS
from rookery.log.runs import body
from rookery.log.settings import CompactionSettings, RewriteSettings
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader, TimestampType
from rookery.records.sieve import SEED_BYTES
from rookery.store.port import Store

log = logging.getLogger(__name__)

_Key = tuple[bytes, int]
_Place = tuple[int, int]
_EMPTY: Final = Lag(0, 0)


@dataclass(kw_only=True, slots=True)
class Compactor:
    """Plans and compacts; one partition at a time."""

    replica: Proposer
    read: Read
    """Reads journals, objects and payloads of entries."""
    store: Store
    clock: Clock
    next_id: Callable[[], int]
    """Returns the id of a new object in the store, of this process's incarnation."""
    limits: Callable[[Topic], Limits]
    """A topic's settings in force."""
    namespace: str = "default"
    """Begins the keys of segments."""
    rewrite: RewriteSettings = field(default_factory=RewriteSettings)
    """How large segments are, and how much is done before other upkeep has its turn."""
    settings: CompactionSettings = field(default_factory=CompactionSettings)
    random: Random = field(default_factory=SystemRandom)
    damage: set[_Place] = field(default_factory=set)
    """Object ids and positions of rows that could not be read; nothing behind one is compacted."""
    _output: Output = field(init=False)
    _work: AsyncIterator[Step] | None = None
    _since: dict[_Key, int] = field(default_factory=dict)
    """When a partition was first seen to be due, by the monotonic clock."""
    _times: dict[_Place, int] = field(default_factory=dict)
    """The time of the first record in rows that were asked for it."""

    def __post_init__(self) -> None:
        """Begin nothing yet."""
        publisher = Publisher(
            replica=self.replica,
            store=self.store,
            clock=self.clock,
            next_id=self.next_id,
            namespace=self.namespace,
        )
        self._output = Output(publisher, self.rewrite)

    def lag(self) -> Lag:
        """Return what is due, and for how long it has been."""
        dirt = [one for one in self._dirt() if _key(one) in self._since]
        if not dirt:
            return _EMPTY
        oldest = min(self._since[_key(one)] for one in dirt)
        return Lag(sum(one.dirty_bytes for one in dirt), self.clock.monotonic_ms() - oldest)

    async def run(self, before_entry: int = 0) -> int:
        """Compact what is due; return how many bytes were rewritten.

        A large partition may take several calls: each goes on where the last one stopped.

        Raises:
            Unavailable: the store or the cluster log is out of reach.
            Conflict: this process counts no longer, or a key is taken that nobody should have.
        """
        del before_entry  # the rewriter has moved those payloads
        done, left = 0, self.rewrite.round_bytes
        await self.replica.barrier()
        await self._output.publisher.condemn_orphans()
        due = sorted(await self._due(), key=lambda one: one.ratio)
        while left > 0 and (self._work is not None or due):
            if self._work is None and not self._begin(due.pop()):
                continue
            step = await self._step()
            if step is not None:
                left -= step.read
                done += step.replaced
        await self._due()
        return done

    def _begin(self, dirt: Dirt) -> bool:
        """Begin with a partition, unless it has been compacted since it was found dirty."""
        if dirt.partition.cleaned_to > dirt.start:
            return False
        task = Task(
            dirt,
            self.clock.now_ms(),
            self.limits(dirt.topic).delete_retention_ms,
            self.settings.map_bytes,
            self.random.token(SEED_BYTES),
        )
        self._work = Cleaning(task, self._output, self.read).run()
        return True

    async def _step(self) -> Step | None:
        """Do a part of the work; None if that was all, or if it cannot be done."""
        work, self._work = self._work, None
        if work is None:
            return None
        try:
            step = await anext(work)
        except StopAsyncIteration:
            return None
        except UnreadableRowError as error:
            await self._report(error)
            return None
        self._work = work
        return step

    # What is due.

    def _dirt(self) -> list[Dirt]:
        now = self.clock.now_ms()
        found = []
        for topic in self.replica.state.topics:
            limits = self.limits(topic)
            if limits.is_compacted:
                found += [
                    dirt
                    for partition in topic.partitions
                    if (dirt := dirt_of(topic, partition, limits, now, self.damage))
                ]
        return found

    async def _due(self) -> list[Dirt]:
        """Find what is due, and note since when."""
        due = [one for one in self._dirt() if await self._is_due(one)]
        now = self.clock.monotonic_ms()
        self._since = {_key(one): self._since.get(_key(one), now) for one in due}
        return due

    async def _is_due(self, dirt: Dirt) -> bool:
        limits = self.limits(dirt.topic)
        oldest = dirt.first.max_timestamp
        if has_max_lag(limits):
            oldest = min(oldest, await self._first_time(dirt.first))
        return is_due(dirt, limits, self.settings, self.clock.now_ms() - oldest)

    async def _first_time(self, row: Row) -> int:
        """Return the time of a row's first batch: the row itself knows the highest only."""
        place = row.object_id, row.position
        if row.is_append_time or not row.object_id:
            return row.max_timestamp
        if place not in self._times:
            try:
                data = await self.read(row.object_id, body(row)[0], batches.HEADER_SIZE)
                header = BatchHeader._make((*batches.FIELDS.unpack_from(data), 0))
            except (Error, ValueError):
                return row.max_timestamp  # whoever compacts it finds out what is wrong
            is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            self._forget_times()
            self._times[place] = header.max_timestamp if is_appended else header.base_timestamp
        return self._times[place]

    def _forget_times(self) -> None:
        rows = self.replica.state.objects.rows
        self._times = {one: time for one, time in self._times.items() if rows.get(one[0])}

    # What is wrong.

    async def _report(self, error: UnreadableRowError) -> None:
        """Tell of damage, unless the row has moved meanwhile: then the old place may be gone."""
        await self.replica.barrier()
        one = error.refined
        partition, row = one.partition, one.row
        span = partition.span(row.base_offset, row.end_offset)
        is_there = span is not None and partition.row(span.start) == row
        if not (one.is_damaged and is_there):
            log.warning("a partition cannot be compacted now: %s", error)
            return
        self.damage.add((row.object_id, row.position))
        DAMAGED_ROWS.inc()
        log.error(
            "damaged: partition %d offsets %d to %d, object %d at byte %d: %s; they stay where "
            "they are, nothing behind them is compacted, run `rookery fsck`",
            partition.index, row.base_offset, row.end_offset - 1, row.object_id, row.position,
            error,
        )  # fmt: skip


def _key(dirt: Dirt) -> _Key:
    return dirt.topic.id, dirt.partition.index
