"""Stream reader for topics: the driver plans offsets, and the tasks read the data.

The driver's Python process lives as long as the query and keeps the log open. Nothing depends on
`commit` and `stop`, which Spark does not always call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.place import check_host, host_mark
from rookery.spark.gcfreeze import settle_after
from rookery.spark.read.batchread import Share, read_ranges
from rookery.spark.read.offset import StreamOffset
from rookery.spark.read.options import ReadOptions
from rookery.spark.read.streamplan import StreamPlan

_FAR: Final = (1 << 63) - 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of one query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        # The reader is serialised to the tasks, which do not need an open log.
        self._open: tuple[BlockingLog, StreamPlan] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start offset of a new query; Spark calls it more than once."""
        log, plan = self._require_open()
        return log.run(plan.find_beginning()).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a read limit if the options have one; the plan applies all of them together."""
        if not self._options.pace.is_bounded:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.pace.max_offsets or _FAR)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the current end of the log: this query stops there."""
        log, plan = self._require_open()
        log.run(plan.stop_here())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` itself if there is no next batch."""
        log, plan = self._require_open()
        # Spark's limit takes precedence: without one, the limits in the options do not apply.
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return log.run(plan.latest(StreamOffset.of(start), max_records)).as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of the log, as of the last refresh."""
        _, plan = self._require_open()
        return plan.ends().as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Share]:
        """Plan a batch."""
        log, plan = self._require_open()
        shares = log.run(plan.shares(StreamOffset.of(start), StreamOffset.of(end)))
        mark = host_mark(self._options.place)
        return [Share(ranges, mark) for ranges in shares]

    def topic_names(self) -> dict[bytes, str]:
        """Return the names of topics by id, as of the last refresh."""
        log, _ = self._require_open()
        return {topic.id: name for name, topic in log.log.state.topics.by_name.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's records."""
        if not isinstance(partition, Share):
            return iter(())
        check_host(self._options.place, partition.host)
        return settle_after(read_ranges(self._options, partition.ranges))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls it late for the last batch, or never."""

    def stop(self) -> None:
        """Close the log; pins stay until they expire, because the batch may be read again."""
        if self._open is not None:
            self._open[0].close()
            self._open = None

    def _require_open(self) -> tuple[BlockingLog, StreamPlan]:
        if self._open is None:
            log = BlockingLog(self._options.place, "spark-source")
            self._open = log, StreamPlan(log.log, self._options)
        return self._open
