"""A partition whose rows are in a store: merged objects and segments, read as a broker does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rookery.cluster.open import open_log
from rookery.cluster.state.objects import SegmentName
from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.formats.keys import (
    STORED,
    index_key,
    object_id,
    object_key,
    split_object_id,
    times_key,
)
from rookery.formats.segmentwriter import SegmentWriter
from rookery.formats.times import SegmentOrigin
from rookery.log.read.cache import BlockCache
from rookery.log.read.objects import Places, key_of
from rookery.log.read.reader import LogReader
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Key, Tail, TailSlice
from rookery.log.settings import CacheSettings
from rookery.records import batches, recordcodec
from rookery.records.recordcodec import Record, build
from rookery.store.backends.memory import MemoryStore

TOPIC = b"t" * 16
KEY: Key = (TOPIC, 0)
NAMESPACE = "default"


class Watched(MemoryStore):
    """A store whose reads are counted, and can be held up."""

    def __init__(self) -> None:
        super().__init__({})
        self.objects = self._objects
        self.reads: list[tuple[str, int, int | None]] = []
        self.has_begun = asyncio.Event()
        self.under_way = 0
        self.most_at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        self.reads.append((key, start, size))
        self.has_begun.set()
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await self.gate.wait()
            return await super().read(key, start, size)
        finally:
            self.under_way -= 1


def batch(base: int, count: int, size: int, *, time_ms: int = 5, epoch: int = 0) -> bytes:
    """A final batch."""
    data = bytearray(build([Record(b"k", b"v" * size, (), time_ms + at) for at in range(count)]))
    batches.stamp_into(data, base, epoch)
    return bytes(data)


class StoredWorld:
    """A topic with one partition in a store."""

    def __init__(self, settings: CacheSettings | None = None, store: Watched | None = None) -> None:
        self.store = store or Watched()
        self.state = State()
        topic = Topic(TOPIC, "birds", 1)
        topic.grow(1, [1])
        self.state.topics.add(topic)
        self.partition: Partition = topic.partitions[0]
        self.numbers = iter(range(STORED, STORED + 1000))
        self.places = Places(None, self.store, lambda: self.state, NAMESPACE)
        self.cache = BlockCache(self.places.read, settings, self.places.name)
        self.layouts = Layouts(self.places, self.cache.read)
        self.reader = self.new_reader()

    def new_reader(self) -> LogReader:
        """A reader that remembers nothing of what was read."""
        return LogReader(open_log("memory:"), self.cache, Tail(), layouts=self.layouts)

    def forget(self) -> None:
        """Start again with nothing in memory."""
        self.cache = BlockCache(self.places.read, self.cache._settings, self.places.name)
        self.layouts = Layouts(self.places, self.cache.read)
        self.reader = self.new_reader()

    def new_id(self) -> int:
        return object_id(3, next(self.numbers))

    def add_row(self, row: Row) -> None:
        """Append a row; its offsets follow the last one's."""
        assert row.base_offset == self.partition.next_offset
        end = len(self.partition.base_offsets)
        self.partition.replace(range(end, end), [row])
        self.partition.next_offset = row.end_offset
        self.state.objects.add_row(row.object_id)

    def merged(self, rows: Sequence[Sequence[bytes]], ends: Sequence[int]) -> int:
        """Add rows that are adjacent in one shared object, among others' bytes."""
        identity = self.new_id()
        data = bytearray(b"of another partition")
        base = self.partition.next_offset
        for row, end in zip(rows, ends, strict=True):
            size = sum(map(len, row))
            self.add_row(Row(base, end, identity, len(data), size, 100, RowKind.FINAL))
            data += b"".join(row)
            base = end
        self.store.objects[object_key(identity)] = bytes(data + b"of the next one")
        return identity

    def segment(
        self, some: Sequence[bytes], end: int, *, is_plain: bool = True, interval: int = 100
    ) -> int:
        """Add a segment."""
        identity, base = self.new_id(), self.partition.next_offset
        self.state.objects.stage(identity, SegmentName("birds", 0, base, is_plain))
        writer = SegmentWriter(base, interval=interval)
        times = [writer.add(data).max_timestamp for data in some]
        origin = SegmentOrigin(NAMESPACE, "birds", TOPIC, 0, *split_object_id(identity))
        files = writer.finish(origin, end - 1, 1)
        key = self.key(identity)
        self.store.objects[key] = b"".join(files.parts)
        self.store.objects[index_key(key)] = files.index
        self.store.objects[times_key(key)] = files.times
        kind = RowKind.FINAL | RowKind.SEGMENT
        self.add_row(Row(base, end, identity, 0, files.size, max(times, default=0), kind))
        return identity

    def key(self, identity: int) -> str:
        return key_of(self.state, NAMESPACE, identity)

    def flip(self, key: str, at: int) -> None:
        data = bytearray(self.store.objects[key])
        data[at] ^= 0x10
        self.store.objects[key] = bytes(data)

    async def read(self, offset: int, max_bytes: int = 2**20, **options: bool) -> TailSlice:
        return await self.reader.read(KEY, self.partition, offset, max_bytes, **options)

    async def offsets(self, offset: int, max_bytes: int = 2**20) -> list[int]:
        """Read, and check the answer as a client does."""
        piece = await self.read(offset, max_bytes)
        data = b"".join(piece.parts)
        assert len(data) == piece.size
        headers = batches.verify(data)
        assert piece.next_offset == (headers[-1].last_offset + 1 if headers else offset)
        return [record.offset for record in recordcodec.read_all(data)]

    async def bytes(self, offset: int = 0, max_bytes: int = 2**20) -> bytes:
        """Read all, one request after the other."""
        parts: list[bytes] = []
        while offset < self.partition.next_offset:
            piece = await self.read(offset, max_bytes)
            assert piece.next_offset > offset
            parts += map(bytes, piece.parts)
            offset = piece.next_offset
        return b"".join(parts)
