"""Scrub, compact, merge and expire, each on a cluster without brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rookery import jobs
from rookery.cluster.state.rules.sinkrules import MAX_SOURCE_OFFSETS
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError, Unavailable
from rookery.formats.keys import object_key
from rookery.jobs import JobRun, expiryjob, scrubjob
from rookery.jobs.report import JobStep
from rookery.log.check.fault import FaultKind, LogFault
from rookery.log.settings import RewriteSettings
from tests.direct.sinking import rows
from tests.jobs.test_replaced import delete
from tests.jobs.world import (
    check_clean,
    contents,
    create,
    fill,
    last_by_key,
    objects_of,
    state_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(shared_spark: SparkSession) -> SparkSession:
    """Run with every change."""
    return shared_spark


def test_scrub_reads_everything_and_resumes(spark: SparkSession, place: ClusterAddress) -> None:
    create(place, "t")
    fill(place, "t", [rows(5_000, start) for start in range(0, 50_000, 5_000)])
    total = sum(len(data) for data in _objects(place).values())

    planned = jobs.scrub(spark, place, JobRun(dry_run=True))
    steps: list[JobStep] = []
    first = jobs.scrub(
        spark, place, JobRun(max_bytes=planned.plan.bytes // 2, progress=steps.append)
    )
    second = jobs.scrub(spark, place)

    assert planned.is_dry
    assert 0 < planned.plan.bytes <= total
    assert first.is_right
    assert second.is_right
    assert 0 < first.done_bytes <= planned.plan.bytes // 2
    assert first.done_bytes + second.done_bytes == planned.plan.bytes
    assert first.facts["records"] + second.facts["records"] == 50_000  # type: ignore[operator]
    assert steps[-1].done_bytes == steps[-1].total_bytes
    for report in (first, second):
        assert report.before == report.after
        assert report.after is not None
        assert report.after.rows == report.facts["rows"] > 0  # type: ignore[operator]
    # All was scrubbed, so the next one starts over.
    assert jobs.scrub(spark, place, JobRun(dry_run=True)).plan.bytes == planned.plan.bytes
    with pytest.raises(ConfigError, match=r"scrub: max_bytes=10 is too small .* allow \d+ bytes"):
        jobs.scrub(spark, place, JobRun(max_bytes=10))


def test_scrub_names_every_damaged_object(spark: SparkSession, place: ClusterAddress) -> None:
    create(place, "t")
    fill(place, "t", [rows(2_000, start) for start in range(0, 6_000, 2_000)])
    path, data = max(_objects(place).items())
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])

    report = jobs.scrub(spark, place)

    assert not report.is_right
    [problem] = report.problems
    assert path.name in problem
    assert report.facts["faults"] == 1
    assert 0 < report.facts["records"] < 6_000  # type: ignore[operator] # those that are sound
    assert report.before is not None
    assert report.after is not None
    assert report.before.rows > report.after.rows > 0


def test_findings_of_a_killed_scrub_are_reported_by_the_next_run(
    spark: SparkSession, place: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(place, "t")
    fill(place, "t", [rows(500, start) for start in range(0, 3_000, 500)])
    path, data = min(_objects(place).items())
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    monkeypatch.setattr(scrubjob, "_TASK_BYTES", 1000)

    def end(step: JobStep) -> None:
        raise Unavailable(f"after {step.done_bytes} bytes")

    with pytest.raises(Unavailable, match="after"):
        jobs.scrub(spark, place, JobRun(progress=end))
    path.write_bytes(data)
    second = jobs.scrub(spark, place)

    [problem] = second.problems
    assert path.name in problem
    assert second.facts["faults"] == 1
    # It was reported, and is no longer there.
    assert jobs.scrub(spark, place, restart=True).is_right


def test_many_scrub_findings_fit_into_the_stored_position() -> None:
    faults = scrubjob._Faults({})
    faults.add([LogFault(FaultKind.CORRUPT, "k" * 300, "x" * 900)] * 3_000)

    kept = scrubjob._Faults(faults.position())

    assert len(json.dumps(faults.position())) < MAX_SOURCE_OFFSETS
    assert kept.count == 3_000
    assert 0 < len(kept.texts) < len(faults.texts) < 3_000


def test_compact_keeps_the_last_record_of_every_key(
    spark: SparkSession, place: ClusterAddress
) -> None:
    create(place, "t", cleanup_policy="compact")
    batches = [rows(3_000, start) for start in range(0, 12_000, 3_000)]
    gone = pa.record_batch({"key": [b"k1", b"k2"], "value": pa.nulls(2, pa.binary())})
    fill(place, "t", [*batches, gone])
    before = contents(place, "t")

    dry = jobs.compact(spark, place, ["t"], JobRun(dry_run=True))
    assert contents(place, "t") == before
    report = jobs.compact(spark, place, ["t"])

    after = contents(place, "t")
    assert report.is_right, report.problems
    assert dry.plan.bytes == report.done_bytes > 0
    assert last_by_key(after) == last_by_key(before)
    assert len(last_by_key(after)) == 98
    assert len(after) == 100  # with the marks of the two that were deleted
    assert report.before == report.after
    assert report.after is not None
    assert (report.after.rows, report.after.keys) == (98, 98)
    check_clean(place)
    assert jobs.compact(spark, place).plan.bytes == 0
    # There are far more offsets than records now.
    assert jobs.scrub(spark, place, restart=True).facts["records"] == len(after)


def test_compact_within_a_budget_ends_after_some_runs(
    spark: SparkSession, place: ClusterAddress
) -> None:
    create(place, "t", 2, cleanup_policy="compact")
    fill(place, "t", [rows(2_000, start) for start in range(0, 20_000, 2_000)])
    before = contents(place, "t")
    whole = jobs.compact(spark, place, run=JobRun(dry_run=True)).plan.bytes
    with pytest.raises(ConfigError, match=r"compact: max_bytes=10 .* t-\d: allow \d+ bytes"):
        jobs.compact(spark, place, run=JobRun(max_bytes=10))

    runs = 0
    while jobs.compact(spark, place, run=JobRun(dry_run=True)).plan.bytes and runs < 20:
        report = jobs.compact(spark, place, run=JobRun(max_bytes=whole // 3))
        assert report.is_right, report.problems
        assert 0 < report.done_bytes <= whole // 3
        runs += 1

    assert runs > 2
    assert last_by_key(contents(place, "t")) == last_by_key(before)
    check_clean(place)


def test_compact_refuses_a_topic_that_is_not_compacted(
    spark: SparkSession, place: ClusterAddress
) -> None:
    create(place, "t")

    with pytest.raises(ConfigError, match=r"cleanup\.policy"):
        jobs.compact(spark, place, ["t"])
    with pytest.raises(ConfigError, match="no topic 'none'"):
        jobs.compact(spark, place, ["none"])


def test_merge_makes_few_objects_of_many(spark: SparkSession, place: ClusterAddress) -> None:
    create(place, "t")
    create(place, "u", 2)
    for topic in ("t", "u"):
        fill(place, topic, [rows(500, start) for start in range(0, 15_000, 500)])
    before = contents(place, "t"), contents(place, "u")
    objects = objects_of(place, "t") | objects_of(place, "u")

    dry = jobs.merge(spark, place, run=JobRun(dry_run=True))
    report = jobs.merge(spark, place)

    assert report.is_right, report.problems
    assert dry.plan.facts["objects"] == len(objects) == 60
    assert len(objects_of(place, "t") | objects_of(place, "u")) < 5
    assert (contents(place, "t"), contents(place, "u")) == before
    assert report.before == report.after
    assert report.after is not None
    assert report.after.rows == 30_000
    check_clean(place)
    assert not jobs.merge(spark, place, run=JobRun(dry_run=True)).plan.parts


def test_merge_within_a_budget_ends_after_some_runs(
    spark: SparkSession, place: ClusterAddress
) -> None:
    create(place, "t", 1)
    fill(place, "t", [rows(500, start) for start in range(0, 10_000, 500)])
    before = contents(place, "t")
    settings = RewriteSettings(
        merge_bytes=30_000, segment_bytes=200_000, segment_min_bytes=100_000, row_bytes=20_000
    )
    parts = jobs.merge(spark, place, run=JobRun(dry_run=True), settings=settings).plan.parts
    assert len(parts) > 2

    first = jobs.merge(spark, place, run=JobRun(max_bytes=parts[0].bytes), settings=settings)
    with pytest.raises(ConfigError, match=r"merge: max_bytes=10 is too small .* allow \d+ bytes"):
        jobs.merge(spark, place, run=JobRun(max_bytes=10), settings=settings)
    second = jobs.merge(spark, place, settings=settings)

    assert first.is_right, first.problems
    assert 0 < first.done_bytes <= parts[0].bytes
    assert first.plan.left_bytes == sum(part.bytes for part in parts[1:])
    assert second.is_right, second.problems
    assert contents(place, "t") == before
    check_clean(place)


def test_expire_removes_records_beyond_the_retention_size(
    spark: SparkSession, place: ClusterAddress
) -> None:
    create(place, "t", 1, retention_bytes="20000")
    create(place, "kept", 1)
    fill(place, "t", [rows(500, start) for start in range(0, 5_000, 500)])
    fill(place, "kept", [rows(500)])

    dry = jobs.expire(spark, place, run=JobRun(dry_run=True))
    report = jobs.expire(spark, place)

    starts = state_of(
        place, lambda state: {topic.name: topic.partitions[0].log_start for topic in state.topics}
    )
    assert report.is_right
    assert report.done_bytes == dry.plan.bytes > 0
    assert starts["kept"] == 0
    assert 0 < starts["t"] < 5_000
    assert len(contents(place, "t")) == 5_000 - starts["t"]
    assert report.before == report.after
    assert report.after is not None
    assert report.after.rows == 5_000 - starts["t"] + 500
    assert not report.notes
    assert jobs.expire(None, place).plan.bytes == 0


def test_expire_within_a_budget_ends_after_some_runs(place: ClusterAddress) -> None:
    for topic in ("t", "u"):
        create(place, topic, 1, retention_bytes="20000")
        fill(place, topic, [rows(500, start) for start in range(0, 5_000, 500)])
    size = jobs.expire(None, place, ["t"], JobRun(dry_run=True)).plan.bytes

    with pytest.raises(ConfigError, match=rf"expire: max_bytes=10 .* t-0 .* allow {size} bytes"):
        jobs.expire(None, place, run=JobRun(max_bytes=10))
    first = jobs.expire(None, place, run=JobRun(max_bytes=size))
    second = jobs.expire(None, place, run=JobRun(max_bytes=size))

    for report in (first, second):
        assert report.is_right, report.problems
        assert report.done_bytes == size
    assert first.plan.left_bytes == size
    assert not second.plan.left
    assert not jobs.expire(None, place).plan.parts


def test_expire_reports_concurrent_changes(
    place: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("t", "u"):
        create(place, topic, 1, retention_bytes="20000")
        fill(place, topic, [rows(500, start) for start in range(0, 5_000, 500)])
    expire = expiryjob._expire

    def and_others(task: expiryjob._Task) -> int:
        done = expire(task)
        delete(place, "u")
        return done

    monkeypatch.setattr(expiryjob, "_expire", and_others)
    report = jobs.expire(None, place)

    assert report.is_right, report.problems
    assert report.notes == [
        "others deleted more records meanwhile, so the result was not compared: u-0"
    ]
    assert report.after is not None
    assert report.after.rows == len(contents(place, "t"))


def _objects(place: ClusterAddress) -> dict[Path, bytes]:
    """Return the objects that hold batches, by their files."""
    folder = Path(place.store.removeprefix("file://"))
    names = {Path(object_key(object_id)).name for object_id in objects_of(place, "t")}
    return {path: path.read_bytes() for path in folder.rglob("*") if path.name in names}
