"""Replay over sources that are compacted meanwhile, and over times that cannot be cut."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery import jobs
from rookery.direct.layout import PackSettings
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.errors import Conflict
from rookery.jobs import FillTarget, JobReport, JobRun
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobStep
from tests.direct.sinking import rows
from tests.jobs.test_moving import expected
from tests.jobs.world import check_clean, contents, create, fill, state_of, with_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BASE = 1_700_000_000_000
_PACKING = PackSettings(object_bytes=64 * 1024, batch_bytes=4096)


class _KilledError(Exception):
    """As if the job was killed."""


def _kill(_: JobStep) -> None:
    raise _KilledError


def _timed(times: Sequence[int], start: int = 0, **columns: object) -> pa.RecordBatch:
    stamps = pa.array([_BASE + time for time in times], pa.timestamp("ms", "UTC"))
    return rows(len(times), start, timestamp=stamps, **columns)


def _values(place: ClusterAddress, topic: str) -> list[bytes | None]:
    return [value for *_, value in contents(place, topic)]


def test_replay_loses_nothing_if_its_source_is_compacted_between_runs(
    spark: SparkSession, place: ClusterAddress
) -> None:
    create(place, "t", 1, cleanup_policy="compact")
    some = [(10, b"a"), (100, b"b"), (50, b"c"), (110, b"b"), (120, b"d")]
    batches = [_timed([time], at, key=[key]) for at, (time, key) in enumerate(some)]
    fill(place, "t", batches)
    into = FillTarget("in-order", 1, "", _PACKING, slice_bytes=1)

    with pytest.raises(_KilledError):
        jobs.replay(spark, place, ["t"], into, JobRun(progress=_kill))
    jobs.compact(spark, place, ["t"])
    assert len(contents(place, "t")) == len(some) - 1, "the one with the highest time is gone"
    report = jobs.replay(spark, place, ["t"], into)

    assert report.is_right, report.problems
    assert _values(place, "in-order") == [b"v0", b"v2", b"v3", b"v4"]
    assert jobs.replay(spark, place, ["t"], into).slices == 0


def test_a_position_without_offsets_is_refused(spark: SparkSession, place: ClusterAddress) -> None:
    create(place, "t", 1)
    fill(place, "t", [_timed([1, 2])])

    async def note(log: DirectLog) -> None:
        ledger = Ledger(log, "replay:in-order", "replay of t")
        await ledger.commit(0, {"time": 5, "begins": {}, "ends": {}, "rows": 1})

    with_log(place, note)
    with pytest.raises(Conflict, match="begun by an earlier version"):
        jobs.replay(spark, place, ["t"], FillTarget("in-order"))


def _check_in_small_slices(
    report: JobReport, place: ClusterAddress, folder: Path, most: int
) -> None:
    assert report.is_right, report.problems
    pairs = [(key, value) for _, _, key, value in contents(place, "all")]
    assert pairs == expected(place, ["t"])
    maps = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    assert len(maps) == report.slices > 4
    assert max(table.num_rows for table in maps) <= most
    assert pa.concat_tables(maps).column("offset").to_pylist() == list(range(len(pairs)))
    check_clean(place)


def test_rows_after_a_timestamp_far_ahead_are_sliced_by_offset(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    create(place, "t", 2)
    fill(place, "t", [_timed([0, 50_000_000], 9_000)])
    batches = [_timed(range(start, start + 200), start) for start in range(0, 4_000, 200)]
    fill(place, "t", batches)
    into = FillTarget("all", 1, str(tmp_path / "map"), _PACKING, slice_bytes=12_000)

    with pytest.raises(_KilledError):
        jobs.replay(spark, place, ["t"], into, JobRun(progress=_kill))
    # It ended between a slice and its map.
    max((tmp_path / "map").glob("*.parquet")).unlink()
    report = jobs.replay(spark, place, ["t"], into)
    report.slices += 1

    _check_in_small_slices(report, place, tmp_path / "map", 1_000)


def test_many_records_of_one_timestamp_are_sliced_by_offset(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.jobs.move.slicecutters._SLICE_OFFSETS", 500)
    monkeypatch.setattr("rookery.jobs.move.slicecutters._TASK_OFFSETS", 200)
    create(place, "t", 3, message_timestamp_type="LogAppendTime")
    fill(place, "t", [rows(4_000)])
    times = state_of(
        place,
        lambda state: {
            partition.row(at).max_timestamp
            for partition in state.topics.by_name["t"].partitions
            for at in range(len(partition.base_offsets))
        },
    )
    assert len(times) == 1

    into = FillTarget("all", 1, str(tmp_path / "map"), _PACKING)
    report = jobs.replay(spark, place, ["t"], into)

    _check_in_small_slices(report, place, tmp_path / "map", 500)
