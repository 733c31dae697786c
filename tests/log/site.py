"""A small cluster without brokers: a store, a cluster log, a writer and a rewriter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

from rookery.cluster.events.brokerevents import ClusterCreated, ProcessRegistered
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.numbers import Numbers
from rookery.cluster.open import open_log
from rookery.cluster.port import ClusterLog
from rookery.cluster.replica import Replica
from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.cluster.state.state import AppendOutcome
from rookery.log.check.sources import Bytes, Sources
from rookery.log.maintain import snapshots
from rookery.log.maintain.rewritejob import MergeJob, RowRange, SegmentJob, range_of
from rookery.log.maintain.rewriter import Rewriter
from rookery.log.read.files import JournalFiles
from rookery.log.read.objects import key_of
from rookery.log.settings import RewriteSettings
from rookery.log.write.flushtarget import CheckedBatch
from rookery.log.write.journal import Journal
from rookery.log.write.uploads import Uploads
from rookery.records import batches
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.store.open import open_store
from rookery.testing.clock import ManualClock

TOPIC = bytes(range(16))
OTHER = bytes(range(16, 32))
_names = count(1)


def batch(
    partition: int = 0, records: int = 1, size: int = 10, topic: bytes = TOPIC, **settings: int
) -> CheckedBatch:
    """Make a batch of records; the settings are those of `BatchSettings`."""
    made = [Record(None, bytes([65 + n % 26]) * size) for n in range(records)]
    data = memoryview(bytearray(build(made, BatchSettings(**settings))))  # type: ignore[arg-type] # by name
    return CheckedBatch(topic, partition, data, batches.parse(data))


class Writer:
    """A process that writes objects, or a journal."""

    def __init__(self, site: Site, replica: Replica, incarnation: int) -> None:
        self.site, self.replica, self.incarnation = site, replica, incarnation
        self.numbers = Numbers(incarnation)
        self.uploads = Uploads(site.store, replica, site.clock, self.numbers)
        self.journal: Journal | None = None

    async def write(self, *sent: CheckedBatch) -> list[AppendOutcome]:
        """Write batches as one object, commit them, and note their offsets."""
        written = await self.uploads.write(sent)
        outcomes = await self._commit(written.object_id, written.position, sent)
        self.uploads.on_committed(written.object_id, outcomes)
        return outcomes

    async def upload(self, *sent: CheckedBatch) -> int:
        """Write batches as an object that is never committed; return its id."""
        return (await self.uploads.write(sent)).object_id

    async def append(self, *sent: CheckedBatch) -> list[AppendOutcome]:
        """Write batches to a journal file, and commit them."""
        if self.journal is None:
            assert self.site.folder is not None
            self.journal = Journal(self.site.folder, self.incarnation, "os")
        written = await self.journal.append([checked.data for checked in sent])
        return await self._commit(written.object_id, written.position, sent)

    async def send(self, *sent: CheckedBatch) -> list[AppendOutcome]:
        """Commit batches that ride in the entry itself."""
        return await self._commit(0, 0, sent)

    async def _commit(
        self, object_id: int, position: int, sent: Sequence[CheckedBatch]
    ) -> list[AppendOutcome]:
        extents = []
        for checked in sent:
            extents.append(_extent(checked, position))
            position += len(checked.data)
        payload = [] if object_id else [checked.data for checked in sent]
        event = BatchesCommitted(object_id=object_id, extents=extents)
        [outcome] = await self.replica.propose([event], payload)
        outcomes: list[AppendOutcome] = outcome.value
        return outcomes


class Site:
    """The cluster."""

    def __init__(self, folder: Path | None = None, store: str = "memory:") -> None:
        self.clock = ManualClock()
        self.store = open_store(store)
        self.log: ClusterLog = open_log(f"memory:site-{next(_names)}")
        self.folder = folder
        self.files = JournalFiles(folder) if folder else None
        self._replicas: list[Replica] = []
        self._journals: list[Writer] = []

    @property
    def sources(self) -> Sources:
        """The log to check or to rebuild."""
        return Sources(self.log, self.store, self.files, "default", self.folder)

    async def open(self) -> Replica:
        """Return a separate replica for a process that joins or reads."""
        replica = Replica(self.log, self.clock, partial(snapshots.load, self.store))
        self._replicas.append(replica)
        await replica.open()
        return replica

    async def writer(self) -> Writer:
        """Let a process join that writes."""
        replica = await self.open()
        incarnation = await replica.register(ProcessRegistered(process_id=TOPIC, purpose="writer"))
        self._journals.append(Writer(self, replica, incarnation))
        return self._journals[-1]

    async def begin(self, partitions: int = 2) -> Writer:
        """Create the cluster and a topic; return a writer."""
        replica = await self.open()
        await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
        writer = await self.writer()
        await self.create(writer, TOPIC, "birds", partitions)
        return writer

    async def create(self, writer: Writer, topic: bytes, name: str, partitions: int = 1) -> None:
        """Create a topic."""
        event = TopicCreated(
            topic_id=topic, name=name, partitions=partitions, replication_factor=1, configs=[]
        )
        await writer.replica.propose([event])

    async def rewriter(self, writer: Writer) -> Rewriter:
        """Return who merges and makes segments, in the name of a writer."""
        read = Bytes(self.sources, lambda: writer.replica.state).read
        return Rewriter(
            replica=writer.replica,
            read=read,
            store=self.store,
            clock=self.clock,
            next_id=writer.numbers,
            settings=RewriteSettings(index_interval_bytes=200),
        )

    async def merge(self, writer: Writer, *partitions: int) -> None:
        """Merge all rows of some partitions that are in no segment into one object."""
        rewriter = await self.rewriter(writer)
        ranges = tuple(_loose(writer, partition) for partition in partitions)
        assert await rewriter.rewrite(MergeJob(ranges)) > 0

    async def segment(self, writer: Writer, partition: int = 0) -> str:
        """Make a segment of all rows of a partition that are in none; return its key."""
        rewriter = await self.rewriter(writer)
        assert await rewriter.rewrite(SegmentJob(_loose(writer, partition))) > 0
        return self.key(writer, partition)

    def key(self, writer: Writer, partition: int = 0, row: int = 0, topic: bytes = TOPIC) -> str:
        """Return the key of a row's object."""
        identity = self.partition(writer, partition, topic).objects[row]
        return key_of(writer.replica.state, "default", identity)

    def partition(self, writer: Writer, partition: int = 0, topic: bytes = TOPIC) -> Partition:
        """Return a partition as a writer knows it."""
        known = writer.replica.state.topics.partition(topic, partition)
        assert known is not None
        return known

    async def damage(self, key: str, at: int, flip: int = 1) -> None:
        """Flip bits of one byte of an object; a position from its end if it is negative."""
        data = bytearray(await self.store.read(key))
        data[at] ^= flip
        await self.put(key, bytes(data))

    async def put(self, key: str, data: bytes) -> None:
        """Let an object be other bytes."""
        await self.store.delete(key)
        await self.store.create(key, [data])

    async def lose_log(self) -> None:
        """Lose the cluster log's data, and all who have it in memory."""
        for replica in self._replicas:
            await replica.close()
        await self.log.close()
        self.log = open_log(f"memory:site-{next(_names)}")

    async def close(self) -> None:
        """End all processes."""
        for replica in self._replicas:
            await replica.close()
        for writer in self._journals:
            if writer.journal is not None:
                await writer.journal.close()
        if self.files is not None:
            await self.files.close()
        await self.log.close()
        await self.store.close()


def rows(partition: Partition) -> list[Row]:
    """Return all rows of a partition."""
    return [partition.row(index) for index in range(len(partition.base_offsets))]


def _loose(writer: Writer, partition: int) -> RowRange:
    state = writer.replica.state
    known = state.topics.partition(TOPIC, partition)
    assert known is not None
    first = sum(bool(kind & RowKind.SEGMENT) for kind in known.kinds)
    return range_of(state.topics.by_id[TOPIC], known, range(first, len(known.base_offsets)))


def _extent(checked: CheckedBatch, position: int) -> Extent:
    header = checked.header
    return Extent(
        topic_id=checked.topic_id,
        partition=checked.partition,
        position=position,
        size=len(checked.data),
        records=header.last_offset_delta + 1,
        attributes=header.attributes,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
