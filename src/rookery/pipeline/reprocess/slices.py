"""Reads past records in slices.

Each slice is a batch with a manifest, so that an interrupted run can continue.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rookery.pipeline.batch.engine import BatchEngine
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import Offsets, PipelinePosition
from rookery.pipeline.metrics import OnBatch
from rookery.pipeline.positions import starts
from rookery.pipeline.reprocess.rowrange import rows_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def log_start(pipeline: Pipeline) -> PipelinePosition:
    """Return the current log start."""
    return starts(replace(pipeline.source, starting_offsets="earliest"))


def read_slices(
    spark: SparkSession,
    engine: BatchEngine,
    begin: Offsets,
    until: PipelinePosition,
    on_batch: OnBatch,
) -> dict[str, int]:
    """Process the records between two positions, or from the engine's position if it is later.

    Returns:
        Rows by layer.
    """
    counts: dict[str, int] = {}
    wanted = {
        topic: until.ends[topic] for topic in engine.pipeline.source.topics if topic in until.ends
    }
    at = _later(wanted, engine.ends(), begin)
    while (end := _next_slice(engine.pipeline, at, wanted)) != at:
        known = engine.read_position().topics
        reached = PipelinePosition(end, {**known, **until.topics})
        rows = rows_between(spark, engine.pipeline, PipelinePosition(at, known), reached)
        metrics = engine.run(rows, reached)
        if metrics is not None:
            on_batch(metrics)
            add_counts(counts, metrics.rows)
        at = end
    return counts


def add_counts(counts: dict[str, int], more: dict[str, int]) -> None:
    """Add row counts by layer to others."""
    for layer, count in more.items():
        counts[layer] = counts.get(layer, 0) + count


def _later(wanted: Offsets, left: Offsets, right: Offsets) -> Offsets:
    """Return the larger of two offsets for each wanted partition."""
    return {
        topic: {
            partition: max(each.get(topic, {}).get(partition, 0) for each in (left, right))
            for partition in ends
        }
        for topic, ends in wanted.items()
    }


def _next_slice(pipeline: Pipeline, begin: Offsets, until: Offsets) -> Offsets:
    """Return the end of the next slice; the partitions share the limit on records."""
    partitions = sum(len(partition_ends) for partition_ends in until.values())
    step = max(pipeline.source.max_offsets_per_trigger // max(partitions, 1), 1)
    return {
        topic: {
            partition: max(begin[topic][partition], min(begin[topic][partition] + step, end))
            for partition, end in ends.items()
        }
        for topic, ends in until.items()
    }
