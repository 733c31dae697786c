"""Topics into a Kafka of any make, by transactions: each record once, or at least once if told so.

A task copies one partition. Its transactional id fences an earlier life of the same task and ends
what that left open; then it reads how far the copy is, which is committed with the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.cluster import TopicView
from rookery.client.fetch import FetchSettings, Isolation
from rookery.client.settings import ClientSettings
from rookery.client.transactions import TransactionalWriter
from rookery.direct.blocking import BlockingLog, shared
from rookery.direct.host import check_host, host_mark
from rookery.direct.layout import named_codec
from rookery.direct.offsets import check_reached, end_of
from rookery.direct.place import Place
from rookery.direct.plan import OffsetRange
from rookery.errors import ApiError, Conflict, Error, ErrorCode, Unavailable
from rookery.jobs.copying import NAME, Copying
from rookery.jobs.cutting import OffsetCutter, find_topics
from rookery.jobs.filling import budgeted, moving_requests
from rookery.jobs.kafkaprogress import Reached, progress_rows, read_progress, runs_of
from rookery.jobs.kafkaprogress import Run as Moved
from rookery.jobs.proof import Proof, prove
from rookery.jobs.reading import plan_ranges, read
from rookery.jobs.report import Plan, Report, Run, Step
from rookery.jobs.tasks import run_tasks, slots
from rookery.model.partition import TopicPartition
from rookery.model.uuid import ZERO, uuid_text
from rookery.records.reading import HEADERS
from rookery.records.record import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
# A topic there may stamp its records with its own time.
_PROVED: Final = ("key", "value", "headers")
# A transaction is open no longer than this takes to write.
_SLICE_BYTES: Final = 32 * 1024 * 1024
_PROOF_ROWS: Final = 50_000
_SHOWN_SECONDS: Final = 60
_COMMITTED: Final = FetchSettings(isolation=Isolation.READ_COMMITTED)


@dataclass(frozen=True, slots=True)
class _Task:
    source: Place
    host: str
    kafka: ClientSettings
    transactional_id: str | None
    topic: str
    topic_id: bytes
    partition: int
    target: TopicPartition
    target_id: str
    progress: TopicPartition
    max_bytes: int
    """How much is read; 0: all."""
    slice_bytes: int
    compression: str
    has_proof: bool


class _Done(NamedTuple):
    bytes: int
    slices: int
    before: Proof
    after: Proof


def copy_to_kafka(
    spark: SparkSession,
    source: Place,
    kafka: ClientSettings,
    copying: Copying,
    run: Run | None = None,
    *,
    is_exact: bool = True,
) -> Report:
    """Copy topics into a Kafka; run again, it goes on with what is new.

    Its topics are made if they are not there. How far it is, and which offsets became which, is
    kept in a topic `rookery-<name of the job>-<topic>` there for each of them.

    Args:
        spark: where the tasks run.
        source: where the log lies that is read.
        kafka: how that Kafka is reached.
        copying: which topics, and how.
        run: budget, dry run, proof, progress.
        is_exact: write by transactions; without, a failure may leave records there twice.

    Raises:
        ConfigError: the topics cannot be used so.
        ApiError: the Kafka refuses something.
        Unavailable: something is out of reach.
    """
    run = run or Run()
    with BlockingLog(source, "job-copy") as log:
        topics = find_topics(log, copying.topics)
        cutter = OffsetCutter(log=log, topics=list(copying.topics), tasks=slots(spark))
        size = cutter.remaining({})
        label = "exactly once" if is_exact else "at least once"
        what = f"{', '.join(copying.topics)} to Kafka {kafka.bootstrap}, {label}"
        plan = Plan(NAME, *budgeted(what, size, run), moving_requests(size, run))
        report = Report(plan, is_dry=run.dry_run, facts={"delivery": label})
        if run.dry_run:
            return report
        counts = {topic.name: len(topic.partitions) for topic in topics}
        ids = log.run(_prepare(kafka, copying, counts))
        places = [(topic, index) for topic in topics for index in range(counts[topic.name])]
        tasks = [
            _Task(
                source,
                host_mark(source),
                kafka,
                f"{copying.progress(topic.name)}-{index}" if is_exact else None,
                topic.name,
                topic.id,
                index,
                TopicPartition(copying.targets[topic.name], index),
                ids[topic.name],
                TopicPartition(copying.progress(topic.name), index),
                -(-run.max_bytes // len(places)) if run.max_bytes else 0,
                min(copying.slice_bytes, _SLICE_BYTES),
                copying.packing.compression,
                run.proof,
            )
            for topic, index in places
        ]
        _work(spark, tasks, run, report)
        return report


def _work(spark: SparkSession, tasks: list[_Task], run: Run, report: Report) -> None:
    before, after = Proof(), Proof()
    wave = 4 * slots(spark)
    for start in range(0, len(tasks), wave):
        for done in run_tasks(spark, _copy, tasks[start : start + wave]):
            before, after = before + done.before, after + done.after
            report.done_bytes += done.bytes
            report.slices += done.slices
        total = max(report.plan.bytes, report.done_bytes)
        run.progress(Step(report.done_bytes, total, f"{before.rows:,} records"))
    report.facts["rows"] = before.rows
    if run.proof:
        report.before, report.after = before, after
        report.check()


async def _prepare(
    kafka: ClientSettings, copying: Copying, counts: dict[str, int]
) -> dict[str, str]:
    """Make the topics that are not there, and partitions that are missing; return copies' ids."""
    ids = {}
    async with Client(kafka) as client:
        for name, count in counts.items():
            compacted = {"cleanup.policy": "compact"}
            await _make(
                client, NewTopic(name=copying.progress(name), partitions=count, configs=compacted)
            )
            found = await _make(client, NewTopic(name=copying.targets[name], partitions=count))
            ids[name] = "" if found.id == ZERO else uuid_text(found.id)
    return ids


async def _make(client: Client, new: NewTopic) -> TopicView:
    try:
        await client.admin.create_topics([new])
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    found = await client.topic(new.name)
    if len(found.partitions) < new.partitions:
        await client.admin.create_partitions(new.name, new.partitions)
    return found


# In the tasks.


def _copy(task: _Task) -> _Done:
    check_host(task.source, task.host)
    return _Copying(task).run()


class _Copying:
    """One task at work; what is asynchronous runs on the loop of the source's log."""

    def __init__(self, task: _Task) -> None:
        self._task = task
        self._log = shared(task.source)
        self._client = self._log.run(_opened(task.kafka))
        self._writer = TransactionalWriter(
            self._client, task.transactional_id, codec=named_codec(task.compression)
        )

    def run(self) -> _Done:
        try:
            self._log.run(self._writer.start())
            return self._run()
        finally:
            self._log.run(self._client.close())

    def _run(self) -> _Done:
        task = self._task
        reached = self._reached()
        size, slices, before, after = 0, 0, Proof(), Proof()
        ranges = plan_ranges(task.source, [self._wanted(reached)])
        for table in _slices(read(task.source, ranges, _COLUMNS), task.slice_bytes):
            if task.max_bytes and size + table.nbytes > task.max_bytes:
                break
            offsets = table.column("offset").to_numpy()
            reached = reached._replace(
                next=int(offsets[-1]) + 1, rows=reached.rows + table.num_rows
            )
            runs = self._write(table, reached)
            size += table.nbytes
            slices += 1
            before += prove(table.select(list(_PROVED)).to_batches())
            if task.has_proof:
                after += prove(self._read_back(runs))
        return _Done(size, slices, before, after)

    def _reached(self) -> Reached:
        """Return where the copy is; at its beginning, if what was written there was deleted."""
        task = self._task
        topic = uuid_text(task.topic_id)
        found = self._log.run(read_progress(self._client, task.progress))
        if found.target and task.target_id and found.target != task.target_id:
            found = Reached(-1)
        if found.topic and found.topic != topic:
            raise Conflict(
                f"topic {task.topic} was deleted and created again since this job read it: begin a "
                "new job (name), with a new target (prefix)"
            )
        return found._replace(topic=topic, target=task.target_id)

    def _wanted(self, reached: Reached) -> OffsetRange:
        log = self._log.log
        self._log.run(log.barrier())
        partition = log.state.topics.by_id[self._task.topic_id].partitions[self._task.partition]
        begin = partition.log_start if reached.next < 0 else reached.next
        check_reached(self._task.topic, partition, begin)
        end = max(begin, end_of(partition, is_committed=True))
        return OffsetRange(self._task.topic_id, self._task.partition, begin, end)

    def _write(self, table: pa.Table, reached: Reached) -> list[Moved]:
        """Write a slice and how far it goes, both or none of it."""
        return self._log.run(self._write_all(table, reached))

    async def _write_all(self, table: pa.Table, reached: Reached) -> list[Moved]:
        task, writer = self._task, self._writer
        try:
            await writer.begin([task.target, task.progress])
            written = await writer.write(task.target, table)
            runs = runs_of(table.column("offset").to_numpy(), written)
            await writer.write(task.progress, progress_rows(reached, runs))
            await writer.commit()
        except BaseException:
            with suppress(Error):  # whoever starts the next writer ends what is left open
                await writer.abort()
            raise
        return runs

    def _read_back(self, runs: list[Moved]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a slice as they are there."""
        records: list[Record] = []
        for run in runs:
            for record in self._log.iterate(partial(self._read, run)):
                records.append(record)
                if len(records) == _PROOF_ROWS:
                    yield _batch(records)
                    records.clear()
        if records:
            yield _batch(records)

    async def _read(self, run: Moved) -> AsyncIterator[Record]:
        """Yield the records of a run; a commit may take a while until it shows."""
        place, last = self._task.target, run.offset + run.records - 1
        records = self._client.read(
            place.topic, place.partition, offset=run.offset, follow=True, settings=_COMMITTED
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


async def _opened(settings: ClientSettings) -> Client:
    return Client(settings)  # on the loop that it is to work on


def _slices(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """Put batches together up to the size of a transaction."""
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
    count = -(-batch.nbytes // most) or 1
    step = -(-batch.num_rows // count)
    return (batch.slice(at, step) for at in range(0, batch.num_rows, step or 1))


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
