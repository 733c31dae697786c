"""Import of Parquet and JSON: every row once, even after a kill and a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery import jobs
from rookery.clock import SystemClock
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError, Conflict
from rookery.jobs import FileImport, ImportFiles, JobRun
from tests.direct.sinking import read_partition
from tests.jobs.killing import kill_after_progress, run_job
from tests.jobs.world import check_clean, contents, create, with_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKING = PackSettings(object_bytes=64 * 1024, batch_bytes=4096)


def test_json_lines_become_values_in_order(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    lines = [json.dumps({"user": f"u{n % 7}", "n": n, "at": 1_000 + n}) for n in range(3_000)]
    for part in range(3):
        some = lines[part * 1_000 : (part + 1) * 1_000]
        (tmp_path / f"part-{part}.json").write_text("\n".join(some) + "\n")
    files = ImportFiles(str(tmp_path / "part-*.json"), "json", key="user", timestamp="at")
    into = FileImport("events", 1, packing=_PACKING, slice_bytes=60_000)

    dry = jobs.import_files(spark, place, files, into, JobRun(dry_run=True))
    report = jobs.import_files(spark, place, files, into)

    assert dry.plan.bytes == sum(path.stat().st_size for path in tmp_path.glob("part-*"))
    assert report.is_right, report.problems
    assert report.slices > 1
    assert report.before == report.after
    rows = contents(place, "events")
    assert [value.decode() for _, _, _, value in rows if value] == lines
    assert {key for _, _, key, _ in rows} == {b"u%d" % n for n in range(7)}
    check_clean(place)

    (tmp_path / "part-3.json").write_text('{"user": "new"}\n')
    again = jobs.import_files(spark, place, files, into)
    assert again.is_right, again.problems
    assert again.facts["rows"] == 1
    assert len(contents(place, "events")) == 3_001

    (tmp_path / "part-0.json").write_text('{"user": "changed"}\n')
    with pytest.raises(Conflict, match="changed"):
        jobs.import_files(spark, place, files, into)


def test_parquet_rows_become_records(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    create(place, "t", 3)
    folder = tmp_path / "in"
    folder.mkdir()
    table = pa.table(
        {
            "id": list(range(500)),
            "key": [f"k{n % 11}" for n in range(500)],
            "when": pa.array(
                [1_700_000_000_000 + n for n in range(500)], pa.timestamp("ms", "UTC")
            ),
            "amount": [n / 4 for n in range(500)],
        }
    )
    pq.write_table(table, folder / "a.parquet", row_group_size=100)

    files = ImportFiles(str(folder), timestamp="when")
    report = jobs.import_files(spark, place, files, FileImport("t", packing=_PACKING))

    assert report.is_right, report.problems
    rows = [json.loads(value or b"") for _, _, _, value in contents(place, "t")]
    assert sorted(row["id"] for row in rows) == list(range(500))
    assert {row["amount"] for row in rows} == {n / 4 for n in range(500)}
    with pytest.raises(ConfigError, match="no column nothing"):
        jobs.import_files(
            spark, place, ImportFiles(str(folder), key="nothing"), FileImport("t", name="x")
        )
    with pytest.raises(ConfigError, match="cannot be read"):
        jobs.import_files(
            spark, place, ImportFiles(str(tmp_path / "none")), FileImport("t", name="y")
        )
    with pytest.raises(ConfigError, match="max_bytes"):
        jobs.import_files(spark, place, files, FileImport("t", name="z"), JobRun(max_bytes=10))


_TIMES = [1_700_000_000_123_456, None, 1_700_000_001_000_000]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_imported_timestamps_match_the_proof(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path, kind: str
) -> None:
    create(place, "t", 1, message_timestamp_type=kind)
    times = pa.array(_TIMES, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"value": ["a", "b", "c"], "timestamp": times}), tmp_path / "1.parquet")
    lines = ['{"at": "2023-11-14T22:13:20.123456"}', '{"at": "yesterday"}', "{}", '{"at": 1000}']
    (tmp_path / "lines.json").write_text("\n".join(lines) + "\n")
    began = SystemClock().now_ms()

    for files in (
        ImportFiles(str(tmp_path / "1.parquet")),
        ImportFiles(str(tmp_path / "lines.json"), "json", timestamp="at"),
    ):
        report = jobs.import_files(spark, place, files, FileImport("t", packing=_PACKING))
        assert report.is_right, report.problems
        assert report.before == report.after

    timestamps = [
        record.timestamp for record in with_log(place, lambda log: read_partition(log, 0))
    ]
    if kind == "CreateTime":
        assert [timestamps[0], timestamps[2], timestamps[6]] == [
            1_700_000_000_123,
            1_700_000_001_000,
            1000,
        ]
        assert all(time >= began for time in (timestamps[1], timestamps[4], timestamps[5]))


def test_columns_of_only_some_files_are_kept(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    for day in (1, 2):
        (tmp_path / f"day=0{day}").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "day=01" / "a.parquet")
    pq.write_table(pa.table({"id": [2], "new": ["x"]}), tmp_path / "day=02" / "b.parquet")

    def rows_of(topic: str, path: str, **columns: str) -> list[object]:
        files = ImportFiles(path, **columns)  # type: ignore[arg-type] # the columns are text
        report = jobs.import_files(spark, place, files, FileImport(topic, 1, packing=_PACKING))
        assert report.is_right, report.problems
        return [(key, json.loads(value or b"")) for _, _, key, value in contents(place, topic)]

    whole = [
        (b"01", {"id": 1, "day": "01"}),
        (b"02", {"id": 2, "new": "x", "day": "02"}),
    ]
    assert rows_of("folder", str(tmp_path), key="day") == whole
    assert rows_of("pattern", f"{tmp_path}/day=*/*.parquet", key="day") == whole
    assert rows_of("file", f"{tmp_path}/day=01/a.parquet") == [(None, {"id": 1})]


def test_incompatible_files_are_refused(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    tables = {
        "types": [pa.table({"id": [1]}), pa.table({"id": ["one"]})],
        "values": [pa.table({"value": ["a"]}), pa.table({"id": [1]})],
        "folders/a=1": [pa.table({"id": [1]})],
        "folders/b=1": [pa.table({"id": [1]})],
    }
    for folder, some in tables.items():
        (tmp_path / folder).mkdir(parents=True)
        for number, table in enumerate(some):
            pq.write_table(table, tmp_path / folder / f"{number}.parquet")

    for folder, told in (
        ("types", "a column of another type"),
        ("values", "1.parquet has no column value"),
        ("folders", "in folders with other names"),
    ):
        with pytest.raises(ConfigError, match=told):
            jobs.import_files(
                spark, place, ImportFiles(str(tmp_path / folder)), FileImport(folder, 1)
            )
        assert not contents(place, folder)


@pytest.mark.usefixtures("own_victim")
def test_killed_import_continues(place: ClusterAddress, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [json.dumps({"n": n, "text": "x" * 50}) for n in range(20_000)]
    for part in range(10):
        some = lines[part * 2_000 : (part + 1) * 2_000]
        (folder / f"part-{part}.json").write_text("\n".join(some) + "\n")
    command = [
        *("import", str(folder), "--format", "json", "--topic", "t", "--key", "n"),
        *("--create-partitions", "3", "--slice-bytes", "100000", "--master", "local[1]"),
        *("--store", place.store),
    ]

    kill_after_progress(command, 2)
    report = run_job(command)

    assert report["ok"]
    assert 0 < report["rows"] < 20_000
    values = sorted(value.decode() for _, _, _, value in contents(place, "t") if value)
    assert values == sorted(lines)
    check_clean(place)


def test_missing_topic_is_reported_before_anything_is_read(
    spark: SparkSession, place: ClusterAddress
) -> None:
    with pytest.raises(ConfigError, match=r"no topic 'events'.*--create-partitions"):
        jobs.import_files(
            spark, place, ImportFiles("/nowhere"), FileImport("events"), JobRun(dry_run=True)
        )


def test_files_of_another_format_are_reported(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    (tmp_path / "lines.json").write_text('{"id": 1}\n')
    files = ImportFiles(str(tmp_path / "lines.json"))
    with pytest.raises(ConfigError, match=r"lines.json.* not a Parquet file.*--format json"):
        jobs.import_files(spark, place, files, FileImport("events", 1))
