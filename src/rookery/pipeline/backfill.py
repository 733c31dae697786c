"""What a pipeline did not read: the records before its origin, or all of them once more.

Both go through slices of offsets, each a batch of its own with a manifest, so that a run that was
interrupted goes on. A backfill adds to the tables, under a name of its own. A rebuild stages all,
and then becomes one batch of the pipeline itself, whose files are all of each silver table: who
reads sees the old table or the new one. A pipeline that runs meanwhile wins or stops, never both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rookery.errors import ConfigError, Conflict
from rookery.pipeline.engine import Engine, Plan
from rookery.pipeline.manifests import BACKFILL, Manifest, Manifests, Offsets, Reached, Staged
from rookery.pipeline.metrics import BatchMetrics
from rookery.pipeline.positions import check_same, starts
from rookery.pipeline.reread import rows_between
from rookery.pipeline.run import open_engine, reading_again
from rookery.pipeline.spec import Pipeline
from rookery.tables.folder import below
from rookery.tables.port import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = Callable[[BatchMetrics], None]

_SHOWN: Final = 5


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
    engine.reread = reading_again(spark, engine)
    engine.recover()
    return _slices(spark, engine, origin.reached, told)


def rebuild(spark: SparkSession, pipeline: Pipeline, told: Told = lambda _: None) -> dict[str, int]:
    """Compute the silver tables anew, up to where the pipeline is, and swap them.

    Raises:
        ConfigError: the pipeline has not run, or its rows replace others.
        Conflict: the pipeline ran meanwhile: stop it, and call this again; or records are gone
            from the log whose rows the tables have.
    """
    _refuse_upsert(pipeline, "rebuild")
    live = open_engine(pipeline)
    if live.last is None:
        raise ConfigError(f"pipeline {pipeline.name!r} has no batch yet; run it first")
    _check_whole(live)
    batch = live.last.batch + 1
    staging = _engine(pipeline, below(pipeline.state, f"rebuild-{batch}"), pipeline.name)
    staging.is_staging = True
    staging.recover()
    rows = _slices(spark, staging, live.reached(), told)
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
    origin = manifests.origin() or manifests.begin(*_log_start(pipeline))
    return Engine(plan, identity, manifests, origin, is_ordered=False)


def _log_start(pipeline: Pipeline) -> Reached:
    return starts(replace(pipeline.source, starting_offsets="earliest"))


def _check_whole(live: Engine) -> None:
    """See whether the log still has all that the silver tables were made of.

    Raises:
        Conflict: it has not, and lost records are no reason to go on.
    """
    pipeline = live.pipeline
    if pipeline.source.on_data_loss == "skip":
        return
    what = f"pipeline {pipeline.name!r}: rebuild"
    first = Manifests(below(pipeline.state, BACKFILL)).origin() or live.origin
    check_same(pipeline.source, first.topics, what)
    gone = [
        f"{topic}-{partition} offsets {known} to {begin - 1}"
        for topic, begins in _log_start(pipeline).ends.items()
        for partition, begin in begins.items()
        if begin > (known := first.starts.get(topic, {}).get(partition, 0))
    ]
    gone += sorted(f"topic {one}" for one in live.ends() if one not in pipeline.source.topics)
    if gone:
        raise Conflict(
            f"{what}: {', '.join(gone[:_SHOWN])}{' and more' if len(gone) > _SHOWN else ''} can no"
            " longer be read, or are not declared any more: their rows would vanish from silver."
            ' If they may, set on-data-loss = "skip"'
        )


def _slices(spark: SparkSession, engine: Engine, until: Reached, told: Told) -> dict[str, int]:
    counts: dict[str, int] = {}
    begin = engine.ends()
    wanted = {one: until.ends[one] for one in engine.pipeline.source.topics if one in until.ends}
    while (end := _next_slice(engine.pipeline, begin, wanted)) != begin:
        reached = Reached(end, {**engine.reached().topics, **until.topics})
        rows = rows_between(
            spark, engine.pipeline, Reached(begin, engine.reached().topics), reached
        )
        metrics = engine.run(rows, reached)
        if metrics is not None:
            told(metrics)
            for layer, count in metrics.rows.items():
                counts[layer] = counts.get(layer, 0) + count
        begin = end
    return counts


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


def _refuse_upsert(pipeline: Pipeline, what: str) -> None:
    if pipeline.silver.upsert():
        raise ConfigError(
            f"pipeline {pipeline.name!r}: {what}: its rows replace others, and older ones must not"
            " replace newer ones. Declare another pipeline with tables of its own that begins at"
            " earliest, and use those when it has caught up"
        )
