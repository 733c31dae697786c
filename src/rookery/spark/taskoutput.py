"""What both writers do: tasks stage rows, the driver commits what all of them have staged.

Spark gives `write` neither query nor batch, and calls `commit` on a fresh object in another
process. So a task reads both from its local properties and puts them into its message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    IntegerType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.blockinglog import BlockingLog, shared
from rookery.direct.commit import Commit, commit
from rookery.direct.place import check_host
from rookery.direct.rowstager import RowStager, UploadedObject, abort
from rookery.direct.targets import find_target
from rookery.direct.writable import check_columns
from rookery.errors import ConfigError, Conflict, Error
from rookery.spark.checkpoint import DEFAULT_LOCATION
from rookery.spark.gcfreeze import settle
from rookery.spark.writeoptions import WriteOptions

_ARROW_TYPES: Final[dict[type[DataType], pa.DataType]] = {
    BinaryType: pa.binary(),
    StringType: pa.string(),
    VarcharType: pa.string(),
    CharType: pa.string(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
}
# Columns of a table that no insert gives values to.
_LOG_COLUMNS: Final[tuple[str, ...]] = ("offset", "timestampType")
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskOutput(WriterCommitMessage):
    """What a task has staged, and for which batch."""

    batch: SinkBatch
    partition: int
    objects: tuple[UploadedObject, ...]
    checkpoints: str = ""
    """Where the session's streams keep their checkpoints by default; only tasks are told that."""


def check_rows(options: WriteOptions, schema: StructType) -> None:
    """Refuse, before any task runs, what cannot be written.

    Raises:
        ConfigError: the columns cannot be records.
        ApiError: there is no such topic.
    """
    fields = [(field.name, _arrow_type(field.dataType)) for field in schema]
    names = {field.name: field.dataType.simpleString() for field in schema}
    check_columns(pa.schema(fields), options.packing.topic, names)
    if options.packing.topic:
        log = shared(options.place)
        log.run(find_target(log.log, options.packing.topic, options.create_partitions))


def _arrow_type(kind: DataType) -> pa.DataType:
    """Return as what Arrow type a column arrives, if it is one that can be written."""
    known = _ARROW_TYPES.get(type(kind))
    if known is not None:
        return known
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = [(field.name, _arrow_type(field.dataType)) for field in kind.elementType]
        return pa.list_(pa.struct(fields))
    return pa.null()


def writable(schema: StructType) -> StructType:
    """Return the columns of a table that an insert can give values to."""
    return StructType([field for field in schema.fields if field.name not in _LOG_COLUMNS])


def without_log_columns(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield inserted rows without the columns that the log gives values to.

    Raises:
        ConfigError: one has a value.
    """
    for batch in rows:
        names = [name for name in _LOG_COLUMNS if name in batch.schema.names]
        for name in names:
            if batch.column(name).null_count < batch.num_rows:
                raise ConfigError(
                    f"column {name}: the log gives it; leave it out: INSERT INTO t (key, value) …"
                )
        yield batch.drop_columns(names) if names else batch


def streaming_batch() -> tuple[str, int] | None:
    """Return query and batch of the stream that the task at hand is part of; None if it is not.

    Raises:
        Conflict: Spark tells one of them only.
    """
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context else None
    batch = context.getLocalProperty(BATCH_PROPERTY) if context else None
    if not query and not batch:
        return None
    if not query or not batch:
        raise Conflict(
            f"Spark tells this task {QUERY_PROPERTY}={query} and {BATCH_PROPERTY}={batch}; without "
            "both, a batch cannot be told from the one before: this Spark is not supported"
        )
    return query, int(batch)


def stage(
    options: WriteOptions, batch: SinkBatch, rows: Iterator[pa.RecordBatch], host: str
) -> TaskOutput:
    """Stage a task's rows; the host is the only one where that can be done, empty if all can.

    Raises:
        ConfigError: this is another host.
    """
    check_host(options.place, host)
    log = shared(options.place)
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    staging = RowStager(
        log.log, batch, options.packing, create_partitions=options.create_partitions
    )
    log.run(staging.start())
    try:
        for some in rows:
            log.run(staging.add(some))
        objects = log.run(staging.finish())
    except BaseException:
        _give_up(log, staging)
        raise
    settle()
    checkpoints = context.getLocalProperty(DEFAULT_LOCATION) if context else None
    return TaskOutput(batch, partition, tuple(objects), checkpoints or "")


def _give_up(log: BlockingLog, staging: RowStager) -> None:
    """Have what a failed task has written deleted; else the sink's next commit lets it go."""
    with suppress(Error):
        log.run(staging.abort())


def commit_all(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], source_offsets: str
) -> Commit | None:
    """Commit what tasks have staged, in their order; None if no task has said anything.

    Raises:
        Conflict: the messages are not of one batch, or the sink refuses it.
        Unavailable: it is not known whether it was committed.
    """
    written = sorted(_written(messages), key=lambda one: one.partition)
    if not written:
        return None
    batches = {one.batch for one in written}
    if len(batches) > 1:
        raise Conflict(f"tasks of one write were told different batches: {sorted(batches)}")
    log = shared(options.place)
    objects = [staged.object_id for one in written for staged in one.objects]
    return log.run(
        commit(
            log.log, written[0].batch, objects, source_offsets=source_offsets,
            takes_over=options.takes_over,
        )
    )  # fmt: skip


def abort_all(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Give up what tasks have staged; what is committed after all stays."""
    objects = [staged.object_id for one in _written(messages) for staged in one.objects]
    log = shared(options.place)
    log.run(abort(log.log, objects))


def _written(messages: Iterable[WriterCommitMessage | None]) -> Iterator[TaskOutput]:
    """Leave out tasks that failed: they have no message."""
    return (one for one in messages if isinstance(one, TaskOutput))
