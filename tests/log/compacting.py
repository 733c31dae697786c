"""The common part of compaction tests: topics, batches of any kind, a compactor, and a reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.state.partition import Partition
from rookery.formats.keys import object_id, object_key
from rookery.formats.segment import verify_segment
from rookery.log.compaction.compactor import Compactor
from rookery.log.read.objects import key_of
from rookery.log.settings import CompactionSettings, RewriteSettings
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.store.port import Store
from tests.log.rewriting import TOPIC, ConsumedRecord, Process, Where, World

WHERE: tuple[Where, ...] = ("journal", "entry", "object")
NEVER = (1 << 63) - 1
DAY = 86_400_000
REWRITE = RewriteSettings(
    merge_bytes=40_000, row_bytes=4_000, segment_bytes=20_000, segment_min_bytes=2_000
)


@dataclass(slots=True)
class Topical:
    """A topic's settings, which a test may change."""

    is_compacted: bool = True
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.0
    delete_retention_ms: int = DAY
    segment_bytes: int = 1
    segment_ms: int = 7 * DAY


class Sent(NamedTuple):
    """A record as it was sent, at the offset it got."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def compactor(
    world: World,
    process: Process,
    limits: Topical,
    *,
    rewrite: RewriteSettings = REWRITE,
    map_bytes: int = 1024 * 1024,
    store: Store | None = None,
) -> Compactor:
    """Make a compactor that goes by these limits for every topic."""
    return Compactor(
        replica=process.replica,
        read=process.reader.read,
        store=store or world.store,
        clock=world.clock,
        next_id=process.next_id,
        limits=lambda _topic: limits,
        rewrite=rewrite,
        settings=CompactionSettings(map_bytes=map_bytes, min_bytes=1),
    )


async def send(
    world: World,
    records: Sequence[Record],
    settings: BatchSettings | None = None,
    *,
    where: Where = "entry",
    partition: int = 0,
) -> list[Sent]:
    """Commit one batch; return its records with their offsets."""
    data = build(records, settings or BatchSettings())
    header = batches.parse(data)
    extent = Extent(
        topic_id=TOPIC,
        partition=partition,
        position=0,
        size=len(data),
        records=len(records),
        attributes=header.attributes,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    target, payload = 0, [data]
    if where == "journal":
        written = await world.journal.append([data])
        target, extent.position, payload = written.object_id, written.position, []
    elif where == "object":
        target, payload = object_id(world.broker.incarnation, next(world._objects)), []
        await world.store.create(object_key(target), [data])
    [outcome] = await world.broker.propose(
        [BatchesCommitted(object_id=target, extents=[extent])], payload
    )
    base = outcome.value[0].base_offset
    return [
        Sent(base + n, record.key, record.value, record.timestamp)
        for n, record in enumerate(records)
    ]


def partition_of(process: Process, index: int = 0) -> Partition:
    return process.replica.state.topics.by_id[TOPIC].partitions[index]


async def seen(world: World, process: Process, index: int = 0) -> list[Sent]:
    """Read the partition as a consumer does that begins at 0."""
    records: list[ConsumedRecord] = (await world.seen(process))["t", index]
    return [Sent(record.offset, record.key, record.value, record.timestamp) for record in records]


def table(records: Sequence[Sent]) -> dict[bytes, bytes]:
    """Return what a consumer makes of records: the last value of every key that has one."""
    last_values: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            last_values.pop(record.key, None)
        else:
            last_values[record.key] = record.value
    return last_values


def latest(records: Sequence[Sent]) -> list[Sent]:
    """Return the last record of every key, tombstones too, and all without a key."""
    last = {record.key: record.offset for record in records}
    return [record for record in records if record.key is None or last[record.key] == record.offset]


def rec(key: bytes | None, value: bytes | None, time: int = 1_000, **headers: bytes) -> Record:
    return Record(key, value, tuple(headers.items()), time)


async def fill(world: World, turns: int, keys: int = 5, size: int = 50) -> list[Sent]:
    """Send records over a few keys, each value different, from everywhere."""
    sent: list[Sent] = []
    for turn in range(turns):
        records = [
            rec(b"k%d" % ((turn * 3 + n) % keys), b"%d-%d" % (turn, n) + b"x" * size, 1_000 + turn)
            for n in range(3)
        ]
        sent += await send(world, records, where=WHERE[turn % 3])
    return sent


async def end(world: World) -> list[Sent]:
    """Send a last record that the tail is made of: it may grow, so it is left alone."""
    return await send(world, [rec(b"end", b"end")])


async def body(world: World, process: Process, index: int = 0) -> list[tuple[BatchHeader, bytes]]:
    """Return the batches of a segment."""
    key = key_of(process.replica.state, "default", partition_of(process).objects[index])
    segment = verify_segment(await world.store.read(key), key)
    data = bytes(segment.body)
    return [(batch, data[batch.position : batch.end]) for batch in segment.batches]


def is_clean(process: Process) -> bool:
    partition = partition_of(process)
    return partition.cleaned_to == partition.base_offsets[-1] > 0
