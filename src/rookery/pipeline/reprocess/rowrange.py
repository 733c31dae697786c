"""Reads the records between two positions of a pipeline again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rookery.direct.offsets import EARLIEST
from rookery.pipeline.batch.storedrows import StoredRows
from rookery.pipeline.declaration.spec import Pipeline, Source
from rookery.pipeline.manifests import Offsets, PipelinePosition
from rookery.pipeline.positions import check_same
from rookery.spark.read.batchread import BatchReader
from rookery.spark.read.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_options(source: Source) -> dict[str, str]:
    """Return the options for reading every batch."""
    options = source.place_options()
    options["includeHeaders"] = "true"
    options["onDataLoss"] = source.on_data_loss
    if source.min_partitions:
        options["minPartitions"] = str(source.min_partitions)
    return options


def rows_between(
    spark: SparkSession, pipeline: Pipeline, begin: PipelinePosition, end: PipelinePosition
) -> StoredRows:
    """Plan the records between two positions.

    Raises:
        Conflict: a topic was created again; or records are missing, and `on-data-loss` is `fail`.
    """
    source, what = pipeline.source, f"pipeline {pipeline.name!r}"
    for position in (begin, end):
        check_same(source, position.topics, what)
    given = read_options(source)
    starts, ends = _select_moved(begin.ends, end.ends)
    given["assign"] = json.dumps(
        {topic: sorted(map(int, partitions)) for topic, partitions in ends.items()}
    )
    given["startingOffsets"] = json.dumps(starts)
    given["endingOffsets"] = json.dumps(ends)
    options = ReadOptions.of(given)
    shares = BatchReader(options).partitions()
    # The plan uses topic names. If the id is unchanged after planning, it was the same during
    # planning.
    for position in (begin, end):
        check_same(source, position.topics, what)
    return StoredRows(spark, options, shares)


def _select_moved(begin: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
    """Return both offsets for the topics that have records between them.

    A partition that was created in between starts at its first record.
    """
    moved = {topic: ends for topic, ends in end.items() if begin.get(topic) != ends}
    starts = {
        topic: {partition: begin.get(topic, {}).get(partition, EARLIEST) for partition in ends}
        for topic, ends in moved.items()
    }
    return starts, moved
