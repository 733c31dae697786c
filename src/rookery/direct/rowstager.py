"""Writes rows into staged objects: built in threads, uploaded, and named in the cluster log.

    add ──► enough rows ──► build (a thread) ──► store.create ──► SinkPartStaged
                 │  a few of these at a time, so memory is bounded
    finish ◄─────┘  the objects in the order of their rows

Staged objects are invisible to readers until their batch is committed. A writer that dies leaves
unreferenced objects, which the caretaker sweeps, and staged objects, which the sink's next commit
discards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import pyarrow as pa

from rookery.clock import Random, SystemRandom
from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.entry import MAX_EVENTS
from rookery.cluster.events.sinkevents import SinkAborted, SinkPartStaged, StagedRun
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.layout import BuiltObject, PackedRun, PackSettings, Stamp, build
from rookery.direct.log import DirectLog
from rookery.direct.partitioner import RowPartitioner
from rookery.direct.targets import TopicTarget, find_target
from rookery.direct.writable import check_columns
from rookery.errors import ApiError, Conflict, Error, ErrorCode, Unavailable
from rookery.formats.keys import object_key
from rookery.wire.message import Message

# Other processes may consider a paused process dead; it joins again, up to this many times.
_TRIES: Final = 3
# Rows are concatenated before they become an object, and a column has 32-bit offsets.
_MAX_ROWS: Final = 2_000_000
_AT_ONCE: Final = 1000


class UploadedObject(NamedTuple):
    """An object that is stored and staged, as a task reports it to its driver."""

    object_id: int
    rows: int
    size: int
    crc: int
    runs: int


class RowStager:
    """Writes the rows of one writer, such as a task, for one batch of a sink."""

    def __init__(
        self,
        log: DirectLog,
        batch: SinkBatch,
        packing: PackSettings,
        *,
        create_partitions: int = 0,
        random: Random | None = None,
    ) -> None:
        """Set up without writing anything.

        Args:
            log: the log to write to.
            batch: the batch that contains the rows.
            packing: how rows become objects.
            create_partitions: create missing topics with this number of partitions; 0: reject them.
            random: chooses the first partition for rows without a key.
        """
        self._log = log
        self._batch = batch
        self._packing = packing
        self._create = create_partitions
        self._random = random or SystemRandom()
        self._partitioner = RowPartitioner(self._random)
        self._targets: dict[str, TopicTarget] = {}
        self._schema: pa.Schema | None = None
        self._rows: list[pa.RecordBatch] = []
        self._bytes = self._count = 0
        self._making: list[asyncio.Task[UploadedObject | None]] = []
        self._begun: list[int] = []
        self.is_repeated = False
        """Whether the batch is already committed, so nothing more is written."""

    async def start(self) -> None:
        """Check whether the batch is already committed, and find the topic if one is named.

        Raises:
            ApiError: there is no such topic.
            Unavailable: the cluster log cannot be reached.
        """
        state = await self._log.barrier()
        sink = state.sinks.by_id.get(self._batch.sink_id)
        self.is_repeated = sink is not None and (sink.query_id, sink.batch_id) == self._batch[1:]
        if self._packing.topic and not self.is_repeated:
            await self._find([self._packing.topic])

    async def add(self, rows: pa.RecordBatch) -> None:
        """Add rows; waits while too much is in progress.

        Raises:
            ApiError, ConfigError: rows cannot be records of their topic; the text names them.
            Conflict: the objects were discarded in the meantime.
            Unavailable: the store or the cluster log cannot be reached.
        """
        if self.is_repeated or not rows.num_rows:
            return
        async with self._all_or_nothing():
            if rows.schema != self._schema:
                check_columns(rows.schema, self._packing.topic)
                await self._flush()
                self._schema = rows.schema
            if not self._packing.topic:
                await self._find(_topics(rows))
            for piece in self._pieces(rows):
                await self._take(piece)

    async def finish(self) -> list[UploadedObject]:
        """Write the rest; return the objects in the order of their rows, none if repeated.

        Raises:
            ApiError, ConfigError, Conflict, Unavailable: as `add`.
        """
        async with self._all_or_nothing():
            await self._flush()
            made = await asyncio.gather(*self._making)
        self._making.clear()
        if self.is_repeated:
            await self.abort()
            return []
        return [staged for staged in made if staged is not None]

    async def abort(self) -> None:
        """Stop, and delete all written objects."""
        for task in self._making:
            task.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)
        self._making.clear()
        self._rows.clear()
        await abort(self._log, self._begun)
        self._begun.clear()

    @asynccontextmanager
    async def _all_or_nothing(self) -> AsyncIterator[None]:
        """Discard the written objects if anything fails: the writer is not called again."""
        try:
            yield
        except BaseException:
            with suppress(Error):  # the caretaker finds the objects anyway
                await self.abort()
            raise

    async def _take(self, piece: pa.RecordBatch) -> None:
        size, count = self._bytes + piece.nbytes, self._count + piece.num_rows
        if size > self._packing.object_bytes or count > _MAX_ROWS:
            await self._flush()
        self._rows.append(piece)
        self._bytes += piece.nbytes
        self._count += piece.num_rows

    def _pieces(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Split rows that exceed the size of an object."""
        pieces = -(-rows.nbytes // self._packing.object_bytes) or 1
        step = -(-rows.num_rows // pieces)
        return (rows.slice(at, step) for at in range(0, rows.num_rows, step))

    async def _find(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._targets:
                self._targets[name] = await find_target(self._log, name, self._create, self._random)

    async def _flush(self) -> None:
        """Start building an object from the collected rows; wait if too many are in progress."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        self._bytes = self._count = 0
        while True:
            under_way = [task for task in self._making if not task.done()]
            for task in self._making:
                if task.done():
                    task.result()  # report a failure now, not at the end
            if len(under_way) < self._packing.uploads:
                break
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        numbers = await self._log.numbers()
        batch = self._batch
        name = f"batch {batch.batch_id} of query {batch.query_id!r} into sink {batch.sink_id!r}"
        stamp = Stamp(numbers(), self._log.clock.now_ms(), self._log.state.applied, name)
        self._begun.append(stamp.object_id)
        self._making.append(asyncio.create_task(self._make(rows, stamp)))

    async def _make(self, rows: list[pa.RecordBatch], stamp: Stamp) -> UploadedObject | None:
        built = await asyncio.to_thread(
            _build, rows, dict(self._targets), self._packing, self._partitioner, stamp
        )
        rows.clear()
        await self._log.store.create(object_key(built.object_id), built.parts)
        built.parts.clear()
        if not await self._stage(built):
            self.is_repeated = True
            return None
        return UploadedObject(built.object_id, built.rows, built.size, built.crc, len(built.runs))

    async def _stage(self, built: BuiltObject) -> bool:
        """Name an object in the cluster log; False if its batch is already committed."""
        for event in _events(self._batch, built):
            [outcome] = await propose(self._log, [event])
            if outcome.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return False
            if outcome.error is not ErrorCode.NONE:
                raise _make_refusal(outcome.error, built.object_id)
        return True


async def propose(log: DirectLog, events: list[Message]) -> list[Outcome]:
    """Propose events; a process that was considered dead joins the cluster again and retries.

    Raises:
        Unavailable: it is unknown whether the events were applied.
    """
    for _ in range(_TRIES):
        try:
            return await log.propose(events)
        except IncarnationFenced:
            await log.barrier()
    raise Unavailable("others take this process for dead time and again; is it being paused?")


async def abort(log: DirectLog, object_ids: Iterable[int]) -> list[int]:
    """Discard objects, except those already committed; return the deleted ones.

    Raises:
        Unavailable: it is unknown whether they were discarded.
    """
    rest = list(object_ids)
    gone: list[int] = []
    for start in range(0, len(rest), _AT_ONCE):
        event = SinkAborted(object_ids=rest[start : start + _AT_ONCE])
        [outcome] = await propose(log, [event])
        gone += outcome.value
    return gone


def _build(
    rows: list[pa.RecordBatch],
    targets: dict[str, TopicTarget],
    packing: PackSettings,
    partitioner: RowPartitioner,
    stamp: Stamp,
) -> BuiltObject:
    whole = pa.Table.from_batches(rows).combine_chunks().to_batches()
    return build(whole[0], targets, packing, partitioner, stamp)


def _topics(rows: pa.RecordBatch) -> list[str]:
    column = rows.column("topic")
    if column.null_count:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{column.null_count} rows have no topic; fill the column, or set the option `topic`",
        )
    return [str(name) for name in column.unique().to_pylist()]


def _events(batch: SinkBatch, built: BuiltObject) -> Iterable[SinkPartStaged]:
    """Yield an object's parts, each as large as an entry may be."""
    parts = -(-len(built.runs) // MAX_EVENTS)
    position = built.begin
    for part in range(parts):
        runs = built.runs[part * MAX_EVENTS : (part + 1) * MAX_EVENTS]
        yield SinkPartStaged(
            **batch._asdict(),
            object_id=built.object_id,
            part=part,
            parts=parts,
            position=position,
            runs=list(map(_make_staged, runs)),
        )
        position += sum(run.size for run in runs)


def _make_staged(run: PackedRun) -> StagedRun:
    return StagedRun(
        topic_id=run.topic_id,
        partition=run.partition,
        size=run.size,
        records=run.records,
        max_timestamp=run.max_timestamp,
    )


def _make_refusal(code: ErrorCode, object_id: int) -> Conflict | ApiError:
    if code is ErrorCode.POLICY_VIOLATION:
        return ApiError(
            code,
            "too much is staged and not committed in this cluster; commit smaller batches, or "
            "wait until uncommitted ones expire",
        )
    if code is ErrorCode.KAFKA_STORAGE_ERROR:
        return Conflict(f"object {object_id} was given up before it was staged: write it again")
    return ApiError(code, f"object {object_id} cannot be staged: {code.name}")
