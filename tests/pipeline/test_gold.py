"""Gold is computed again only if silver or its SQL has changed."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.gold import make_gold
from rookery.pipeline.reprocess.backfill import backfill
from rookery.pipeline.reprocess.rebuild import rebuild
from rookery.pipeline.reprocess.replay import replay_dead_letters
from rookery.pipeline.run import open_engine, run_pipeline
from tests.pipeline.logs import Log
from tests.pipeline.test_layers import NOW, declared, message
from tests.tables.independent import rows_of

GOLD = """
[[gold]]
name = "how many"
location = "gold"
sql = "SELECT {} AS n FROM silver"
[silver.checks]
known = "{}"
"""


def counted(folder: Path, log: Log, what: str = "count(*)", check: str = "id <> 5") -> Pipeline:
    source = 'starting-offsets = "latest"'
    return declared(folder, log, "id long", GOLD.format(what, check), source=source)


def made(spark: SparkSession, pipeline: Pipeline) -> object:
    """Return what is in the gold table if it is made, and see that it is not made again."""
    engine = open_engine(pipeline)
    names = make_gold(spark, engine)
    assert make_gold(spark, engine) == []
    return rows_of(pipeline.gold[0].table())[0][0] if names else None


def test_gold_follows_every_change_of_silver(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    pipeline = counted(tmp_path, log)
    log.write("birds", [message(number) for number in range(4)])
    run_pipeline(spark, pipeline, NOW)
    assert made(spark, pipeline) is None
    backfill(spark, pipeline)
    assert made(spark, pipeline) == 4
    log.write("birds", [message(number) for number in range(4, 8)])
    run_pipeline(spark, pipeline, NOW)
    assert made(spark, pipeline) == 7
    assert made(spark, pipeline) is None

    mended = counted(tmp_path, log, check="true")
    replay_dead_letters(spark, mended)
    assert made(spark, mended) == 8
    stricter = counted(tmp_path, log, check="id > 1")
    rebuild(spark, stricter)
    assert made(spark, stricter) == 6
    total = counted(tmp_path, log, "sum(id)", "id > 1")
    assert made(spark, total) == sum(range(2, 8))
    assert made(spark, stricter) == 6
    assert len(list((tmp_path / ".rookery/birds/gold").rglob("*.json"))) == 1
