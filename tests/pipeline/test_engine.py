"""Batches, manifests and what follows when a pipeline's declaration or state changes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rookery.clock import SystemClock
from rookery.errors import ConfigError, Conflict, Unavailable
from rookery.pipeline.batch.engine import BatchEngine, BatchPlan, sink_key
from rookery.pipeline.declaration.load import load
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import Manifests
from rookery.pipeline.metrics import BatchMetrics, MetricsFile, read_metrics
from rookery.pipeline.report import render_report, summarize_batches
from rookery.pipeline.reprocess.rebuildstate import staging_state
from rookery.pipeline.upkeep import keep_up
from rookery.tables.open import open_table
from rookery.tables.port import BatchName
from rookery.testing.wait import wait_until
from tests.pipeline.localrows import LocalRows, bird, raw
from tests.tables.independent import rows_of

DECLARED = """
name = "birds"
[source]
data = "nowhere"
topics = ["birds"]
[topics.birds]
schema = "{schema}"
{rest}
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
[[sinks]]
layer = "silver"
format = "parquet"
location = "silver"
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "dead"
"""
SECOND = '[[sinks]]\nlayer = "silver"\nformat = "delta"\nlocation = "second"\n'


def declared(folder: Path, schema: str = "id long", rest: str = "", more: str = "") -> Pipeline:
    path = folder / "birds.toml"
    text = DECLARED.replace("{schema}", schema).replace("{rest}", rest) + more
    path.write_text(text)
    return load(path)


def engine_of(pipeline: Pipeline) -> BatchEngine:
    manifests = Manifests(pipeline.state)
    origin = manifests.origin() or manifests.begin({"birds": {"0": 0}})
    engine = BatchEngine(BatchPlan.of(pipeline), pipeline.name, manifests, origin)
    engine.recover()
    return engine


def rows(begin: int, count: int) -> Any:
    values = [bird(number) for number in range(begin, begin + count)]
    return LocalRows([raw(values, begin=begin)])


def ids(pipeline: Pipeline, number: int = 1) -> list[object]:
    return [row[0] for row in rows_of(pipeline.sinks[number])]


def test_empty_batch_leaves_no_manifest(tmp_path: Path) -> None:
    engine = engine_of(declared(tmp_path))

    assert engine.run(LocalRows([])) is None  # type: ignore[arg-type] # stands for a DataFrame
    assert engine.manifests.last() is None


def test_second_driver_is_stopped(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    first, second = engine_of(pipeline), engine_of(pipeline)
    first.run(rows(0, 5))

    with pytest.raises(Conflict, match="another run of this pipeline"):
        second.run(rows(0, 5))
    assert ids(pipeline) == list(range(5))


def test_lost_state_is_detected_from_the_tables(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    engine_of(pipeline).run(rows(0, 5))
    (tmp_path / ".rookery").rename(tmp_path / "lost")

    with pytest.raises(ConfigError, match="its state was lost"):
        engine_of(pipeline).run(rows(0, 5))
    assert ids(pipeline) == list(range(5))


def test_table_can_be_added_and_removed(tmp_path: Path) -> None:
    first = engine_of(declared(tmp_path))
    first.run(rows(0, 5))
    wider = declared(tmp_path, more=SECOND)
    engine = engine_of(wider)
    engine.run(rows(5, 5))

    assert ids(wider, 3) == list(range(5, 10))
    with pytest.raises(ConfigError, match="put it back for one run"):
        engine_of(declared(tmp_path))
    engine.finish()
    again = declared(tmp_path)
    engine_of(again).run(rows(10, 1))
    assert ids(again) == list(range(11))


def test_batch_completed_by_recovery_is_reported_once(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    path = tmp_path / "metrics.jsonl"
    engine = engine_of(pipeline)
    engine.hook = stopping("commit silver")
    with pytest.raises(KeyboardInterrupt):
        engine.run(rows(0, 5))

    def recovered(clock: SystemClock) -> list[BatchMetrics]:
        manifests, metrics_file = Manifests(pipeline.state), MetricsFile(path)
        origin = manifests.origin()
        assert origin is not None
        BatchEngine(
            BatchPlan.of(pipeline), "birds", manifests, origin, clock, on_batch=metrics_file.write
        ).recover()
        return list(read_metrics(path))

    batch = recovered(Later())[0]
    assert (batch.batch, batch.is_recovered) == (0, True)
    assert batch.rows == {"bronze": 5, "duplicates": 0, "silver": 5, "late": 0, "dead-letters": 0}
    assert batch.bytes_in > 0
    assert batch.freshness_p50_ms is not None
    assert [name.split()[:2] for name in batch.phases_ms] == [
        ["commit", "bronze"], ["commit", "silver"], ["commit", "dead-letters"],
    ]  # fmt: skip
    assert sum(map(len, batch.files.values())) == 2
    # All tables have it, and so has the file of figures.
    for finished in (Path(pipeline.state) / "finished").glob("*.json"):
        finished.unlink()
    assert len(recovered(SystemClock())) == 1
    path.unlink()
    last = Manifests(pipeline.state).last()
    for finished in (Path(pipeline.state) / "finished").glob("*.json"):
        finished.unlink()
    # It was committed by then: its age is not that of a run weeks after.
    assert last is not None
    assert [metrics.at_ms for metrics in recovered(Later(10**9))] == [last.at]
    assert summarize_batches(list(read_metrics(path)))["batches"] == 1


def stopping(begin: str) -> Callable[[str], None]:
    def stop(step: str) -> None:
        if step.startswith(begin):
            raise KeyboardInterrupt

    return stop


def test_batch_with_a_manifest_is_not_decoded_again(tmp_path: Path) -> None:
    pipeline = declared(tmp_path)
    engine = engine_of(pipeline)

    def stop(step: str) -> None:
        if step.startswith("commit silver"):
            raise KeyboardInterrupt

    engine.hook = stop
    with pytest.raises(KeyboardInterrupt):
        engine.run(rows(0, 5))
    # By this declaration all rows would be dead letters.
    stricter = declared(tmp_path, rest='[silver.checks]\nnone = "false"\n')
    engine = engine_of(stricter)
    engine.run(rows(5, 2))

    assert ids(stricter) == list(range(5))
    assert [row[4] for row in rows_of(stricter.sinks[2])] == [5, 6]


def test_columns_declared_later_are_added(tmp_path: Path) -> None:
    engine_of(declared(tmp_path, "id int")).run(rows(0, 2))
    wider = declared(tmp_path, "id long, name string")
    engine_of(wider).run(rows(2, 1))

    read = rows_of(wider.sinks[1])
    assert [(row[0], row[-1]) for row in read] == [(0, None), (1, None), (2, "bird 2")]


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta", "duckdb"])
def test_columns_unsupported_by_a_table_are_refused_in_time(tmp_path: Path, kind: str) -> None:
    more = f'[[sinks]]\nlayer = "silver"\nformat = "{kind}"\nlocation = "other"\n'
    engine_of(declared(tmp_path, "id int", more=more)).run(rows(0, 2))
    wrong = engine_of(declared(tmp_path, "id string", more=more))

    with pytest.raises(ConfigError, match="'id' is int32 and would become string"):
        wrong.run(rows(2, 1))
    right = declared(tmp_path, "id int, name string", more=more)
    engine_of(right).run(rows(2, 1))
    assert ids(right) == ids(right, 3) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta", "duckdb"])
def test_maps_are_written_to_every_kind_of_table(tmp_path: Path, kind: str) -> None:
    more = f'[[sinks]]\nlayer = "silver"\nformat = "{kind}"\nlocation = "other"\n'
    pipeline = declared(tmp_path, "id long, tags map<string, int>", more=more)
    engine = engine_of(pipeline)
    for number in range(3):
        batch: Any = LocalRows([raw([bird(number, tags={"wing": number})], begin=number)])
        engine.run(batch)

    assert [row[1] for row in rows_of(pipeline.sinks[3])] == [
        [("wing", number)] for number in range(3)
    ]


def test_maintenance_of_all_tables_changes_no_rows(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, rest='[upkeep]\nkeep = "0 s"\n')
    engine = engine_of(pipeline)
    for number in range(12):
        engine.run(rows(number, 1))

    done = keep_up(pipeline, Later())

    assert done[pipeline.sinks[1].location].files_compacted == 12
    assert ids(pipeline) == list(range(12))
    engine_of(pipeline).run(rows(12, 1))
    assert ids(pipeline) == list(range(13))


class Later(SystemClock):
    """A clock that is ahead."""

    def __init__(self, ms: int = 60_000) -> None:
        self._ms = ms

    def now_ms(self) -> Any:
        return super().now_ms() + self._ms


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta", "duckdb"])
def test_uncommitted_batch_survives_maintenance(tmp_path: Path, kind: str) -> None:
    more = f'[[sinks]]\nlayer = "silver"\nformat = "{kind}"\nlocation = "other"\n'
    pipeline = declared(tmp_path, rest='[upkeep]\nkeep = "1 day"\n', more=more)
    engine = engine_of(pipeline)
    engine.run(rows(0, 5))

    def stop(step: str) -> None:
        if step.startswith("commit"):
            raise KeyboardInterrupt

    engine.hook = stop
    with pytest.raises(KeyboardInterrupt):
        engine.run(rows(5, 5))
    keep_up(pipeline, Later(60 * 24 * 3600 * 1000))
    engine_of(pipeline)

    assert ids(pipeline) == list(range(10))
    assert ids(pipeline, 3) == list(range(10))


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta", "duckdb"])
def test_staged_rebuild_survives_maintenance(tmp_path: Path, kind: str) -> None:
    more = f'[[sinks]]\nlayer = "silver"\nformat = "{kind}"\nlocation = "other"\n'
    pipeline = declared(tmp_path, rest='[upkeep]\nkeep = "1 day"\n', more=more)
    engine = engine_of(pipeline)
    engine.run(rows(0, 5))
    manifests = _staged_rebuild(pipeline)

    keep_up(pipeline, Later(60 * 24 * 3600 * 1000))

    key = sink_key(pipeline.sinks[3])
    staged = [manifest.sinks[key] for manifest in manifests.all()]
    files = [file for files_of in staged for file in files_of.files]
    name = BatchName(pipeline.name, engine.origin.query, 1)
    open_table(pipeline.sinks[3].table()).replace(name, files, staged[0].arrow_schema())
    assert ids(pipeline, 3) == list(range(4))


def _staged_rebuild(pipeline: Pipeline) -> Manifests:
    manifests = Manifests(staging_state(pipeline.state, 1, "digest"))
    origin = manifests.begin({"birds": {"0": 0}})
    engine = BatchEngine(BatchPlan.of(pipeline), pipeline.name, manifests, origin, is_staging=True)
    engine.run(rows(0, 2))
    engine.run(rows(2, 2))
    return manifests


def test_failed_task_leaves_no_waiting_thread(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, more=SECOND)
    engine = engine_of(pipeline)
    # A file in the place of a folder: nothing can be staged there.
    (tmp_path / "second").mkdir()
    (tmp_path / "second/data").write_text("in the way")

    with pytest.raises(Unavailable):
        engine.run(rows(0, 5))
    assert engine.manifests.last() is None
    wait_until(
        lambda: [thread.name for thread in enumerate_threads() if "_run" in thread.name],
        "the other sinks end",
        accepts=operator.not_,
    )
    (tmp_path / "second/data").unlink()
    engine.run(rows(0, 5))
    assert ids(pipeline) == ids(pipeline, 3) == list(range(5))


def test_figures_are_stored_as_json_lines_and_plotted(tmp_path: Path) -> None:
    engine = engine_of(declared(tmp_path))
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    for number in range(3):
        metrics = engine.run(rows(number * 10, 10))
        assert metrics is not None
        metrics.lag = {"birds-0": 20 - number * 10}
        metrics.alerts = ["type <changed>"]
        file.write(metrics)
    with path.open("a") as cut:
        cut.write('{"pipeline": "bi')

    batches = list(read_metrics(path))
    text = path.with_suffix(".prom").read_text()
    page = render_report("birds <&>", batches)

    assert [batch.batch for batch in batches] == [0, 1, 2]
    assert summarize_batches(batches)["rows"] == {
        "bronze": 30, "duplicates": 0, "silver": 30, "late": 0, "dead-letters": 0,
    }  # fmt: skip
    assert 'rookery_pipeline_rows_total{pipeline="birds",layer="silver"} 30\n' in text
    assert 'rookery_pipeline_lag{pipeline="birds",partition="birds-0"} 0\n' in text
    assert 'rookery_pipeline_alerts{pipeline="birds"} 1\n' in text
    assert summarize_batches(batches)["alerts"] == ["type <changed>"]
    assert "type &lt;changed&gt;" in page
    assert page.count("<svg") == 4
    assert "birds &lt;&amp;&gt;" in page
    assert "http" not in page
    assert "<script" not in page
    MetricsFile(path).write(BatchMetrics("birds", 3, 1, rows={"silver": 1}))
    text = path.with_suffix(".prom").read_text()
    assert 'rookery_pipeline_rows_total{pipeline="birds",layer="silver"} 31\n' in text


def test_prometheus_file_has_exact_numbers(tmp_path: Path) -> None:
    metrics = BatchMetrics(
        "birds", 1_234_567, 1_794_882_061_605,
        rows={"silver": 12_345_678_901}, bytes_in=9_876_543_210, watermark_ms=1_794_881_461_604,
        files={"silver parquet /lake": [123_456_789, 11], "late parquet /late": []},
    )  # fmt: skip
    MetricsFile(tmp_path / "metrics.jsonl").write(metrics)

    text = (tmp_path / "metrics.prom").read_text()
    samples = {
        sample.name.removeprefix("rookery_pipeline_") + sample.labels.get("table", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples == {
        "alerts": 0, "batches_total": 1, "bytes_total": 9_876_543_210, "last_batch": 1_234_567,
        "last_commit_seconds": 1_794_882_061.605, "watermark_seconds": 1_794_881_461.604,
        "rows_total": 12_345_678_901,
        "new_filessilver parquet /lake": 2, "new_fileslate parquet /late": 0,
        "new_file_bytessilver parquet /lake": 123_456_800, "new_file_byteslate parquet /late": 0,
        "largest_new_file_bytessilver parquet /lake": 123_456_789,
        "largest_new_file_byteslate parquet /late": 0,
    }  # fmt: skip


def test_figures_file_is_bounded(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl", max_bytes=2_000)
    for number in range(100):
        file.write(BatchMetrics("birds", number, number))

    batches = [metric.batch for metric in read_metrics(tmp_path / "metrics.jsonl")]
    assert batches == list(range(batches[0], 100))
    assert 8 < len(batches) < 40


def test_report_without_figures_is_rendered() -> None:
    assert "There are no figures yet" in render_report("birds", [])
