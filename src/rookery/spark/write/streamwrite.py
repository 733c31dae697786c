"""Stream writer: commits each batch of a stream to topics exactly once."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from rookery.cluster.state.rules.sinkrules import MAX_SOURCE_OFFSETS
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.place import host_mark
from rookery.errors import ConfigError, Conflict
from rookery.spark.checkpoint import check_stream, local_path
from rookery.spark.write import taskoutput
from rookery.spark.write.writeoptions import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

# The offset log of a checkpoint has a version, a line of Spark's own, then one line per source.
_HEAD_LINES: Final = 2


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> StreamWriter:
    """Return the writer of a stream.

    Raises:
        ConfigError: an option or a column is invalid, or the output mode is complete.
        ApiError: the topic does not exist.
    """
    if overwrite:
        raise ConfigError(
            "output mode complete: it replaces the whole result in every batch, and a topic is "
            "appended to; use append, or update with a key"
        )
    chosen = WriteOptions.of(options, is_stream=True)
    check_stream(chosen.checkpoint)
    if chosen.checkpoint and local_path(chosen.checkpoint) is None:
        _warn_of(chosen.checkpoint)
    taskoutput.check_rows(chosen, schema)
    return StreamWriter(chosen, host_mark(chosen.place))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream under its sink id."""

    def __init__(self, options: WriteOptions, host: str = "") -> None:
        self._options = options
        self._host = host

    # Spark's own class declares the same method for rows.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Stage the rows of a task."""
        stream = taskoutput.streaming_batch()
        if stream is None:
            raise Conflict(
                "this task did not get the number of its batch from Spark "
                f"({taskoutput.QUERY_PROPERTY} and {taskoutput.BATCH_PROPERTY} are not set), "
                "so rows could be written twice: this "
                "Spark is not supported"
            )
        batch = SinkBatch(self._options.sink_id, *stream)
        return taskoutput.stage(self._options, batch, iterator, self._host)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the objects that all tasks have staged for this batch."""
        self._check(messages, batchId)
        offsets = source_offsets(self._checkpoint(messages), batchId)
        done = taskoutput.commit_all(self._options, messages, offsets)
        if done is not None and done.is_repeated:
            log.info("batch %d of sink %s was there already", batchId, self._options.sink_id)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Discard the objects that tasks have staged."""
        taskoutput.abort_all(self._options, messages)

    def _checkpoint(self, messages: list[WriterCommitMessage | None]) -> str:
        """Return the location of the checkpoint.

        It is set by an option, or is named after the query in the default folder. Otherwise Spark
        generates a name and does not report it.
        """
        if self._options.checkpoint:
            return self._options.checkpoint
        folders = {
            message.checkpoints
            for message in messages
            if isinstance(message, taskoutput.TaskOutput)
        } - {""}
        if len(folders) != 1 or not self._options.query_name:
            return ""
        return f"{folders.pop().rstrip('/')}/{self._options.query_name}"

    def _check(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        for message in messages:
            if isinstance(message, taskoutput.TaskOutput) and message.batch.batch_id != batch_id:
                raise Conflict(
                    f"a task has written batch {message.batch.batch_id}, but batch {batch_id} is "
                    "to be committed; nothing was: run the query again"
                )


def source_offsets(checkpoint: str, batch_id: int) -> str:
    """Return the offsets that the sources had reached with a batch, as a JSON list of texts.

    The result is empty if the checkpoint is not a folder of this host. A query cannot resume from
    it then.
    """
    folder = local_path(checkpoint) if checkpoint else None
    if folder is None:
        _warn_of(checkpoint or "its checkpoint")
        return ""
    try:
        lines = (folder / "offsets" / str(batch_id)).read_text().splitlines()
    except OSError as error:
        log.warning("resumeFrom will not know batch %d: %s", batch_id, error)
        return ""
    text = json.dumps(lines[_HEAD_LINES:])
    if len(text.encode()) > MAX_SOURCE_OFFSETS:
        log.warning("resumeFrom will not know batch %d: its offsets are too long", batch_id)
        return ""
    return text


@lru_cache(maxsize=64)
def _warn_of(checkpoint: str) -> None:
    """Warn once, not for every batch, that a query cannot resume from this sink."""
    log.warning(
        "resumeFrom will not know how far this query has come: %s is not a folder that "
        "can be read here; name one with checkpointLocation, or with "
        "spark.sql.streaming.checkpointLocation and a queryName",
        checkpoint,
    )
