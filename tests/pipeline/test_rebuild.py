"""Rebuilds of silver: their records, and commands before, after and between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rookery.errors import ConfigError, Conflict
from rookery.pipeline.batch.engine import BatchPlan
from rookery.pipeline.declaration.load import load
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.metrics import BatchMetrics, OnBatch
from rookery.pipeline.proof import prove_tables
from rookery.pipeline.reprocess.backfill import backfill
from rookery.pipeline.reprocess.rebuild import rebuild
from rookery.pipeline.reprocess.replay import replay_dead_letters
from rookery.pipeline.run import run_pipeline
from rookery.pipeline.upkeep import keep_up
from tests.pipeline.logs import Log, Message
from tests.pipeline.test_engine import Later
from tests.pipeline.test_layers import NOW, declared, message, rows

LATEST = 'starting-offsets = "latest"\nmax-offsets-per-trigger = 4'
CHECK = '[silver.checks]\nknown = "{}"\n'
DAYS_8 = 8 * 24 * 3600 * 1000


class _StoppedError(Exception):
    pass


def checked(folder: Path, log: Log, check: str = "true") -> Pipeline:
    return declared(folder, log, "id long", CHECK.format(check), source=LATEST)


def begun(spark: SparkSession, log: Log, pipeline: Pipeline) -> None:
    """Let there be 8 records before the origin of a pipeline, and 8 after it."""
    log.write("birds", [message(number) for number in range(8)])
    run_pipeline(spark, pipeline, NOW)
    log.write("birds", [message(number) for number in range(8, 16)])
    run_pipeline(spark, pipeline, NOW)


def ids(pipeline: Pipeline) -> list[object]:
    return [row[0] for row in rows(pipeline, "silver")]


def stop_at(batch: int) -> OnBatch:
    def stop(metrics: BatchMetrics) -> None:
        if metrics.batch == batch:
            raise _StoppedError

    return stop


def test_records_before_the_origin_are_left_to_a_backfill(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    pipeline = checked(tmp_path, log)
    begun(spark, log, pipeline)

    rebuild(spark, pipeline)
    assert ids(pipeline) == list(range(8, 16))
    with pytest.raises(_StoppedError):
        backfill(spark, pipeline, stop_at(0))
    rebuild(spark, pipeline)
    assert ids(pipeline) == [*range(4), *range(8, 16)]
    backfill(spark, pipeline)
    assert ids(pipeline) == list(range(16))
    rebuild(spark, pipeline)
    assert backfill(spark, pipeline) == {}
    assert ids(pipeline) == list(range(16))


def test_dead_letters_fixed_by_a_rebuild_are_not_replayed_and_others_are(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    strict = checked(tmp_path, log, "id % 4 <> 1")
    begun(spark, log, strict)
    backfill(spark, strict)
    replay_dead_letters(spark, strict)
    dead = len(rows(strict, "dead-letters"))

    better = checked(tmp_path, log, "id <> 5 AND id <> 13")
    rebuild(spark, better)
    assert ids(better) == [number for number in range(16) if number not in (5, 13)]
    assert len(rows(better, "dead-letters")) == dead + 2
    again = replay_dead_letters(spark, better)
    assert (again["silver"], again["dead-letters"]) == (0, 2)
    mended = checked(tmp_path, log, "id <> 13")
    first = replay_dead_letters(spark, mended)
    assert (first["silver"], first["dead-letters"]) == (1, 1)
    log.write("birds", [message(16), message(17)])
    run_pipeline(spark, mended, NOW)  # What a rebuild has done stays known.
    all_good = checked(tmp_path, log)
    assert replay_dead_letters(spark, all_good)["silver"] == 1
    assert ids(all_good) == list(range(18))


def test_rows_that_fail_a_new_check_become_dead_letters(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    begun(spark, log, checked(tmp_path, log))

    stricter = checked(tmp_path, log, "id <> 9")
    rebuild(spark, stricter)
    assert ids(stricter) == [8, *range(10, 16)]
    assert replay_dead_letters(spark, checked(tmp_path, log))["silver"] == 1
    assert ids(stricter) == list(range(8, 16))


def test_interrupted_rebuild_survives_maintenance_and_continues(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    pipeline = checked(tmp_path, log)
    begun(spark, log, pipeline)
    with pytest.raises(_StoppedError):
        rebuild(spark, pipeline, stop_at(1))
    keep_up(pipeline, Later(DAYS_8))

    told: list[BatchMetrics] = []
    rebuild(spark, pipeline, told.append)

    assert told == []  # Both slices were staged.
    assert ids(pipeline) == list(range(8, 16))


def test_interrupted_rebuild_restarts_after_another_change(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    pipeline = checked(tmp_path, log)
    begun(spark, log, pipeline)
    with pytest.raises(_StoppedError):
        rebuild(spark, pipeline, stop_at(1))
    backfill(spark, pipeline)

    rebuild(spark, pipeline)

    assert ids(pipeline) == list(range(16))


def test_rebuild_stops_after_a_concurrent_backfill_or_replay(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    pipeline = checked(tmp_path, log, "id <> 9")
    begun(spark, log, pipeline)

    def fill(metrics: BatchMetrics) -> None:
        if metrics.batch == 1:
            backfill(spark, pipeline)

    with pytest.raises(Conflict, match="a backfill or a replay of it; stop that"):
        rebuild(spark, pipeline, fill)
    with pytest.raises(Conflict, match="a backfill or a replay of it; stop that"):
        rebuild(spark, pipeline, lambda _: _drop(replay_dead_letters(spark, pipeline)))
    assert ids(pipeline) == [*range(9), *range(10, 16)]


def _drop(_: object) -> None:
    """Give nothing back."""


def test_backfill_stops_after_a_concurrent_rebuild(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    pipeline = checked(tmp_path, log)
    begun(spark, log, pipeline)

    with pytest.raises(Conflict, match="silver was rebuilt meanwhile"):
        backfill(spark, pipeline, lambda _: _drop(rebuild(spark, pipeline)))
    backfill(spark, pipeline)
    assert ids(pipeline) == list(range(16))


def test_rebuild_and_backfill_are_refused_with_deduplicated_keys(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    silver = '[silver]\nevent-time = "at"\nwatermark = "10 minutes"\nkeys = ["id"]\ndedupe = true\n'
    pipeline = declared(tmp_path, log, "id long, at timestamp", silver, source=LATEST)
    log.write("birds", [Message(b"{}")])
    run_pipeline(spark, pipeline, NOW)

    with pytest.raises(ConfigError, match="backfill: which keys were seen at that time"):
        backfill(spark, pipeline)
    with pytest.raises(ConfigError, match="rebuild: which keys were seen at that time"):
        rebuild(spark, pipeline)


def test_new_table_is_filled_with_rows_of_another_type(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.write("birds", [message(number) for number in range(4)])
    run_pipeline(spark, declared(tmp_path, log, "id long"), NOW)
    changed = declared(tmp_path, log, "id double")
    with pytest.raises(ConfigError, match=r"silver-parquet.*another location.*--rebuild"):
        prove_tables(BatchPlan.of(changed))

    path = tmp_path / "birds.toml"
    for layer in ("silver", "late"):
        path.write_text(path.read_text().replace(f'"{layer}-parquet"', f'"new-{layer}"'))
    moved = load(path)
    prove_tables(BatchPlan.of(moved))
    rebuild(spark, moved)
    log.write("birds", [message(4)])
    run_pipeline(spark, moved, NOW)

    assert [repr(number) for number in ids(moved)] == ["0.0", "1.0", "2.0", "3.0", "4.0"]
