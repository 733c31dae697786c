"""A small cluster for tests of the rewriter: real log, journal and store, and a simple reader."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from rookery.cluster.events.brokerevents import (
    BrokerRegistered,
    ClusterCreated,
    ProcessRegistered,
    SettingChange,
)
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.open import open_log
from rookery.cluster.port import ClusterLog
from rookery.cluster.replica import Replica
from rookery.cluster.state.partition import Partition, Row
from rookery.formats.keys import STORED, index_key, object_id, object_key, times_key
from rookery.formats.segment import Segment, verify_segment
from rookery.formats.times import parse_times
from rookery.log.maintain.newobjects import Proposer
from rookery.log.maintain.rewriter import Rewriter
from rookery.log.read.files import JournalFiles
from rookery.log.read.objects import EntryReader, Places, key_of
from rookery.log.settings import RewriteSettings
from rookery.log.write.journal import Journal
from rookery.records import batches, recordcodec
from rookery.records.recordcodec import Record, build
from rookery.store.open import open_store
from rookery.store.port import Store
from rookery.testing.clock import ManualClock

Where = Literal["journal", "entry", "object"]
TOPIC = b"t" * 16
SMALL = RewriteSettings(
    merge_bytes=40_000, row_bytes=4_000, segment_bytes=20_000, segment_min_bytes=2_000
)


class ConsumedRecord(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    epoch: int


class Process:
    """A process that may rewrite: a replica with an incarnation, and readers."""

    def __init__(self, world: World, replica: Replica) -> None:
        self.replica = replica
        self._numbers = itertools.count(STORED)
        self.places = Places(world.files, world.store, lambda: replica.state, "default")
        self.reader = EntryReader(world.log(), self.places.read)

    def next_id(self) -> int:
        return object_id(self.replica.incarnation, next(self._numbers))

    def rewriter(
        self,
        world: World,
        settings: RewriteSettings = SMALL,
        store: Store | None = None,
        replica: Proposer | None = None,
    ) -> Rewriter:
        return Rewriter(
            replica=replica or self.replica,
            read=self.reader.read,
            store=store or world.store,
            clock=world.clock,
            next_id=self.next_id,
            settings=settings,
        )


class World:
    """One broker that writes, any number of processes that rewrite."""

    def __init__(self, folder: Path, store_url: str) -> None:
        self.clock = ManualClock()
        self.store = open_store(store_url)
        self._name = f"memory:{folder}"
        self._folder = folder
        self.files = JournalFiles(folder)
        self.processes: list[Process] = []

    def log(self) -> ClusterLog:
        return open_log(self._name)

    async def start(self) -> None:
        self.broker = await self._replica()
        await self.broker.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
        await self.broker.register(
            BrokerRegistered(process_id=os.urandom(16), node_id=1, host="h", port=1)
        )
        self.journal = Journal(self._folder, self.broker.incarnation, "os")
        self._objects = itertools.count(STORED)

    async def process(self) -> Process:
        """Start a process that may rewrite."""
        replica = await self._replica()
        await replica.register(ProcessRegistered(process_id=os.urandom(16), purpose="caretaker"))
        self.processes.append(Process(self, replica))
        return self.processes[-1]

    async def _replica(self) -> Replica:
        replica = Replica(self.log(), self.clock)
        await replica.open()
        return replica

    async def close(self) -> None:
        for replica in (self.broker, *(process.replica for process in self.processes)):
            await replica.close()
        await self.journal.close()
        await self.files.close()

    async def topic(self, partitions: int, *, name: str = "t", **configs: str) -> bytes:
        topic_id = (name * 16)[:16].encode()
        changes = [
            SettingChange(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        await self.broker.propose(
            [
                TopicCreated(
                    topic_id=topic_id,
                    name=name,
                    partitions=partitions,
                    replication_factor=1,
                    configs=changes,
                )
            ]
        )
        return topic_id

    async def produce(
        self,
        partitions: Sequence[int],
        *,
        where: Where = "journal",
        size: int = 100,
        count: int = 2,
        topic_id: bytes = TOPIC,
    ) -> None:
        """Flush one batch for each of these partitions, together."""
        parts, extents, position = [], [], 0
        for index in partitions:
            time = 1_000 + index
            data = build([Record(b"k%d" % n, os.urandom(size), (), time) for n in range(count)])
            extents.append(
                Extent(
                    topic_id=topic_id,
                    partition=index,
                    position=position,
                    size=len(data),
                    records=count,
                    attributes=0,
                    max_timestamp=time,
                    producer_id=-1,
                    producer_epoch=-1,
                    base_sequence=-1,
                )
            )
            parts.append(data)
            position += len(data)
        target, payload = 0, parts
        if where == "journal":
            written = await self.journal.append(parts)
            target, payload = written.object_id, []
            for extent in extents:
                extent.position += written.position
        elif where == "object":
            target, payload = object_id(self.broker.incarnation, next(self._objects)), []
            await self.store.create(object_key(target), parts)
        await self.broker.propose([BatchesCommitted(object_id=target, extents=extents)], payload)

    async def seen(self, process: Process) -> dict[tuple[str, int], list[ConsumedRecord]]:
        """Read everything, as a consumer would."""
        await process.replica.barrier()
        by_partition = {}
        for topic in process.replica.state.topics:
            for partition in topic.partitions:
                rows = [partition.row(index) for index in range(len(partition.base_offsets))]
                by_partition[topic.name, partition.index] = [
                    record for row in rows for record in await self._row(process, partition, row)
                ]
        return by_partition

    async def _row(self, process: Process, partition: Partition, row: Row) -> list[ConsumedRecord]:
        if not row.object_id:
            return []
        data = bytearray(await process.reader.read(row.object_id, row.position, row.size))
        assert len(data) == row.size
        if row.is_segment:
            data = bytearray((await self._segment(process, partition, row)).body)
        offset = row.base_offset
        for header in batches.verify(data):
            if row.is_final:
                assert header.partition_leader_epoch == partition.epoch_at(header.base_offset)
                assert row.base_offset <= header.base_offset <= header.last_offset < row.end_offset
                continue
            if row.is_append_time:
                stamped = header.with_append_time(row.max_timestamp)
                batches.restamp_into(data, stamped._replace(base_offset=offset))
            batches.stamp_into(data, offset, partition.epoch_at(offset), header.position)
            offset += header.last_offset_delta + 1
        seen = []
        for header in batches.verify(data):
            assert header.max_timestamp <= row.max_timestamp
            seen += [
                ConsumedRecord(
                    record.offset,
                    record.key,
                    record.value,
                    record.timestamp,
                    header.partition_leader_epoch,
                )
                for record in recordcodec.read(data, header)
            ]
        return seen

    async def _segment(self, process: Process, partition: Partition, row: Row) -> Segment:
        """Check a segment with its index and times files."""
        key = key_of(process.replica.state, "default", row.object_id)
        data = await self.store.read(key)
        segment = verify_segment(data, key)
        assert (segment.header.base_offset, segment.footer.last_offset + 1) == row[:2]
        times = parse_times(await self.store.read(times_key(key)), key)
        times.check_segment(data[:32], data[-16:], len(data), key)
        times.check_key(key)
        for offset in (row.base_offset, row.end_offset - 1):
            begun = [epoch.epoch for epoch in times.epochs if epoch.start_offset <= offset]
            assert begun[-1] == partition.epoch_at(offset)
        times.check_index(await self.store.read(index_key(key)), key)
        return segment


@asynccontextmanager
async def a_world(folder: Path, store_url: str = "memory:") -> AsyncIterator[World]:
    """Start a cluster, and stop it."""
    world = World(folder, store_url)
    await world.start()
    try:
        yield world
    finally:
        await world.close()
