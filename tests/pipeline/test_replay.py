"""Replays of dead letters: which ones, with which options, and after which batches."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rookery.direct import blockinglog
from rookery.direct.rowstager import abort
from rookery.pipeline.batch.engine import BatchEngine
from rookery.pipeline.declaration.load import load
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import Manifests, PipelinePosition
from rookery.pipeline.metrics import BatchMetrics
from rookery.pipeline.reprocess.backfill import backfill
from rookery.pipeline.reprocess.deadletters import DeadLetterMarks, complete
from rookery.pipeline.reprocess.replay import open_replays, replay_dead_letters
from rookery.pipeline.run import run_pipeline
from rookery.testing.brokers import Host
from tests.pipeline.localrows import LocalRows, bird, raw
from tests.pipeline.logs import Log
from tests.pipeline.test_engine import declared as without_log
from tests.pipeline.test_engine import engine_of
from tests.pipeline.test_layers import NOW, SINK, declared, message, rows
from tests.pipeline.test_topics import consumed
from tests.tables.independent import rows_of

CHECK = '[silver.checks]\nknown = "{}"\n'
DEDUPED = """
[silver]
event-time = "at"
watermark = "10 minutes"
keys = ["id"]
dedupe = true
[silver.checks]
known = "{}"
"""


class _KilledError(Exception):
    pass


def ids(pipeline: Pipeline) -> list[object]:
    return [row[0] for row in rows(pipeline, "silver")]


def test_batches_with_incomplete_dead_letters_are_not_replayed_yet(tmp_path: Path) -> None:
    pipeline = without_log(tmp_path)
    engine = engine_of(pipeline)
    assert complete(pipeline) == DeadLetterMarks()
    engine.run(_broken(0))
    assert complete(pipeline) == DeadLetterMarks(0)

    def stop(step: str) -> None:
        if step.startswith("commit dead-letters"):
            raise _KilledError

    engine.hook = stop
    with pytest.raises(_KilledError):
        engine.run(_broken(1))
    assert complete(pipeline) == DeadLetterMarks(0)
    engine_of(pipeline)
    assert complete(pipeline) == DeadLetterMarks(1)


def _broken(offset: int) -> Any:
    return LocalRows([raw([b"{"], begin=offset)])


def test_key_is_accepted_again_if_its_events_are_far_apart(tmp_path: Path) -> None:
    late = '[[sinks]]\nlayer = "late"\nformat = "parquet"\nlocation = "late"\n'
    pipeline = without_log(tmp_path, "id long, at timestamp", DEDUPED.format("true"), late)
    engine = open_replays(None, pipeline)  # type: ignore[arg-type] # nothing is read again
    values = [bird(1, at=at) for at in ("2026-01-01T10:00:00Z", "2026-06-01T10:00:00Z")]
    values.append(bird(1, at="2026-01-01T10:09:00Z"))
    for number in range(2):
        replayed: Any = LocalRows([raw(values)])
        metrics = engine.run(replayed, PipelinePosition(DeadLetterMarks(number).ends(), {}))
        assert metrics is not None
        assert (metrics.rows["silver"], metrics.rows["duplicates"]) == (2, 1)

    assert len(rows_of(pipeline.sinks[1])) == 4
    assert not (Path(pipeline.state) / "seen").exists()


def test_replayed_keys_are_deduplicated(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """Those of a key are in several files, which are read by several tasks."""
    schema, source = "id long, at timestamp", "max-offsets-per-trigger = 10"
    strict = declared(tmp_path, log, schema, DEDUPED.format("id < 0"), source=source)
    at = "2026-01-01T10:00:00Z"
    log.write("birds", [message(number % 10, at=at) for number in range(60)])
    engine = run_pipeline(spark, strict, NOW)
    assert engine.last is not None
    assert engine.last.batch == 5
    mended = declared(tmp_path, log, schema, DEDUPED.format("true"), source=source)

    counts = replay_dead_letters(spark, mended)

    assert (counts["silver"], counts["duplicates"]) == (10, 50)
    assert ids(mended) == list(range(10))


def test_pipeline_can_run_during_a_replay(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    pipeline = declared(tmp_path, log, "id long", CHECK.format("id <> 1"))
    log.write("birds", [message(number) for number in range(4)])

    def replay(metrics: BatchMetrics) -> None:
        replay_dead_letters(spark, pipeline)
        assert metrics.batch == 0

    def interrupted(step: str) -> None:
        """Be asked for a replay while a batch is in some tables, and not in others."""
        if step.startswith("commit silver"):
            replay_dead_letters(spark, pipeline)

    engine = run_pipeline(spark, pipeline, NOW, replay, interrupted)

    assert engine.last is not None
    assert engine.last.batch == 0
    assert not engine.manifests.is_finished(1)
    assert ids(pipeline) == [0, 2, 3]
    assert len(rows(pipeline, "dead-letters")) == 2
    assert replay_dead_letters(spark, _mended(tmp_path, log))["silver"] == 1


def _mended(folder: Path, log: Log) -> Pipeline:
    return declared(folder, log, "id long", CHECK.format("true"))


def test_dead_letters_of_any_backfill_are_replayed(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    source = 'starting-offsets = "latest"'
    strict = declared(tmp_path, log, "id long", CHECK.format("id <> 1 AND id <> 5"), source=source)
    log.write("birds", [message(number) for number in range(4)])
    run_pipeline(spark, strict, NOW)
    log.write("birds", [message(number) for number in range(4, 8)])
    run_pipeline(spark, strict, NOW)
    assert replay_dead_letters(spark, strict)["dead-letters"] == 1
    backfill(spark, strict)
    assert replay_dead_letters(spark, strict)["dead-letters"] == 2

    mended = declared(tmp_path, log, "id long", source=source)
    assert replay_dead_letters(spark, mended)["silver"] == 2
    assert ids(mended) == list(range(8))


def test_all_dead_letter_tables_are_read(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """Two that share the topics, and a third that has all of them again."""
    text = f'name = "birds"\n[source]\nstore = "{log.store}"\ntopics = ["birds", "fish"]\n'
    text += '[topics."*"]\nschema = "id long"\n{check}'
    text += SINK.format("bronze", "parquet") + SINK.format("silver", "parquet")
    for name, topics in (("birds", '["birds"]'), ("fish", '["fish"]'), ("all", "[]")):
        text += '[[sinks]]\nlayer = "dead-letters"\nformat = "parquet"\n'
        text += f'location = "dead-{name}"\ntopics = {topics}\n'
    path = tmp_path / "birds.toml"
    path.write_text(text.replace("{check}", CHECK.format("id % 2 = 0")))
    log.write("birds", [message(number) for number in range(4)])
    log.write("fish", [message(number) for number in range(10, 14)])
    run_pipeline(spark, load(path), NOW)
    path.write_text(text.replace("{check}", CHECK.format("id <> 13")))
    pipeline = load(path)

    counts = replay_dead_letters(spark, pipeline)

    assert (counts["silver"], counts["dead-letters"]) == (3, 1)
    assert ids(pipeline) == [*range(4), *range(10, 13)]
    assert replay_dead_letters(spark, pipeline)["dead-letters"] == 1


def test_replay_interrupted_for_a_week_continues(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    topic = '[[sinks]]\nlayer = "silver"\nformat = "topic"\nlocation = "good"\n'
    topic += f'options = {{ store = "{log.store}", key = "id" }}\n'
    strict = declared(tmp_path, log, "id long", CHECK.format("id <> 1") + topic)
    log.write("birds", [message(number) for number in range(4)])
    run_pipeline(spark, strict, NOW)
    assert replay_dead_letters(spark, strict)["dead-letters"] == 1
    mended = declared(tmp_path, log, "id long", CHECK.format("true") + topic)
    _killed_before_its_topic(spark, mended)
    _give_up(mended)

    assert replay_dead_letters(spark, mended) == {}

    assert [row[0] for row in rows_of(mended.of("silver")[1])] == list(range(4))
    with Host(tmp_path / "again", store=log.store) as host:
        good = asyncio.run(consumed(host.bootstrap, "good"))
        host.stop()
    assert sorted(json.loads(record.value or b"")["id"] for record in good) == list(range(4))


def _killed_before_its_topic(spark: SparkSession, pipeline: Pipeline) -> None:
    def kill(step: str) -> None:
        if step == "commit silver topic good":
            raise _KilledError

    engine: BatchEngine = open_replays(spark, pipeline)
    engine.hook = kill
    assert engine.reread is not None
    until = PipelinePosition(DeadLetterMarks(0, -1, 0).ends(), {})
    with pytest.raises(_KilledError):
        engine.run(engine.reread(engine.read_position(), until), until)


def _give_up(pipeline: Pipeline) -> None:
    """Do as the caretaker does after a week."""
    last = Manifests(f"{pipeline.state}/replays").last()
    assert last is not None
    log = blockinglog.open_shared(pipeline.source.place())
    staged = [int(file.path) for file in last.sinks["silver topic good"].files]
    assert log.run(abort(log.log, staged)) == staged


def test_replay_marks_are_stored_as_offsets() -> None:
    assert DeadLetterMarks.of(DeadLetterMarks(3, -1, 2).ends()) == DeadLetterMarks(3, -1, 2)
    assert DeadLetterMarks.of({"batch": {"0": 7}}) == DeadLetterMarks(7)
    assert DeadLetterMarks(3, -1, 2).later(DeadLetterMarks(1, 4, 2)) == DeadLetterMarks(3, 4, 2)
