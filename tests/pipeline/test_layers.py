"""What a pipeline does after its first batch: replays, backfills, gold, late rows, upserts."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from rookery.pipeline.declaration.load import load
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.gold import make_gold
from rookery.pipeline.reprocess.backfill import backfill
from rookery.pipeline.reprocess.rebuild import rebuild
from rookery.pipeline.reprocess.replay import replay_dead_letters
from rookery.pipeline.run import BatchPace, run_pipeline
from tests.pipeline.logs import Log, Message
from tests.tables.independent import rows_of

NOW = BatchPace(is_available_now=True)
SINK = '[[sinks]]\nlayer = "{0}"\nformat = "{1}"\nlocation = "{0}-{1}"\n'
HEAD = """
name = "birds"
[source]
store = "{store}"
topics = ["birds"]
{source}
[topics.birds]
schema = "{schema}"
"""


def declared(
    folder: Path,
    log: Log,
    schema: str,
    rest: str = "",
    *,
    source: str = "",
    silver: str = "parquet",
) -> Pipeline:
    text = HEAD.replace("{store}", log.store).replace("{schema}", schema)
    text = text.replace("{source}", source) + rest
    text += SINK.format("bronze", "parquet") + SINK.format("silver", silver)
    text += SINK.format("dead-letters", "parquet") + SINK.format("late", "parquet")
    path = folder / "birds.toml"
    path.write_text(text)
    return load(path)


def rows(pipeline: Pipeline, layer: str) -> list[tuple[object, ...]]:
    return rows_of(next(sink for sink in pipeline.sinks if sink.layer == layer))


def message(number: int, **more: object) -> Message:
    return Message(json.dumps({"id": number, **more}).encode(), b"%d" % number)


def test_dead_letters_are_replayed_after_the_cause_is_fixed(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.write("birds", [message(1, id="1"), message(2, id="x2"), message(3, id="y"), Message(b"{")])
    check = '[silver.checks]\nknown = "{}"\n'
    strict = declared(tmp_path, log, "id string", check.format("id IN ('1')"))
    run_pipeline(spark, strict, NOW)
    assert [row[0] for row in rows(strict, "silver")] == ["1"]
    assert len(rows(strict, "dead-letters")) == 3

    mended = declared(tmp_path, log, "id string", check.format("id IN ('1', 'x2')"))
    first = replay_dead_letters(spark, mended)
    again = replay_dead_letters(spark, mended)

    assert (first["silver"], first["dead-letters"]) == (1, 2)
    assert (again["silver"], again["dead-letters"]) == (0, 2)
    assert [row[0] for row in rows(mended, "silver")] == ["1", "x2"]
    assert sorted(str(row[12]) for row in rows(mended, "dead-letters")) == [
        "0", "0", "1", "1", "None", "None", "None",
    ]  # fmt: skip


def test_backfill_adds_earlier_records_and_silver_can_be_rebuilt(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    gold = (
        '[[gold]]\nname = "total"\nlocation = "gold"\n'
        'sql = "SELECT count(*) AS n, sum(id) AS total FROM silver"\n'
    )
    source = 'starting-offsets = "latest"\nmax-offsets-per-trigger = 10'
    log.write("birds", [message(number) for number in range(30)])
    pipeline = declared(tmp_path, log, "id long", gold, source=source, silver="iceberg")
    run_pipeline(spark, pipeline, NOW)
    log.write("birds", [message(number) for number in range(30, 40)])
    engine = run_pipeline(spark, pipeline, NOW)
    assert make_gold(spark, engine) == ["total"]
    assert make_gold(spark, engine) == []
    assert rows_of(pipeline.gold[0].table()) == [(10, sum(range(30, 40)))]

    counts = backfill(spark, pipeline)
    assert backfill(spark, pipeline) == {}
    assert counts["silver"] == 30
    assert [row[0] for row in rows(pipeline, "silver")] == list(range(40))
    assert len(rows(pipeline, "bronze")) == 40

    wider = declared(tmp_path, log, "id long, name string", gold, source=source, silver="iceberg")
    rebuild(spark, wider)
    assert [row[0] for row in rows(wider, "silver")] == list(range(40))
    log.write("birds", [message(40, name="last")])
    engine = run_pipeline(spark, wider, NOW)
    assert [row[0] for row in rows(wider, "silver")] == list(range(41))
    assert make_gold(spark, engine) == ["total"]
    assert rows_of(wider.gold[0].table()) == [(41, sum(range(41)))]


def at(minute: int) -> str:
    return f"2026-01-01T10:{minute:02}:00Z"


def test_late_rows_are_put_aside_and_keys_are_deduplicated_within_the_watermark(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    silver = '[silver]\nevent-time = "at"\nwatermark = "10 minutes"\nkeys = ["id"]\ndedupe = true\n'
    pipeline = declared(tmp_path, log, "id long, at timestamp", silver)
    log.write("birds", [message(1, at=at(0)), message(1, at=at(1)), message(2, at=at(30))])
    run_pipeline(spark, pipeline, NOW)
    log.write(
        "birds",
        [
            message(3, at=at(19)),
            message(4, at=at(20)),
            message(2, at=at(31)),
            message(1, at=at(25)),
        ],
    )
    engine = run_pipeline(spark, pipeline, NOW)

    # 1 was forgotten with the watermark at 10:20; 2 was not; 3 is late by a minute.
    assert sorted(row[0] for row in rows(pipeline, "silver")) == [1, 1, 2, 4]  # type: ignore[type-var] # numbers
    assert [row[0] for row in rows(pipeline, "late")] == [3]
    assert len(rows(pipeline, "bronze")) == 7
    assert engine.last is not None
    watermark = pa.scalar(engine.last.watermark_ms, pa.timestamp("ms", tz="UTC")).as_py()
    assert f"{watermark:%H:%M}" == "10:21"


def test_change_events_keep_a_table_equal_to_its_source(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    schema = "op string, before struct<id long, name string>, after struct<id long, name string>"
    silver = '[silver]\nmode = "upsert"\nkeys = ["id"]\ndebezium = true\n'
    pipeline = declared(tmp_path, log, schema, silver, silver="delta")

    def change(op: str, before: object, after: object) -> Message:
        data = json.dumps({"op": op, "before": before, "after": after}).encode()
        return Message(data, partition=0)

    first, second = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    log.write("birds", [change("c", None, first), change("c", None, second)])
    run_pipeline(spark, pipeline, NOW)
    renamed = {"id": 1, "name": "A"}
    log.write("birds", [change("u", first, renamed), change("d", second, None), Message(None)])
    run_pipeline(spark, pipeline, NOW)

    assert [row[:2] for row in rows(pipeline, "silver")] == [(1, "A")]
