"""Secrets that are planted in all locations do not show in reprs, errors, logs or reports."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.place import ClusterAddress
from rookery.errors import Error
from rookery.log.origin import LogLocation
from rookery.pipeline.batch.engine import BatchEngine, BatchPlan
from rookery.pipeline.declaration.load import load
from rookery.pipeline.manifests import Manifests, PipelineOrigin
from rookery.pipeline.metrics import MetricsFile, read_metrics
from rookery.pipeline.report import render_report, summarize_batches
from rookery.tables.folder import TableFolder
from rookery.tables.open import open_table
from rookery.tables.port import TableSpec
from tests.pipeline.test_engine import DECLARED, engine_of, rows

SECRET = "geh3im"  # noqa: S105 (it is to be found nowhere)
# Nothing listens there, and one attempt is enough.
_STORE = (
    f"s3://bucket/log?endpoint=http://127.0.0.1:9&allow_http=true&access_key_id=me"
    f"&secret_access_key={SECRET}&timeout_ms=300&deadline_ms=300"
)
_DEAD, _SILVER, _GOLD = (_STORE.replace("/log", f"/{name}") for name in ("dead", "silver", "gold"))
_ETCD = f"etcd://me:{SECRET}@127.0.0.1:9/name?timeout=0.3"
_DECLARED = f"""
name = "birds"
state = "{_STORE}"
[source]
store = "{_STORE}"
cluster = "{_ETCD}"
topics = ["birds"]
[topics.birds]
schema = "id long"
registry = "http://me:{SECRET}@127.0.0.1:9"
registry-user = "me"
registry-password = "{SECRET}"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "{_STORE}"
[[sinks]]
layer = "silver"
format = "iceberg"
location = "{_SILVER}"
options = {{ catalog = "postgresql://me:{SECRET}@127.0.0.1:9/db", token = "{SECRET}" }}
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "{_DEAD}"
[[gold]]
name = "counts"
sql = "SELECT count(*) AS n FROM silver"
location = "{_GOLD}"
"""  # noqa: S608


def test_secrets_are_not_shown_by_repr(tmp_path: Path) -> None:
    path = tmp_path / "birds.toml"
    path.write_text(_DECLARED)
    pipeline = load(path)
    plan, manifests, sink = BatchPlan.of(pipeline), Manifests(pipeline.state), pipeline.sinks[1]
    engine = BatchEngine(plan, "birds", manifests, PipelineOrigin("query", 0, {}))
    things = [
        pipeline, plan, engine, manifests, sink.table(),
        TableFolder(sink.location), pipeline.source.place(), pipeline.source.place().origin(),
        LogLocation(store=_STORE, cluster=_ETCD), BrokerSettings(store=_STORE, cluster=_ETCD),
    ]  # fmt: skip
    for thing in things:
        assert SECRET not in f"{thing!r} {thing}", type(thing)
    assert "secret_access_key=***" in repr(pipeline)
    assert sink.location == _SILVER  # it is there, for the code that opens it


def test_secrets_are_not_written_to_state_figures_and_report(tmp_path: Path) -> None:
    text = (
        DECLARED.replace("{schema}", "id long")
        .replace("{rest}", "")
        .replace('data = "nowhere"', f'store = "{_STORE}"\ncluster = "{_ETCD}"')
    )
    text += f'''
[[sinks]]
layer = "silver"
format = "iceberg"
location = "other"
options = {{ token = "{SECRET}" }}
'''
    path = tmp_path / "birds.toml"
    path.write_text(text)
    engine = engine_of(load(path))
    path.unlink()
    metrics = engine.run(rows(0, 3))
    assert metrics is not None
    with pytest.raises(Error) as failed:
        BlockingLog(ClusterAddress(store=_STORE, cluster=_ETCD))
    metrics.alerts = [str(failed.value)]
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.write(metrics)
    batches = list(read_metrics(tmp_path / "metrics.jsonl"))

    shown = render_report("birds", batches) + repr(summarize_batches(batches))

    assert "127.0.0.1:9" in shown
    assert SECRET not in shown
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"metrics.jsonl", "metrics.prom"} <= {file.name for file in files}
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


@pytest.mark.parametrize(
    "open_it",
    [
        lambda: BlockingLog(ClusterAddress(store=_STORE)),
        lambda: BlockingLog(ClusterAddress(store=_STORE, cluster=_ETCD)),
        lambda: BlockingLog(
            ClusterAddress(store=_STORE, cluster=_ETCD.replace("timeout=0.3", "timeout=x"))
        ),
        lambda: BlockingLog(ClusterAddress(store=_STORE.replace("s3:", "s4:"))),
        lambda: BlockingLog(ClusterAddress(store=_STORE.replace("timeout_ms=300", "timeout_ms=x"))),
        lambda: LogLocation(cluster=_ETCD).check(),
        lambda: TableFolder(_STORE).read("x"),
        lambda: Manifests(_STORE).last(),
        lambda: list(open_table(TableSpec("parquet", _STORE)).read()),
        lambda: open_table(TableSpec("duckdb", _STORE)),
    ],
)
def test_secrets_are_not_shown_in_errors_and_logs(
    open_it: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert callable(open_it)
    with pytest.raises(Error) as failed:
        open_it()
    shown = "".join(map(str, [failed.value, failed.value.__cause__, failed.value.__context__]))
    assert SECRET not in shown
    assert SECRET not in caplog.text
