"""A topic that is deleted and created again is a new topic for a pipeline."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rookery.client.client import Client
from rookery.errors import Conflict
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import Manifests
from rookery.pipeline.metrics import BatchMetrics
from rookery.pipeline.positions import lag
from rookery.pipeline.reprocess.backfill import backfill
from rookery.pipeline.reprocess.rebuild import rebuild
from rookery.pipeline.run import BatchPace, run_pipeline
from rookery.testing.brokers import Host
from tests.pipeline.logs import Log
from tests.pipeline.test_run import DECLARED, NOW, birds, declared, delete_before, table

_FISH = '[topics.fish]\nvalue = "json"\nschema = "id long, name string"\n\n[silver.checks]'
BOTH = DECLARED.replace('["birds"]', '["birds", "fish"]').replace("[silver.checks]", _FISH)


async def _delete(log: Log, folder: Path, topic: str) -> None:
    with Host(folder / "deleting-it", store=log.store) as host:
        async with Client(host.bootstrap) as client:
            await client.admin.delete_topics([topic])
        host.stop()


def skipping(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, source=replace(pipeline.source, on_data_loss="skip"))


@pytest.mark.parametrize("count", [10, 40], ids=["shorter", "longer"])
def test_recreated_topic_is_read_from_its_start(
    spark: SparkSession, log: Log, tmp_path: Path, count: int
) -> None:
    log.write("birds", birds(0, 20))
    pipeline = declared(tmp_path, log)
    run_pipeline(spark, pipeline, NOW)
    asyncio.run(_delete(log, tmp_path, "birds"))
    log.write("birds", birds(100, count))

    with pytest.raises(Conflict, match="topic birds was deleted and created again"):
        run_pipeline(spark, pipeline, NOW)
    last = Manifests(pipeline.state).last()
    assert last is not None
    assert sum(lag(pipeline.source, last.reached).values()) == count
    run_pipeline(spark, skipping(pipeline), NOW)
    log.write("birds", birds(100 + count, 5))
    run_pipeline(spark, pipeline, NOW)

    expected = [*range(20), *range(100, 105 + count)]
    assert [row[0] for row in table(pipeline, "silver")] == expected
    with pytest.raises(Conflict, match="birds was deleted and created again"):
        rebuild(spark, pipeline)
    rebuild(spark, skipping(pipeline))
    assert [row[0] for row in table(pipeline, "silver")] == expected[20:]


def test_backfill_does_not_read_a_recreated_topic(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.write("birds", birds(0, 20))
    pipeline = declared(tmp_path, log)
    late = replace(pipeline, source=replace(pipeline.source, starting_offsets="latest"))
    run_pipeline(spark, late, NOW)
    asyncio.run(_delete(log, tmp_path, "birds"))
    log.write("birds", birds(100, 30), partitions=1)

    with pytest.raises(Conflict, match="birds was deleted and created again"):
        backfill(spark, skipping(late))
    assert Manifests(f"{pipeline.state}/backfill").last() is None


def test_rebuild_does_not_drop_rows_of_deleted_records(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.write("birds", birds(0, 20))
    pipeline = declared(tmp_path, log)
    run_pipeline(spark, pipeline, NOW)
    asyncio.run(delete_before(log, tmp_path, 3))

    with pytest.raises(Conflict, match=r"birds-0 offsets 0 to 2, birds-1 offsets 0 to 2 can no"):
        rebuild(spark, pipeline)
    assert [row[0] for row in table(pipeline, "silver")] == list(range(20))
    rebuild(spark, skipping(pipeline))
    assert [row[0] for row in table(pipeline, "silver")] == list(range(6, 20))


def test_run_continues_with_other_topics_if_allowed(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.write("birds", birds(0, 10))
    log.write("fish", birds(100, 10))
    pipeline = skipping(declared(tmp_path, log, BOTH))
    pace = BatchPace(interval_ms=100)
    told: list[BatchMetrics] = []

    def tell(metrics: BatchMetrics) -> None:
        told.append(metrics)
        if metrics.batch == 0:
            asyncio.run(_delete(log, tmp_path, "fish"))
            log.write("birds", birds(10, 10))
        else:
            pace.end.set()

    run_pipeline(spark, pipeline, pace, tell)

    assert [metrics.batch for metrics in told] == [0, 1]
    assert told[1].lag == {"birds-0": 0, "birds-1": 0}
    assert [row[0] for row in table(pipeline, "silver")] == [*range(20), *range(100, 110)]


def test_topic_declared_again_resumes_at_its_offset(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.write("birds", birds(0, 10))
    log.write("fish", birds(100, 10))
    run_pipeline(spark, declared(tmp_path, log, BOTH), NOW)
    log.write("birds", birds(10, 10))
    log.write("fish", birds(110, 10))
    alone = declared(tmp_path, log)
    run_pipeline(spark, alone, NOW)
    with pytest.raises(
        Conflict, match=r"topic fish can no longer be read, or are no longer declared"
    ):
        rebuild(spark, alone)
    pipeline = declared(tmp_path, log, BOTH)
    run_pipeline(spark, pipeline, NOW)

    expected = [*range(20), *range(100, 120)]
    assert [row[0] for row in table(pipeline, "silver")] == expected
    rebuild(spark, pipeline)
    assert [row[0] for row in table(pipeline, "silver")] == expected


def test_state_without_topic_ids_continues(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.write("birds", birds(0, 20))
    pipeline = declared(tmp_path, log)
    run_pipeline(spark, pipeline, NOW)
    for path in Path(pipeline.state.removeprefix("file://")).rglob("*.json"):
        text = path.read_text()
        cut = text.find(',"topics":')
        if cut > 0:
            path.write_text(text[:cut] + "}")
    last = Manifests(pipeline.state).last()
    assert last is not None
    assert not last.topics
    log.write("birds", birds(20, 5))
    run_pipeline(spark, pipeline, NOW)
    assert [row[0] for row in table(pipeline, "silver")] == list(range(25))
    last = Manifests(pipeline.state).last()
    assert last is not None
    assert list(last.topics) == ["birds"]
