"""Repartition and replay: new topics with the same records, each once, in the order promised."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery import jobs
from rookery.client.produce.partition import partition_of
from rookery.direct.commit import forget
from rookery.direct.layout import PackSettings
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.jobs import FillTarget, JobRun
from tests.direct.sinking import read_topic, rows
from tests.jobs.world import Rows, check_clean, contents, create, fill, state_of, with_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKING = PackSettings(object_bytes=64 * 1024, batch_bytes=4096)


def test_repartition_keeps_every_key_in_order(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    create(place, "t", 3, retention_ms="-1")
    fill(place, "t", [rows(300, start) for start in range(0, 9_000, 300)])
    fill(place, "t", [pa.record_batch({"value": [b"none %d" % n for n in range(50)]})])
    into = FillTarget("wide", 7, str(tmp_path / "map"), _PACKING, slice_bytes=60_000)

    dry = jobs.repartition(spark, place, "t", into, JobRun(dry_run=True))
    assert state_of(place, lambda state: "wide" not in state.topics.by_name)
    report = jobs.repartition(spark, place, "t", into)

    before, after = contents(place, "t"), contents(place, "wide")
    assert report.is_right, report.problems
    assert dry.plan.bytes > 0
    assert report.slices > 2
    assert report.before == report.after
    assert report.facts["rows"] == len(after) == 9_050
    assert _by_key(after) == _by_key(before)
    assert all(partition_of(key, 7) == partition for partition, _, key, _ in after if key)
    configs = state_of(place, lambda state: dict(state.topics.by_name["wide"].configs))
    assert configs == {"retention.ms": "-1"}
    check_map(tmp_path / "map", {"t": before}, {"wide": after})
    check_clean(place)


def test_repartition_continues_with_records_written_since(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    create(place, "t", 2)
    fill(place, "t", [rows(200, start) for start in range(0, 2_000, 200)])
    into = FillTarget("u", 3, str(tmp_path / "map"), _PACKING, slice_bytes=20_000)
    budget = jobs.repartition(spark, place, "t", into, JobRun(dry_run=True)).plan.bytes // 2

    first = jobs.repartition(spark, place, "t", into, JobRun(max_bytes=budget))
    # The last slice was committed, and its map lost: as if it was killed in between.
    max((tmp_path / "map").glob("*.parquet")).unlink()
    fill(place, "t", [rows(1_000, 2_000)])
    second = jobs.repartition(spark, place, "t", into)
    third = jobs.repartition(spark, place, "t", into)

    after = contents(place, "u")
    assert first.is_right
    assert second.is_right
    assert 0 < first.done_bytes <= budget
    assert _by_key(after) == _by_key(contents(place, "t"))
    assert third.slices == 0
    check_map(tmp_path / "map", {"t": contents(place, "t")}, {"u": after})


def test_repartition_refuses_targets_with_records(
    spark: SparkSession, place: ClusterAddress
) -> None:
    create(place, "t", 2)
    create(place, "full", 2)
    create(place, "other", 5)
    fill(place, "full", [rows(10)])

    with pytest.raises(ConfigError, match="records of its own"):
        jobs.repartition(spark, place, "t", FillTarget("full", 2))
    with pytest.raises(ConfigError, match="5 partitions instead of 4"):
        jobs.repartition(spark, place, "t", FillTarget("other", 4))
    with pytest.raises(ConfigError, match="no topic none"):
        jobs.repartition(spark, place, "none", FillTarget("x", 4))


def test_replay_order_equals_that_of_the_consumer(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    create(place, "b", 2)
    create(place, "a", 3)
    times = [(number * 7919) % 10_000 for number in range(4_000)]
    for topic, shift in (("b", 0), ("a", 3)):
        for start in range(0, 4_000, 500):
            some = [
                # Nearly in order, as producers send them, with some that are late and some equal.
                1_700_000_000_000 + start * 10 + time % 4_000 // 10 * 10
                for time in times[start : start + 500]
            ]
            stamps = pa.array([stamp + shift for stamp in some], pa.timestamp("ms", "UTC"))
            fill(place, topic, [rows(500, start, timestamp=stamps)])
    into = FillTarget("all", 1, str(tmp_path / "map"), _PACKING, slice_bytes=40_000)
    size = jobs.replay(spark, place, ["b", "a"], into, JobRun(dry_run=True)).plan.bytes

    first = jobs.replay(spark, place, ["b", "a"], into, JobRun(max_bytes=size // 2))
    fill(place, "a", [rows(10, 99_000)])  # too late: the job was begun without it
    second = jobs.replay(spark, place, ["b", "a"], into)

    assert first.is_right
    assert second.is_right, second.problems
    assert first.slices > 0
    assert second.slices > 0
    assert first.facts["rows"] + second.facts["rows"] == 8_000  # type: ignore[operator]
    pairs = [(key, value) for _, _, key, value in contents(place, "all")]
    assert pairs == expected(place, ["b", "a"])
    assert jobs.replay(spark, place, ["b", "a"], into).slices == 0
    maps = pa.concat_tables(
        [pq.read_table(path) for path in sorted((tmp_path / "map").glob("*.parquet"))]
    )
    assert maps.column("offset").to_pylist() == list(range(8_000))
    check_clean(place)


def test_concurrent_runs_of_a_job_do_not_write_twice(
    spark: SparkSession, place: ClusterAddress
) -> None:
    create(place, "t", 1)
    fill(place, "t", [rows(500)])
    jobs.repartition(spark, place, "t", FillTarget("u", 2))

    # As if the job knew nothing of the run before: the topic is not empty, so it says so.
    with_log(place, lambda log: forget(log, "job:repartition:t:u"))

    with pytest.raises(ConfigError, match="records of its own"):
        jobs.repartition(spark, place, "t", FillTarget("u", 2))
    assert len(contents(place, "u")) == 500


def _by_key(records: Rows) -> dict[object, object]:
    """Return the values of each key in their order; those without a key in any order."""
    values: dict[object, list[bytes | None]] = {}
    for _, _, key, value in records:
        values.setdefault(key, []).append(value)
    keyless = Counter(values.pop(None, []))
    return {**values, None: keyless}


def check_map(folder: Path, sources: dict[str, Rows], targets: dict[str, Rows]) -> None:
    """Check that every record is where the map says, and that none is left out."""
    was = {
        (name, partition, offset): (key, value)
        for name, many in sources.items()
        for partition, offset, key, value in many
    }
    is_now = {
        (name, partition, offset): (key, value)
        for name, many in targets.items()
        for partition, offset, key, value in many
    }
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])
    lines = table.to_pylist()
    assert len(lines) == len(was) == len(is_now)
    for line in lines:
        origin = line["source_topic"], line["source_partition"], line["source_offset"]
        assert was[origin] == is_now[line["topic"], line["partition"], line["offset"]]


def expected(place: ClusterAddress, topics: list[str]) -> list[tuple[bytes | None, bytes | None]]:
    """Sort by (running maximum, topic, partition, offset), the plain way."""
    keyed = []
    for number, topic in enumerate(topics):
        clocks: dict[int, int] = {}
        for partition, offset, time, key, value in asyncio.run(_timed(place, topic)):
            clocks[partition] = max(clocks.get(partition, -1), time)
            keyed.append((clocks[partition], number, partition, offset, key, value))
    kept = [row for row in keyed if len(row[5] or b"") < 6]  # not those that came too late
    return [(key, value) for *_, key, value in sorted(kept, key=lambda row: row[:4])]


async def _timed(
    place: ClusterAddress, topic: str
) -> list[tuple[int, int, int, bytes | None, bytes | None]]:
    async with DirectLog.open(place, "tests") as log:
        partitions = await read_topic(log, topic)
    return [
        (index, record.offset, record.timestamp, record.key, record.value)
        for index, many in enumerate(partitions)
        for record in many
    ]
