"""Publishes the offsets of streams as those of a consumer group, so that Kafka tools show lag.

Spark notifies its sources late of a committed batch, and never of the last one. A query listener is
notified of every batch, so it publishes the offsets.

    from rookery.spark import publish_lag

    publish_lag(spark, store="s3://bucket/prefix", group="clicks-to-table")
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.groupoffsets import publish_offsets
from rookery.direct.place import ClusterAddress
from rookery.errors import Corrupt, Error
from rookery.spark.read.offset import Key, StreamOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def publish_lag(
    spark: SparkSession, *, group: str = "", query: str = "", **place: str
) -> LagListener:
    """Start to publish the offsets of a session's streams; `close` the listener to stop.

    Args:
        spark: the session.
        group: the group's name; by default the query's name, or its id if it has none.
        query: the name of the only query to publish; by default all that read this cluster.
        place: the location of the log, as in the options of the source.

    Raises:
        ConfigError, Unavailable: there is no log at this location.
    """
    listener = LagListener(spark, ClusterAddress.of(place), group, query)
    spark.streams.addListener(listener)
    return listener


class LagListener(StreamingQueryListener):
    """Publishes the end offsets of each batch."""

    def __init__(self, spark: SparkSession, place: ClusterAddress, group: str, query: str) -> None:
        self._spark = spark
        self._group = group
        self._query = query
        self._log = BlockingLog(place, "spark-lag")
        self._published: dict[str, dict[Key, int]] = {}

    def close(self) -> None:
        """Stop publishing."""
        self._spark.streams.removeListener(self)
        self._log.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Publish the offsets that a query has reached."""
        progress = event.progress
        if self._query and progress.name != self._query:
            return
        try:
            self._publish(progress)
        except Error as error:
            # The query continues: only the figures shown by tools depend on this.
            log.warning("offsets of query %s are not published: %s", progress.id, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: there is nothing new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: the last batch was already reported by `onQueryProgress`."""

    def _publish(self, progress: StreamingQueryProgress) -> None:
        group = self._group or progress.name or str(progress.id)
        offsets: dict[Key, int] = {}
        for source in progress.sources:
            offsets.update(_offsets(source.endOffset))
        known = self._log.log.state.topics.by_id
        if any(topic_id not in known for topic_id, _ in offsets):
            self._log.run(self._log.log.barrier())
            known = self._log.log.state.topics.by_id
        offsets = {key: offset for key, offset in offsets.items() if key[0] in known}
        if offsets and offsets != self._published.get(group):
            self._log.run(publish_offsets(self._log.log, group, offsets))
            self._published[group] = offsets


def _offsets(text: Any) -> dict[Key, int]:
    """Return the offsets of a Rookery source; empty for other sources."""
    try:
        offsets = json.loads(text) if isinstance(text, str) else text
        return dict(StreamOffset.of(offsets).next) if isinstance(offsets, dict) else {}
    except (ValueError, Corrupt):
        return {}
