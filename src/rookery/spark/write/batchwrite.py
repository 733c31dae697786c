"""Batch writer: appends a DataFrame to topics atomically."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rookery.clock import SystemRandom
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.blockinglog import open_shared
from rookery.direct.commit import last_commit
from rookery.direct.place import host_mark
from rookery.errors import ConfigError, Conflict
from rookery.spark.write import taskoutput
from rookery.spark.write.writeoptions import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

_TOPIC: Final = "topic"


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Return the writer of a DataFrame.

    Raises:
        ConfigError: an option or a column cannot be used.
        ApiError: the topic does not exist.
    """
    if overwrite:
        raise ConfigError(
            "mode overwrite: a topic is appended to; use mode append, and delete records or the "
            "topic before if that is what you want"
        )
    chosen = WriteOptions.of(options, is_stream=False)
    taskoutput.check_rows(chosen, schema)
    return BatchWriter(chosen, SystemRandom().token(16).hex(), host_mark(chosen.place))


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame in one commit.

    With `sinkId` and `batchId`, or within `foreachBatch`, a repeated run writes nothing again.
    Without a `sinkId`, each run is a separate write.
    """

    def __init__(self, options: WriteOptions, run_id: str, host: str = "") -> None:
        self._options = options
        self._run_id = run_id
        self._host = host

    # Spark's own class declares the same method for rows.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Stage the rows of a task."""
        return taskoutput.stage(
            self._options, self._batch(), taskoutput.without_log_columns(iterator), self._host
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the objects that all tasks have staged."""
        done = taskoutput.commit_all(self._options, messages, self._choose_text())
        if done is not None and done.is_repeated:
            self._check_same()
            log.warning(
                "batch %s of sink %s was written before: nothing was written again",
                self._options.batch_id,
                self._options.sink_id,
            )

    def _choose_text(self) -> str:
        """Return the text stored with the batch: the user's text, else the name of its topic."""
        topic = self._options.packing.topic
        if self._options.source_offsets or not self._options.sink_id or not topic:
            return self._options.source_offsets
        return json.dumps({_TOPIC: topic})

    def _check_same(self) -> None:
        """Refuse a repeated batch id that is not a repetition of the same write.

        Raises:
            Conflict: the sink has committed this batch to another topic.
        """
        sink_id, topic = self._options.sink_id, self._options.packing.topic
        opened = open_shared(self._options.place)
        last = opened.run(last_commit(opened.log, sink_id))
        other = _topic_in(last.source_offsets) if last is not None else ""
        if topic and other and topic != other:
            raise Conflict(
                f"sink {sink_id!r} has this batch already, in topic {other!r}, so nothing was "
                f"written to {topic!r}: each write of a batch needs a sinkId of its own"
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the objects that tasks have staged."""
        taskoutput.abort_all(self._options, messages)

    def _batch(self) -> SinkBatch:
        """Return the batch that identifies the rows.

        Raises:
            Conflict: there is a sink id but no batch number, or the number is not the stream's.
        """
        sink_id, number = self._options.sink_id, self._options.batch_id
        if not sink_id:
            return SinkBatch("", self._run_id, 0)
        stream = taskoutput.streaming_batch()
        if stream is None and number is None:
            raise Conflict(
                "sinkId without batchId: outside of foreachBatch, say which batch this is (a "
                "number that grows from run to run), or leave sinkId out and have it written again "
                "by every run"
            )
        if stream is None:
            return SinkBatch(sink_id, "", number or 0)
        query_id, batch_id = stream
        if number not in (None, batch_id):
            raise Conflict(f"batchId={number}, but this is batch {batch_id} of its stream")
        return SinkBatch(sink_id, query_id, batch_id)


def _topic_in(kept: str) -> str:
    """Return the topic that `_choose_text` stored; empty if it is another text."""
    try:
        note = json.loads(kept or "{}")
    except ValueError:
        return ""
    topic = note.get(_TOPIC) if isinstance(note, dict) else None
    return topic if isinstance(topic, str) else ""
