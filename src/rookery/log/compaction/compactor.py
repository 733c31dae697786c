"""Compacts partitions that are due, dirtiest first, and resumes interrupted work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rookery.clock import Clock, Random, SystemRandom
from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.topics import Topic
from rookery.errors import Error, Unavailable
from rookery.log.compaction.output import Output
from rookery.log.compaction.partition import CompactionStep, CompactionTask, PartitionCompaction
from rookery.log.compaction.plan import CompactionLimits, DirtyRange, dirt_of, has_max_lag, is_due
from rookery.log.compaction.source import UnreadableRowError
from rookery.log.maintain.newobjects import Proposer, Publisher
from rookery.log.maintain.plan import Lag
from rookery.log.maintain.quarantine import Key, Quarantine
from rookery.log.maintain.refine import Read
from rookery.log.maintain.rewriter import DAMAGED_ROWS
from rookery.log.read.runs import body
from rookery.log.settings import CompactionSettings, RewriteSettings
from rookery.records import batches
from rookery.records.batches import BatchHeader, TimestampType
from rookery.records.sieve import SEED_BYTES
from rookery.store.port import Store

_Key = tuple[bytes, int]
_Place = tuple[int, int]
_EMPTY: Final = Lag(0, 0)


@dataclass(kw_only=True, slots=True)
class Compactor:
    """Plans and compacts one partition at a time."""

    name: ClassVar[str] = "compaction"
    replica: Proposer
    read: Read
    """Reads journals, objects and payloads of entries."""
    store: Store
    clock: Clock
    next_id: Callable[[], int]
    """Returns the id of a new object in the store, of this process's incarnation."""
    limits: Callable[[Topic], CompactionLimits]
    """Returns the effective settings of a topic."""
    namespace: str = "default"
    """The prefix of segment keys."""
    rewrite: RewriteSettings = field(default_factory=RewriteSettings)
    """The size of segments, and how much is done before other maintenance runs."""
    settings: CompactionSettings = field(default_factory=CompactionSettings)
    random: Random = field(default_factory=SystemRandom)
    damage: set[_Place] = field(default_factory=set)
    """Object ids and positions of unreadable rows; nothing after such a row is compacted."""
    quarantine: Quarantine = field(init=False)
    """Partitions that cannot be compacted, including those with damaged rows."""
    _output: Output = field(init=False)
    _work: AsyncIterator[CompactionStep] | None = None
    _dirt_at_work: DirtyRange | None = None
    _since: dict[_Key, int] = field(default_factory=dict)
    """When a partition was first seen to be due, by the monotonic clock."""
    _times: dict[_Place, int] = field(default_factory=dict)
    """The time of the first record in rows for which it was read."""

    def __post_init__(self) -> None:
        """Create the quarantine and the output."""
        self.quarantine = Quarantine(self.clock)
        publisher = Publisher(
            replica=self.replica,
            store=self.store,
            clock=self.clock,
            next_id=self.next_id,
            namespace=self.namespace,
        )
        self._output = Output(publisher, self.rewrite)

    def lag(self) -> Lag:
        """Return the backlog that is due, and for how long it has been due."""
        due = [dirt for dirt in self._dirt() if _key(dirt) in self._since]
        if not due:
            return _EMPTY
        oldest = min(self._since[_key(dirt)] for dirt in due)
        return Lag(sum(dirt.dirty_bytes for dirt in due), self.clock.monotonic_ms() - oldest)

    async def run(self, before_entry: int = 0) -> int:
        """Compact partitions that are due; return the number of bytes rewritten.

        A large partition may take several calls: each continues where the last one stopped.

        Raises:
            Unavailable: the store or the cluster log cannot be reached.
            Conflict: this process was expired, or another process has written under one of our
                keys.
        """
        del before_entry  # the rewriter has moved those payloads
        done, left = 0, self.rewrite.round_bytes
        await self.replica.barrier()
        await self._output.publisher.condemn_orphans()
        due = sorted(await self._due(), key=lambda dirt: dirt.ratio)
        while left > 0 and (self._work is not None or due):
            if self._work is None and not self._begin(due.pop()):
                continue
            step = await self._step()
            if step is not None:
                left -= step.read
                done += step.replaced
        await self._due()
        return done

    def _begin(self, dirt: DirtyRange) -> bool:
        """Start with a partition, unless it was compacted since it was found dirty."""
        if dirt.partition.cleaned_to > dirt.start:
            return False
        task = CompactionTask(
            dirt,
            self.clock.now_ms(),
            self.limits(dirt.topic).delete_retention_ms,
            self.settings.map_bytes,
            self.random.token(SEED_BYTES),
        )
        self._work = PartitionCompaction(task, self._output, self.read).run()
        self._dirt_at_work = dirt
        return True

    async def _step(self) -> CompactionStep | None:
        """Do one step of the work; None if the work is finished or cannot be done."""
        work, self._work = self._work, None
        dirt = self._dirt_at_work
        if work is None or dirt is None:
            return None
        try:
            step = await anext(work)
        except StopAsyncIteration:
            self.quarantine.release(_case(dirt.topic, dirt.partition))
            return None
        except UnreadableRowError as error:
            await self._report(error, dirt)
            return None
        except (IncarnationFenced, Unavailable):
            raise
        except Exception as error:  # noqa: BLE001 (one failure must not stop the others)
            self.quarantine.add(
                _case(dirt.topic, dirt.partition), _subject(dirt.topic, dirt.partition), error
            )
            return None
        self._work = work
        return step

    # Partitions that are due.

    def _dirt(self) -> list[DirtyRange]:
        now = self.clock.now_ms()
        ranges: list[DirtyRange] = []
        for topic in self.replica.state.topics:
            with self.quarantine.guard(("topic", topic.id), f"compaction of topic {topic.name}"):
                limits = self.limits(topic)
                for partition in topic.partitions if limits.is_compacted else ():
                    key = _case(topic, partition)
                    if self.quarantine.holds(key):
                        continue
                    dirt = dirt_of(topic, partition, limits, now, self.damage)
                    ranges += [] if dirt is None else [dirt]
        return ranges

    async def _due(self) -> list[DirtyRange]:
        """Find partitions that are due, and record since when."""
        self._forget()
        due: list[DirtyRange] = []
        for dirt in self._dirt():
            key = "due", dirt.topic.id, dirt.partition.index
            with self.quarantine.guard(key, _subject(dirt.topic, dirt.partition)):
                due += [dirt] if await self._is_due(dirt) else []
        now = self.clock.monotonic_ms()
        self._since = {_key(dirt): self._since.get(_key(dirt), now) for dirt in due}
        return due

    async def _is_due(self, dirt: DirtyRange) -> bool:
        limits = self.limits(dirt.topic)
        oldest = dirt.first.max_timestamp
        if has_max_lag(limits):
            oldest = min(oldest, await self._first_time(dirt.first))
        return is_due(dirt, limits, self.settings, self.clock.now_ms() - oldest)

    async def _first_time(self, row: Row) -> int:
        """Return the time of a row's first batch: the row itself has only the highest time."""
        place = row.object_id, row.position
        if row.is_append_time or not row.object_id:
            return row.max_timestamp
        if place not in self._times:
            try:
                data = await self.read(row.object_id, body(row)[0], batches.HEADER_SIZE)
                header = BatchHeader._make((*batches.FIELDS.unpack_from(data), 0))
            except (Error, ValueError):
                return row.max_timestamp  # the compaction itself reports the error
            is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            self._forget_times()
            self._times[place] = header.max_timestamp if is_appended else header.base_timestamp
        return self._times[place]

    def _forget_times(self) -> None:
        rows = self.replica.state.objects.rows
        self._times = {place: time for place, time in self._times.items() if rows.get(place[0])}

    # Failures.

    def _forget(self) -> None:
        """Drop cases of deleted topics, and damage in objects without live data."""
        topics, rows = self.replica.state.topics.by_id, self.replica.state.objects.rows
        self.damage.difference_update([place for place in self.damage if not rows.get(place[0])])
        self.quarantine.keep(
            lambda key: key[1] in topics and (key[0] != "damage" or bool(rows.get(key[2])))
        )

    async def _report(self, error: UnreadableRowError, dirt: DirtyRange) -> None:
        """Report damage, unless the row was moved meanwhile: its old object may be deleted."""
        await self.replica.barrier()
        refined = error.refined
        partition, row = refined.partition, refined.row
        span = partition.span(row.base_offset, row.end_offset)
        if span is None or partition.row(span.start) != row:
            return
        key, subject = _case(dirt.topic, partition), _subject(dirt.topic, partition)
        if refined.is_damaged:
            self.damage.add((row.object_id, row.position))
            DAMAGED_ROWS.inc()
            key = "damage", dirt.topic.id, row.object_id, row.position
            subject = (
                f"damaged, run `rookery fsck`: offsets {row.base_offset} to {row.end_offset - 1}, "
                f"object {row.object_id} at byte {row.position}; {subject}"
            )
        self.quarantine.add(key, subject, error)


def _key(dirt: DirtyRange) -> _Key:
    return dirt.topic.id, dirt.partition.index


def _case(topic: Topic, partition: Partition) -> Key:
    return "partition", topic.id, partition.index


def _subject(topic: Topic, partition: Partition) -> str:
    return f"compaction of topic {topic.name} partition {partition.index}"
