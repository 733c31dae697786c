"""Import of Parquet and JSON: every row once, also when it is killed and begun again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery import jobs
from rookery.direct.layout import Packing
from rookery.direct.place import Place
from rookery.errors import ConfigError, Conflict
from rookery.jobs import Files, Import, Run
from tests.jobs.killing import kill_after_progress, run_job
from tests.jobs.world import check_clean, contents, create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKING = Packing(object_bytes=64 * 1024, batch_bytes=4096)


def test_json_lines_become_values_in_their_order(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    lines = [json.dumps({"user": f"u{n % 7}", "n": n, "at": 1_000 + n}) for n in range(3_000)]
    for part in range(3):
        some = lines[part * 1_000 : (part + 1) * 1_000]
        (tmp_path / f"part-{part}.json").write_text("\n".join(some) + "\n")
    files = Files(str(tmp_path / "part-*.json"), "json", key="user", timestamp="at")
    into = Import("events", 1, packing=_PACKING, slice_bytes=60_000)

    dry = jobs.import_files(spark, place, files, into, Run(dry_run=True))
    report = jobs.import_files(spark, place, files, into)

    assert dry.plan.bytes == sum(path.stat().st_size for path in tmp_path.glob("part-*"))
    assert report.is_right, report.problems
    assert report.slices > 1
    assert report.before == report.after
    found = contents(place, "events")
    assert [value.decode() for _, _, _, value in found if value] == lines
    assert {key for _, _, key, _ in found} == {b"u%d" % n for n in range(7)}
    check_clean(place)

    (tmp_path / "part-3.json").write_text('{"user": "new"}\n')
    again = jobs.import_files(spark, place, files, into)
    assert again.facts["rows"] == 1
    assert len(contents(place, "events")) == 3_001

    (tmp_path / "part-0.json").write_text('{"user": "changed"}\n')
    with pytest.raises(Conflict, match="changed"):
        jobs.import_files(spark, place, files, into)


def test_parquet_rows_become_records(spark: SparkSession, place: Place, tmp_path: Path) -> None:
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

    files = Files(str(folder), timestamp="when")
    report = jobs.import_files(spark, place, files, Import("t", packing=_PACKING))

    assert report.is_right, report.problems
    rows = [json.loads(value or b"") for _, _, _, value in contents(place, "t")]
    assert sorted(row["id"] for row in rows) == list(range(500))
    assert {row["amount"] for row in rows} == {n / 4 for n in range(500)}
    with pytest.raises(ConfigError, match="no column nothing"):
        jobs.import_files(spark, place, Files(str(folder), key="nothing"), Import("t", name="x"))
    with pytest.raises(ConfigError, match="cannot be read"):
        jobs.import_files(spark, place, Files(str(tmp_path / "none")), Import("t", name="y"))
    with pytest.raises(ConfigError, match="max_bytes"):
        jobs.import_files(spark, place, files, Import("t", name="z"), Run(max_bytes=10))


def test_an_import_that_is_killed_goes_on(place: Place, tmp_path: Path) -> None:
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


def test_a_topic_that_is_not_there_is_told_of_before_anything_is_read(
    spark: SparkSession, place: Place
) -> None:
    with pytest.raises(ConfigError, match=r"no topic 'events'.*--create-partitions"):
        jobs.import_files(spark, place, Files("/nowhere"), Import("events"), Run(dry_run=True))


def test_files_of_another_format_are_told_of(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    (tmp_path / "lines.json").write_text('{"id": 1}\n')
    files = Files(str(tmp_path / "lines.json"))
    with pytest.raises(ConfigError, match=r"lines.json.* no Parquet file.*--format json"):
        jobs.import_files(spark, place, files, Import("events", 1))
