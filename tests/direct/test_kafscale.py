"""A bucket written by KafScale: found by a listing, read like any other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.offsets import Position
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError, Corrupt
from rookery.formats.keys import segment_key
from rookery.formats.segment import SegmentFooter, SegmentHeader
from rookery.records.columns import encode
from rookery.records.crc import checksum
from rookery.records.writing import WriteSettings
from rookery.store.open import open_store
from tests.direct.logs import planned, read


def segment(base: int, count: int) -> bytes:
    """Write a segment as KafScale does: header, batches, footer."""
    rows = pa.record_batch({"value": [b"v%d" % (base + i) for i in range(count)]})
    data = b"".join(encode(rows, WriteSettings(base_offset=base, timestamp_ms=7)))
    header = SegmentHeader(base, count, 7).pack()
    return header + data + SegmentFooter(checksum(data), base + count - 1).pack()


@pytest.fixture
def place(tmp_path: Path) -> ClusterAddress:
    """Return a bucket with two topics, and foreign objects."""

    async def write() -> None:
        store = open_store(f"file://{tmp_path}/bucket")
        for topic, partition, base in (("t", 0, 0), ("t", 0, 50), ("t", 2, 10), ("u", 0, 0)):
            key = segment_key("production", topic, partition, base)
            await store.create(key, [segment(base, 50)])
        await store.create("production/t/0/notes.txt", [b"?"])
        await store.close()

    asyncio.run(write())
    return ClusterAddress(
        store=f"file://{tmp_path}/bucket", namespace="production", layout="kafscale"
    )


def test_segments_are_found_and_read(place: ClusterAddress) -> None:
    with BlockingLog(place) as log:
        assert [topic.name for topic in log.log.state.topics] == ["t", "u"]
        ranges = planned(log)
        assert [(part.partition, part.begin, part.end) for part in ranges] == [
            (0, 0, 100),
            (2, 10, 60),
        ]
    rows = read(place, ranges)
    assert [(row.partition, row.offset) for row in rows] == [
        *((0, offset) for offset in range(100)),
        *((2, offset) for offset in range(10, 60)),
    ]
    assert all(row.value == b"v%d" % row.offset for row in rows)


def test_listed_segments_are_read_only_and_read_by_offset(place: ClusterAddress) -> None:
    with BlockingLog(place) as log:
        with pytest.raises(ConfigError, match="have no times"):
            planned(log, start=Position(time_ms=5))
        with pytest.raises(ConfigError, match="read only"):
            log.run(log.log.numbers())


def test_new_segments_are_found_and_broken_ones_refused(
    place: ClusterAddress, tmp_path: Path
) -> None:
    async def add(base: int, data: bytes) -> None:
        store = open_store(f"file://{tmp_path}/bucket")
        await store.create(segment_key("production", "u", 0, base), [data])
        await store.close()

    with BlockingLog(place) as log:
        asyncio.run(add(50, segment(50, 5)))
        log.run(log.log.barrier())
        [planned_range] = planned(log, "u")
        assert planned_range.end == 55
        asyncio.run(add(55, b"short"))
        with pytest.raises(Corrupt, match="too short"):
            log.run(log.log.barrier())
