"""Copies one partition to a Kafka, with one transaction per slice.

Its transactional id fences an earlier attempt of the same task and aborts its open transaction.
Then the task reads the progress of the copy, which is committed together with the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rookery.client.client import Client
from rookery.client.fetch import FetchSettings, Isolation
from rookery.client.produce.transactions import StoredBatch, TooLarge, TransactionalWriter
from rookery.client.settings import ClientSettings
from rookery.direct.blockinglog import open_shared
from rookery.direct.layout import find_codec
from rookery.direct.offsets import check_reached, end_of
from rookery.direct.place import ClusterAddress, check_host
from rookery.errors import ApiError, Error, Unavailable
from rookery.jobs.move.kafkaprogress import (
    CopiedRun,
    CopyEnds,
    CopyPosition,
    progress_rows,
    read_progress,
    runs_of,
)
from rookery.jobs.move.rangereads import plan_ranges, read
from rookery.jobs.proof import Proof, prove
from rookery.log.read.rangeplan import OffsetRange
from rookery.model.partition import TopicPartition
from rookery.records.reading import HEADERS
from rookery.records.recordcodec import Record

_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
# The target topic may set its own timestamps.
_PROVED: Final = ("key", "value", "headers")
_PROOF_ROWS: Final = 50_000
_SHOWN_SECONDS: Final = 60
_COMMITTED: Final = FetchSettings(isolation=Isolation.READ_COMMITTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """The source and the target of one partition's copy."""

    source: ClusterAddress
    host: str
    kafka: ClientSettings
    transactional_id: str | None
    topic_id: bytes
    partition: int
    """The partition of both topics, and of the progress topic."""
    ends: CopyEnds
    progress: str
    slice_bytes: int
    compression: str
    has_proof: bool
    max_bytes: int = 0
    """The maximum number of bytes to read, but at least one slice; 0: all."""

    @property
    def target(self) -> TopicPartition:
        """The target partition of the records."""
        return TopicPartition(self.ends.copy, self.partition)

    @property
    def noted(self) -> TopicPartition:
        """The partition that stores the progress."""
        return TopicPartition(self.progress, self.partition)


class CopyTaskResult(NamedTuple):
    """The result of a task."""

    bytes: int
    slices: int
    before: Proof
    after: Proof
    is_all: bool
    """Whether nothing is left."""


def copy_partition(task: CopyTask) -> CopyTaskResult:
    """Copy a partition, up to the task's byte limit.

    Raises:
        ApiError: the target Kafka rejects a request; if it rejects a record, the text names it.
        Conflict: the records differ from those copied before, or were deleted.
        Unavailable: the source or the target cannot be reached.
    """
    check_host(task.source, task.host)
    return _CopyRun(task).run()


class _CopyRun:
    """One running task; asynchronous code runs on the loop of the source's log."""

    def __init__(self, task: CopyTask) -> None:
        self._task = task
        self._log = open_shared(task.source)
        self._client = self._log.run(_open(task.kafka))
        self._writer = TransactionalWriter(
            self._client, task.transactional_id, codec=find_codec(task.compression)
        )

    def run(self) -> CopyTaskResult:
        try:
            self._log.run(self._writer.start())
            return self._run()
        finally:
            self._log.run(self._client.close())

    def _run(self) -> CopyTaskResult:
        task = self._task
        reached = self._log.run(read_progress(self._client, task.noted, task.ends))
        wanted = self._find_range(reached)
        size, slices, before, after = 0, 0, Proof(), Proof()
        batches = read(task.source, plan_ranges(task.source, [wanted]), _COLUMNS)
        for table in cut(batches, task.slice_bytes):
            if task.max_bytes and slices and size + table.nbytes > task.max_bytes:
                return CopyTaskResult(size, slices, before, after, is_all=False)
            offsets = table.column("offset").to_numpy()
            reached = reached._replace(
                next=int(offsets[-1]) + 1, rows=reached.rows + table.num_rows
            )
            runs = self._log.run(self._write(table, reached))
            size += table.nbytes
            slices += 1
            before += prove(table.select(list(_PROVED)).to_batches())
            if task.has_proof:
                after += prove(self._read_back(runs))
        if max(reached.next, wanted.begin) < wanted.end:
            # The last offsets were aborted or compacted away; they are not read again.
            self._log.run(self._note(reached._replace(next=wanted.end)))
        return CopyTaskResult(size, slices, before, after, is_all=True)

    def _find_range(self, reached: CopyPosition) -> OffsetRange:
        log = self._log.log
        self._log.run(log.barrier())
        partition = log.state.topics.by_id[self._task.topic_id].partitions[self._task.partition]
        begin = partition.log_start if reached.next < 0 else reached.next
        check_reached(self._task.ends.topic, partition, begin)
        end = max(begin, end_of(partition, is_committed=True))
        return OffsetRange(self._task.topic_id, self._task.partition, begin, end)

    async def _write(self, table: pa.Table, reached: CopyPosition) -> list[CopiedRun]:
        """Write a slice and its progress atomically."""
        task, writer = self._task, self._writer
        try:
            await writer.begin([task.target, task.noted])
            written = await self._send(table)
            runs = runs_of(table.column("offset").to_numpy(), written)
            await writer.write(task.noted, progress_rows(reached, runs))
            await writer.commit()
        except BaseException:
            with suppress(Error):  # the next writer aborts the open transaction
                await writer.abort()
            raise
        return runs

    async def _send(self, table: pa.Table) -> list[StoredBatch]:
        task = self._task
        try:
            return await self._writer.write(task.target, table)
        except TooLarge as error:
            offset = table.column("offset")[error.row].as_py()
            raise ApiError(
                error.code,
                f"topic {task.ends.topic} partition {task.partition}: the record at offset "
                f"{offset} is too large for topic {task.ends.copy} there: {error.text}; raise its "
                "max.message.bytes, or choose a compression",
            ) from error

    async def _note(self, reached: CopyPosition) -> None:
        """Store progress without records."""
        await self._writer.begin([self._task.noted])
        await self._writer.write(self._task.noted, progress_rows(reached, []))
        await self._writer.commit()

    def _read_back(self, runs: list[CopiedRun]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a slice as read from the target."""
        records: list[Record] = []
        for first, last in spans(runs):
            for record in self._log.iterate(partial(self._read, first, last)):
                records.append(record)
                if len(records) == _PROOF_ROWS:
                    yield _batch(records)
                    records.clear()
        if records:
            yield _batch(records)

    async def _read(self, first: int, last: int) -> AsyncIterator[Record]:
        """Yield the records of a span; a commit can take some time to become visible."""
        place = self._task.target
        records = self._client.read(
            place.topic, place.partition, offset=first, follow=True, settings=_COMMITTED
        )
        try:
            while True:
                async with asyncio.timeout(_SHOWN_SECONDS):
                    record = await anext(records)
                if record.offset <= last:
                    yield record
                if record.offset >= last:
                    return
        except TimeoutError as error:
            text = f"{place.text}: offset {last} was committed, but is not to be seen"
            raise Unavailable(text) from error
        finally:
            await records.aclose()


def spans(runs: list[CopiedRun]) -> list[tuple[int, int]]:
    """Return the first and last offsets of each contiguous range in the target."""
    ranges: list[tuple[int, int]] = []
    for _, offset, records in runs:
        follows = ranges and ranges[-1][1] + 1 == offset
        first = ranges.pop()[0] if follows else offset
        ranges.append((first, offset + records - 1))
    return ranges


async def _open(settings: ClientSettings) -> Client:
    return Client(settings)  # on the loop where it will be used


def cut(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """Group batches up to the size of a transaction; only a single record can be larger."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for piece in _pieces(batch, most):
            if some and size + piece.nbytes > most:
                yield pa.Table.from_batches(some)
                some, size = [], 0
            some.append(piece)
            size += piece.nbytes
    if some:
        yield pa.Table.from_batches(some)


def _pieces(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= most or batch.num_rows <= 1:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half), most)
    yield from _pieces(batch.slice(half), most)


def _batch(records: list[Record]) -> pa.RecordBatch:
    headers = [
        [{"key": name, "value": value} for name, value in record.headers] for record in records
    ]
    columns: list[Any] = [
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array(headers, HEADERS),
    ]
    return pa.record_batch(columns, names=list(_PROVED))
