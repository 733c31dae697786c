"""The common part of job tests: topics with contents, and readers of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pyarrow as pa

from rookery.cluster.state.sinks import SinkBatch
from rookery.cluster.state.state import State
from rookery.direct.blockingreader import BlockingReader
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.log.check.fault import LogFault
from rookery.log.read.rangeplan import OffsetRange, ReadPlanner
from rookery.records.reading import ReadSettings
from tests.direct.sinking import faults, make_topic, write

T = TypeVar("T")
Rows = list[tuple[int, int, bytes | None, bytes | None]]
"""Partition, offset, key and value of each record."""


def with_log(place: ClusterAddress, work: Callable[[DirectLog], Awaitable[T]]) -> T:
    """Do something with an open log."""

    async def run() -> T:
        async with DirectLog.open(place, "tests") as log:
            return await work(log)

    return asyncio.run(run())


def create(place: ClusterAddress, topic: str, partitions: int = 4, **configs: str) -> None:
    """Make a topic; in the settings' names, `_` stands for a dot."""
    with_log(place, lambda log: make_topic(log, topic, partitions, **configs))


def fill(
    place: ClusterAddress,
    topic: str,
    batches: list[pa.RecordBatch],
    *,
    object_bytes: int = 64 * 1024,
) -> None:
    """Write rows, each batch by a commit of its own, as a sink does."""

    async def work(log: DirectLog) -> None:
        for number, batch in enumerate(batches):
            await write(
                log, batch, batch=SinkBatch("", f"fill {number}", number),
                topic=topic, object_bytes=object_bytes,
            )  # fmt: skip

    with_log(place, work)


def contents(place: ClusterAddress, topic: str) -> Rows:
    """Return the records of a topic, in the order of partitions and offsets."""

    async def plan(log: DirectLog) -> list[OffsetRange]:
        stored = log.state.topics.by_name[topic]
        return [
            OffsetRange(stored.id, partition.index, partition.log_start, partition.next_offset)
            for partition in stored.partitions
        ]

    async def planned(log: DirectLog) -> list:  # type: ignore[type-arg] # of one expression
        return await ReadPlanner(log).plan(await plan(log))

    ranges = with_log(place, planned)
    reader = BlockingReader(place)
    try:
        reading = ReadSettings(("partition", "offset", "key", "value"))
        tables = [batch.to_pydict() for batch in reader.columns(ranges, reading, _no_gaps)]
    finally:
        reader.close()
    return [
        row
        for table in tables
        for row in zip(
            table["partition"], table["offset"], table["key"], table["value"], strict=True
        )
    ]


def _no_gaps(gaps: object) -> None:
    raise AssertionError(f"records are gone: {gaps}")


def last_by_key(rows: Rows) -> dict[bytes, tuple[int, int, bytes]]:
    """Return the last record of each key that is not deleted: partition, offset and value."""
    latest: dict[bytes, tuple[int, int, bytes | None]] = {}
    for partition, offset, key, value in rows:
        assert key is not None
        latest[key] = partition, offset, value
    return {
        key: (partition, offset, value)
        for key, (partition, offset, value) in latest.items()
        if value is not None
    }


def state_of(place: ClusterAddress, look: Callable[[State], T]) -> T:
    """Return something of the newest state."""

    async def work(log: DirectLog) -> T:
        return look(await log.barrier())

    return with_log(place, work)


def objects_of(place: ClusterAddress, topic: str) -> set[int]:
    """Return the objects of a topic's rows."""
    return state_of(
        place,
        lambda state: {
            object_id
            for partition in state.topics.by_name[topic].partitions
            for object_id in partition.objects
        },
    )


def check_clean(place: ClusterAddress) -> None:
    """Check the whole log."""
    problems: list[LogFault] = asyncio.run(faults(place))
    assert not problems
