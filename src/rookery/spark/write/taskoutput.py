"""Common parts of both writers: tasks stage rows, and the driver commits all staged objects.

Spark passes neither query nor batch to `write`, and calls `commit` on a new object in another
process. So a task reads both from its local properties and adds them to its message.
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
from rookery.direct.blockinglog import BlockingLog, open_shared
from rookery.direct.commit import Commit, commit
from rookery.direct.place import check_host
from rookery.direct.rowstager import RowStager, UploadedObject, abort
from rookery.direct.targets import find_target
from rookery.direct.writable import check_columns
from rookery.errors import ConfigError, Conflict, Error
from rookery.spark.checkpoint import DEFAULT_LOCATION
from rookery.spark.gcfreeze import settle
from rookery.spark.write.writeoptions import WriteOptions

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
# Columns of a table that an insert cannot set.
_LOG_COLUMNS: Final[tuple[str, ...]] = ("offset", "timestampType")
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskOutput(WriterCommitMessage):
    """The objects that a task has staged, and their batch."""

    batch: SinkBatch
    partition: int
    objects: tuple[UploadedObject, ...]
    checkpoints: str = ""
    """The default checkpoint folder of the session's streams; only tasks can read it."""


def check_rows(options: WriteOptions, schema: StructType) -> None:
    """Refuse rows that cannot be written, before any task runs.

    Raises:
        ConfigError: the columns cannot be converted to records.
        ApiError: there is no such topic.
    """
    fields = [(field.name, _arrow_type(field.dataType)) for field in schema]
    names = {field.name: field.dataType.simpleString() for field in schema}
    check_columns(pa.schema(fields), options.packing.topic, names)
    if options.packing.topic:
        log = open_shared(options.place)
        log.run(find_target(log.log, options.packing.topic, options.create_partitions))


def _arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a column; null if the column cannot be written."""
    known = _ARROW_TYPES.get(type(kind))
    if known is not None:
        return known
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = [(field.name, _arrow_type(field.dataType)) for field in kind.elementType]
        return pa.list_(pa.struct(fields))
    return pa.null()


def writable(schema: StructType) -> StructType:
    """Return the columns of a table that an insert can set."""
    return StructType([field for field in schema.fields if field.name not in _LOG_COLUMNS])


def without_log_columns(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield inserted rows without the columns that the log sets.

    Raises:
        ConfigError: one of these columns has a value.
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
    """Return the query and batch of the current task; None if it is not part of a stream.

    Raises:
        Conflict: Spark sets only one of them.
    """
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context else None
    batch = context.getLocalProperty(BATCH_PROPERTY) if context else None
    if not query and not batch:
        return None
    if not query or not batch:
        raise Conflict(
            f"Spark gives this task {QUERY_PROPERTY}={query} and {BATCH_PROPERTY}={batch}; without "
            "both, a batch cannot be distinguished from the one before: this Spark is not supported"
        )
    return query, int(batch)


def stage(
    options: WriteOptions, batch: SinkBatch, rows: Iterator[pa.RecordBatch], host: str
) -> TaskOutput:
    """Stage a task's rows; `host` is the only host that can do so, empty if any host can.

    Raises:
        ConfigError: this is another host.
    """
    check_host(options.place, host)
    log = open_shared(options.place)
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
    """Delete the objects of a failed task; if that fails, the sink's next commit releases them."""
    with suppress(Error):
        log.run(staging.abort())


def commit_all(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], source_offsets: str
) -> Commit | None:
    """Commit the staged objects in task order; None if no task sent a message.

    Raises:
        Conflict: the messages are of different batches, or the sink refuses the batch.
        Unavailable: it is unknown whether the batch was committed.
    """
    written = sorted(_select_written(messages), key=lambda output: output.partition)
    if not written:
        return None
    batches = {output.batch for output in written}
    if len(batches) > 1:
        raise Conflict(f"tasks of one write have different batches: {sorted(batches)}")
    log = open_shared(options.place)
    objects = [staged.object_id for output in written for staged in output.objects]
    return log.run(
        commit(
            log.log, written[0].batch, objects, source_offsets=source_offsets,
            takes_over=options.takes_over,
        )
    )  # fmt: skip


def abort_all(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Discard the objects that tasks have staged; committed objects stay."""
    objects = [
        staged.object_id for output in _select_written(messages) for staged in output.objects
    ]
    log = open_shared(options.place)
    log.run(abort(log.log, objects))


def _select_written(messages: Iterable[WriterCommitMessage | None]) -> Iterator[TaskOutput]:
    """Return the messages of tasks; failed tasks have none."""
    return (message for message in messages if isinstance(message, TaskOutput))
