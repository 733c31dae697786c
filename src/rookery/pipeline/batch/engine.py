"""Driver-side execution of a batch: stage, write the manifest, commit to every table.

This order makes batches exactly-once. Before the manifest exists, the batch has no effect and is
computed again. After that it is only committed, and the commit is retried until it succeeds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Protocol

import pyarrow as pa

from rookery.clock import Clock, SystemClock
from rookery.decode.port import DecoderSettings
from rookery.errors import ConfigError, Gone
from rookery.pipeline.batch.schemagrowth import ChosenSchema, choose, may_grow
from rookery.pipeline.batch.task import REPORT, StageTask, TaskReport
from rookery.pipeline.declaration.columns import sink_schema, table_columns
from rookery.pipeline.declaration.spec import Pipeline, Sink
from rookery.pipeline.manifests import (
    BatchManifest,
    Manifests,
    Offsets,
    PipelineOrigin,
    PipelinePosition,
    StagedFiles,
    batch_name,
)
from rookery.pipeline.metrics import BatchMetrics, Figures, OnBatch, quantile
from rookery.pipeline.reprocess.migration import has_own_columns, migrations, restage_files
from rookery.spark.failures import own_errors
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, BatchTarget, DataFile, Run, here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_TIMES: Final = 100
"""The number of quantiles of record timestamps in a manifest."""

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function that a task applies to its part of a batch."""


class RawRows(Protocol):
    """Raw rows of a batch, with one part per task; a DataFrame satisfies this protocol."""

    def mapInArrow(self, work: Work, schema: str, /) -> DataFrame:  # noqa: N802 (Spark's name)
        """Return the results of applying `work` to each part."""
        ...


Reread = Callable[[PipelinePosition, PipelinePosition], RawRows]
"""Reads the raw rows between two positions again."""

Hook = Callable[[str], None]
"""Called before every step; tests end the process there."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Settings that all batches of a run share."""

    pipeline: Pipeline
    decoders: Mapping[str, tuple[str, DecoderSettings]]
    silver: Mapping[str, pa.Schema]
    sinks: Mapping[int, pa.Schema]
    kind: Literal["batch", "replay"] = "batch"
    chosen: Mapping[str, ChosenSchema] = field(default_factory=dict)
    """By topic, the registry schema that readers use."""
    number: Callable[[int], int] = int
    """Maps a batch to the number that its dead letters carry."""

    @classmethod
    def of(cls, pipeline: Pipeline, before: BatchPlan | None = None) -> BatchPlan:
        """Open every decoder once and check that columns, keys and checks are consistent.

        Args:
            pipeline: the declaration.
            before: the plan of the previous batch, if there was one.

        Raises:
            ConfigError: they are inconsistent.
            Unavailable: a schema registry cannot be reached.
        """
        decoders: dict[str, tuple[str, DecoderSettings]] = {}
        silver: dict[str, pa.Schema] = {}
        chosen: dict[str, ChosenSchema] = {}
        has_silver = bool(pipeline.of("silver"))
        known = before.chosen if before else {}
        for topic in pipeline.source.topics if has_silver else ():
            choice = chosen[topic] = choose(pipeline, topic, silver, known.get(topic))
            decoders[topic] = (pipeline.decode(topic).value, choice.settings)
            silver[topic] = choice.schema
        sinks = {
            number: sink_schema(pipeline, sink, silver)
            for number, sink in enumerate(pipeline.sinks)
            if has_silver or sink.layer == "bronze"
        }
        return cls(pipeline, decoders, silver, sinks, chosen=chosen)

    @property
    def may_grow(self) -> bool:
        """Return whether a schema registry can have added columns."""
        return any(may_grow(self.pipeline.decode(topic)) for topic in self.decoders)

    def check_declared(self, manifest: BatchManifest) -> None:
        """Check that all tables for which a batch has rows are still declared.

        Raises:
            ConfigError: one is not.
        """
        if lost := manifest.sinks.keys() - set(map(sink_key, self.pipeline.sinks)):
            raise ConfigError(
                f"pipeline {self.pipeline.name!r}: batch {manifest.batch} has rows for"
                f" {', '.join(sorted(lost))}, which is no longer declared, and the run that made it"
                " did not end in order: put it back for one run"
            )

    def task(self, name: BatchName, last: BatchManifest | None) -> StageTask:
        """Return the task of a batch that follows `last`."""
        return StageTask(
            self.pipeline,
            name,
            self.decoders,
            self.silver,
            self.sinks,
            last.watermark_ms if last else None,
            last.seen if last else {},
            self.kind,
            self.number(name.batch),
        )


@dataclass(slots=True)
class BatchEngine:
    """Runs the batches of one pipeline sequentially."""

    plan: BatchPlan
    identity: str
    """The name of the pipeline in the commits of tables."""
    manifests: Manifests
    origin: PipelineOrigin
    clock: Clock = field(default_factory=SystemClock)
    hook: Hook = lambda _: None
    last: BatchManifest | None = None
    is_ordered: bool = True
    """Whether records arrive roughly in timestamp order, so that some can be late."""
    is_staging: bool = False
    """Only stage and write manifests; another engine commits them."""
    run_tasks: Run = here
    """Runs the tasks that rewrite files during a commit."""
    on_batch: OnBatch = lambda _: None
    """Receives the metrics of a batch that an earlier run left unfinished."""
    reread: Reread | None = None
    """Reads staged rows again that have expired; None if they cannot be read again."""

    @property
    def pipeline(self) -> Pipeline:
        """The definition that this engine runs."""
        return self.plan.pipeline

    def recover(self) -> None:
        """Commit the last manifest to the tables that lack it."""
        self.last = self.manifests.last()
        for migration in () if self.is_staging else migrations(self.pipeline, self.plan.sinks):
            migration.run()
        if self.last is not None:
            if self.last.query != self.origin.query:
                raise ConfigError(
                    f"pipeline state {self.pipeline.state}: its batches are of query"
                    f" {self.last.query}, its origin is {self.origin.query}: parts of two states"
                )
            if not self.manifests.is_finished(self.last.batch):
                self._finish_last(self.last)
                self.finish()

    def _finish_last(self, manifest: BatchManifest) -> None:
        """Commit and report a batch that an earlier run has staged."""
        metrics = BatchMetrics(self.pipeline.name, manifest.batch, 0, is_recovered=True)
        is_new = self._commit(manifest, metrics)
        if not manifest.replaces and not self.is_staging:
            # If all tables have it, the earlier run committed it soon after it wrote the manifest.
            self._measure(metrics, manifest, self.clock.now_ms() if is_new else manifest.at)
            self.on_batch(metrics)

    def finish(self) -> None:
        """Record that no commit is pending, so that tables can be removed from the declaration."""
        if self.last is not None:
            self.manifests.finish(self.last.batch)

    def ends(self) -> Offsets:
        """Return the start offsets of the next batch."""
        return self.read_position().ends

    def read_position(self) -> PipelinePosition:
        """Return the position of the pipeline."""
        return (self.last or self.origin).reached

    def run(self, rows: RawRows, reached: PipelinePosition | None = None) -> BatchMetrics | None:
        """Process a batch of raw rows; return its metrics, None if it has no rows.

        Args:
            rows: the batch.
            reached: the end of the batch, if known; else after the last row of each partition.
        """
        batch = self.last.batch + 1 if self.last else 0
        metrics = BatchMetrics(self.pipeline.name, batch, 0)
        self._check_columns()
        self.hook("stage")
        with self._measure_phase(metrics, "stage"):
            reports = self._stage_rows(rows, batch)
        if not reports:
            return None
        manifest = self._manifest(batch, reports, reached or self._compute_position(reports))
        self.hook("manifest")
        with self._measure_phase(metrics, "manifest"):
            self.manifests.add(manifest)
        self._commit(manifest, metrics)
        self.last = manifest
        self._measure(metrics, manifest, self.clock.now_ms())
        return metrics

    def _stage_rows(self, rows: RawRows, batch: int) -> list[TaskReport]:
        return _reports(
            self.plan, BatchName(self.identity, self.origin.query, batch), rows, self.last
        )

    def _check_columns(self) -> None:
        """Refuse columns that a table cannot store, while the batch can still be discarded."""
        known = self.last.sinks if self.last else {}
        for number, schema in self.plan.sinks.items():
            sink = self.pipeline.sinks[number]
            before = known.get(sink_key(sink))
            if before is None or before.schema != StagedFiles.of((), schema).schema:
                open_table(sink.table()).check(table_columns(self.pipeline, sink, schema))

    def _manifest(
        self, batch: int, reports: Sequence[TaskReport], reached: PipelinePosition
    ) -> BatchManifest:
        sinks = {}
        for number, schema in self.plan.sinks.items():
            files = tuple(file for report in reports for file in report.files.get(str(number), ()))
            key = self._key(number)
            sinks[key] = StagedFiles.of(files, schema)
        seen = dict(self.last.seen) if self.last else {}
        for report in reports:
            seen.update(report.seen)
        return BatchManifest(
            batch,
            self.origin.query,
            self.clock.now_ms(),
            reached.ends,
            sinks,
            self._watermark_after(reports),
            seen,
            topics=reached.topics,
            rebuilt=self.last.rebuilt if self.last else {},
            figures=_figures(reports),
        )

    def _compute_position(self, reports: Sequence[TaskReport]) -> PipelinePosition:
        ends = {topic: dict(partitions) for topic, partitions in self.ends().items()}
        for report in reports:
            for topic, spans in report.spans.items():
                known = ends.setdefault(topic, {})
                for partition, (_, end) in spans.items():
                    known[partition] = max(known.get(partition, 0), end)
        return PipelinePosition(ends, self.read_position().topics)

    def _watermark_after(self, reports: Sequence[TaskReport]) -> int | None:
        delay = self.pipeline.silver.watermark_ms()
        old = self.last.watermark_ms if self.last else None
        latest = [report.max_event_ms for report in reports if report.max_event_ms is not None]
        if delay is None or not latest or not self.is_ordered:
            return old
        # One wrong clock must not make all other records late.
        new = min(max(latest), self.clock.now_ms()) - delay
        return new if old is None else max(old, new)

    def _commit(self, manifest: BatchManifest, metrics: BatchMetrics) -> bool:
        """Commit a batch to every table that lacks it; return whether any did."""
        if self.is_staging:
            return False
        is_new = False
        name = batch_name(self.identity, manifest)
        self.plan.check_declared(manifest)
        known = {sink_key(sink): sink for sink in self.pipeline.sinks}
        for key, staged in manifest.sinks.items():
            sink = known[key]
            self.hook(f"commit {key}")
            upsert = self.pipeline.silver.upsert() if sink.layer == "silver" else None
            table = open_table(sink.table())
            if has_own_columns(sink):
                staged = restage_files(table, name, staged, self._schema(key))  # noqa: PLW2901
            with self._measure_phase(metrics, f"commit {key}"):
                if key in manifest.replaces:
                    columns = staged.arrow_schema()
                    is_new |= table.replace(name, staged.files, columns, self.run_tasks)
                elif sink.format == "topic":
                    is_new |= self._commit_records(table, manifest, key)
                else:
                    columns = staged.arrow_schema()
                    is_new |= table.commit(name, staged.files, columns, upsert, self.run_tasks)
            metrics.files[key] = [file.bytes for file in staged.files]
        self.hook("done")
        return is_new

    def _commit_records(self, table: BatchTarget, manifest: BatchManifest, key: str) -> bool:
        """Commit to a topic; if the staged records have expired, read and stage them again."""
        name, staged = batch_name(self.identity, manifest), manifest.sinks[key]
        try:
            return table.commit(name, staged.files, staged.arrow_schema())
        except Gone as error:
            if self.reread is None:
                raise
            log.warning("%s: its records are read once more", error)
            files = self._restage(manifest, key, self.reread)
            return table.commit(name, files, staged.arrow_schema())

    def _restage(self, manifest: BatchManifest, key: str, reread: Reread) -> list[DataFile]:
        """Stage a batch again for one of its topics."""
        before = self.manifests.read(manifest.batch - 1) if manifest.batch else None
        rows = reread((before or self.origin).reached, manifest.reached)
        sinks = {n: sink for n, sink in self.plan.sinks.items() if self._key(n) == key}
        name = batch_name(self.identity, manifest)
        reports = _reports(replace(self.plan, sinks=sinks), name, rows, before)
        return [file for report in reports for files in report.files.values() for file in files]

    def _schema(self, key: str) -> pa.Schema:
        return next(sink for number, sink in self.plan.sinks.items() if self._key(number) == key)

    def _key(self, number: int) -> str:
        return sink_key(self.pipeline.sinks[number])

    def _measure(self, metrics: BatchMetrics, manifest: BatchManifest, at_ms: int) -> None:
        figures = manifest.figures or self._count_rows(manifest)
        metrics.at_ms = at_ms
        metrics.watermark_ms = manifest.watermark_ms
        metrics.alerts = [
            schema.left_out for schema in self.plan.chosen.values() if schema.left_out
        ]
        metrics.rows = dict(figures.rows)
        metrics.bytes_in = figures.bytes_in
        ages = [(max(at_ms - time, 0), 1.0) for time in figures.times_ms]
        metrics.freshness_p50_ms = quantile(ages, 0.5)
        metrics.freshness_p99_ms = quantile(ages, 0.99)

    def _count_rows(self, manifest: BatchManifest) -> Figures:
        """Return row counts from the files of a batch that an earlier release staged."""
        rows: dict[str, int] = {}
        for sink in self.pipeline.sinks:
            staged = manifest.sinks.get(sink_key(sink))
            if staged is not None and not sink.topics:
                rows.setdefault(sink.layer, sum(file.rows for file in staged.files))
        return Figures(rows, 0, ())

    @contextmanager
    def _measure_phase(self, metrics: BatchMetrics, phase: str) -> Iterator[None]:
        begin = self.clock.monotonic_ms()
        yield
        metrics.phases_ms[phase] = self.clock.monotonic_ms() - begin


def _figures(reports: Sequence[TaskReport]) -> Figures:
    rows: dict[str, int] = {}
    times: list[tuple[int, float]] = []
    for report in reports:
        for layer, count in report.rows.items():
            rows[layer] = rows.get(layer, 0) + count
        weight = report.rows.get("bronze", 0) / max(len(report.ages), 1)
        times += [(time, weight) for time in report.ages]
    shares = [quantile(times, (number + 0.5) / _TIMES) for number in range(_TIMES)]
    return Figures(
        rows, sum(report.bytes for report in reports), [time for time in shares if time is not None]
    )


def _reports(
    plan: BatchPlan, name: BatchName, rows: RawRows, before: BatchManifest | None
) -> list[TaskReport]:
    """Run the tasks of a batch, which stage its rows; return their reports."""
    with own_errors():
        results = rows.mapInArrow(plan.task(name, before), REPORT).collect()
    return [TaskReport.read(row["report"]) for row in results]


def sink_key(sink: Sink) -> str:
    """Return the name of a table in manifests, without secrets in its URL."""
    place = sink.location.partition("?")[0]
    return " ".join(part for part in (sink.layer, sink.format, place, sink.name) if part)
