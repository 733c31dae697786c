"""What a pipeline did not read: the records before its origin, or all of them once more.

Both go through slices of offsets, each a batch of its own with a manifest, so that a run that was
interrupted goes on. A backfill adds to the tables, under a name of its own. A rebuild stages all,
and then becomes one batch of the pipeline itself, whose files are all of each silver table: who
reads sees the old table or the new one. A pipeline that runs meanwhile wins or stops, never both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rookery.errors import ConfigError, Conflict
from rookery.pipeline.engine import Engine, Plan
from rookery.pipeline.manifests import BACKFILL, Manifest, Manifests, Offsets, Staged
from rookery.pipeline.metrics import BatchMetrics
from rookery.pipeline.positions import starts
from rookery.pipeline.run import open_engine, read_options
from rookery.pipeline.spec import Pipeline
from rookery.pipeline.stored import StoredRows
from rookery.spark.batchread import BatchReader
from rookery.spark.options import ReadOptions
from rookery.tables.folder import below
from rookery.tables.port import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = Callable[[BatchMetrics], None]


def backfill(
    spark: SparkSession, pipeline: Pipeline, told: Told = lambda _: None
) -> dict[str, int]:
    """Read what lies before the origin of a pipeline that has run; return rows by layer.

    Raises:
        ConfigError: it has not run, or its rows replace others, where order matters.
    """
    _refuse_upsert(pipeline, "backfill")
    origin = Manifests(pipeline.state).origin()
    if origin is None:
        raise ConfigError(
            f"pipeline {pipeline.name!r} never ran, so there is nothing before its beginning:"
            ' run it with starting-offsets = "earliest"'
        )
    engine = _engine(pipeline, below(pipeline.state, BACKFILL), f"{pipeline.name}/{BACKFILL}")
    engine.recover()
    return _slices(spark, engine, origin.starts, told)


def rebuild(spark: SparkSession, pipeline: Pipeline, told: Told = lambda _: None) -> dict[str, int]:
    """Compute the silver tables anew, up to where the pipeline is, and swap them.

    Raises:
        ConfigError: the pipeline has not run, or its rows replace others.
        Conflict: the pipeline ran meanwhile: stop it, and call this again.
    """
    _refuse_upsert(pipeline, "rebuild")
    live = open_engine(pipeline)
    if live.last is None:
        raise ConfigError(f"pipeline {pipeline.name!r} has no batch yet; run it first")
    batch = live.last.batch + 1
    staging = _engine(pipeline, below(pipeline.state, f"rebuild-{batch}"), pipeline.name)
    staging.is_staging = True
    staging.recover()
    rows = _slices(spark, staging, live.last.ends, told)
    manifest = _swap(live, staging, batch)
    live.manifests.add(manifest)
    live.recover()
    return rows


def _swap(live: Engine, staging: Engine, batch: int) -> Manifest:
    """Make one manifest of all slices: their files are the whole of each silver table."""
    last = live.last
    if last is None:
        raise Conflict(f"pipeline {live.pipeline.name!r}: its state has gone")
    files: dict[str, list[DataFile]] = {}
    schemas: dict[str, str] = {}
    for number in range(staging.last.batch + 1 if staging.last else 0):
        for key, staged in staging.manifests.read(number).sinks.items():
            files.setdefault(key, []).extend(staged.files)
            schemas[key] = staged.schema
    sinks = {key: Staged(tuple(found), schemas[key]) for key, found in files.items()}
    return replace(last, batch=batch, at=live.clock.now_ms(), sinks=sinks, replaces=tuple(sinks))


def _engine(pipeline: Pipeline, state: str, identity: str) -> Engine:
    plan = Plan.of(pipeline)
    if not identity.endswith(BACKFILL):
        silver = {
            number: schema
            for number, schema in plan.sinks.items()
            if pipeline.sinks[number].layer == "silver" and pipeline.sinks[number].format != "topic"
        }
        plan = replace(plan, sinks=silver)
    manifests = Manifests(state)
    earliest = replace(pipeline.source, starting_offsets="earliest")
    origin = manifests.origin() or manifests.begin(starts(earliest))
    return Engine(plan, identity, manifests, origin, is_ordered=False)


def _slices(spark: SparkSession, engine: Engine, until: Offsets, told: Told) -> dict[str, int]:
    rows: dict[str, int] = {}
    begin = engine.ends()
    while (end := _next_slice(engine.pipeline, begin, until)) != begin:
        metrics = engine.run(_read(spark, engine.pipeline, begin, end), end)
        if metrics is not None:
            told(metrics)
            for layer, count in metrics.rows.items():
                rows[layer] = rows.get(layer, 0) + count
        begin = end
    return rows


def _next_slice(pipeline: Pipeline, begin: Offsets, until: Offsets) -> Offsets:
    """Return the end of the next slice: the bound on records, shared by the partitions."""
    partitions = sum(len(one) for one in until.values())
    step = max(pipeline.source.max_offsets_per_trigger // max(partitions, 1), 1)
    return {
        topic: {
            partition: min(begin.get(topic, {}).get(partition, 0) + step, end)
            if begin.get(topic, {}).get(partition, 0) < end
            else begin.get(topic, {}).get(partition, 0)
            for partition, end in ends.items()
        }
        for topic, ends in until.items()
    }


def _read(spark: SparkSession, pipeline: Pipeline, begin: Offsets, end: Offsets) -> StoredRows:
    given = read_options(pipeline.source, begin)
    ends = {topic: dict(partitions) for topic, partitions in end.items()}
    for topic, partitions in json.loads(given["startingOffsets"]).items():
        for partition, at in partitions.items():
            # Partitions that came to be later have nothing to be read here.
            ends.setdefault(topic, {}).setdefault(partition, at)
    given["endingOffsets"] = json.dumps(ends, sort_keys=True)
    options = ReadOptions.of(given)
    return StoredRows(spark, options, BatchReader(options).partitions())


def _refuse_upsert(pipeline: Pipeline, what: str) -> None:
    if pipeline.silver.upsert():
        raise ConfigError(
            f"pipeline {pipeline.name!r}: {what}: its rows replace others, and older ones must not"
            " replace newer ones. Declare another pipeline with tables of its own that begins at"
            " earliest, and use those when it has caught up"
        )
