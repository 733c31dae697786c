"""Targets of jobs: a job notices if they are removed or written by another process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery import jobs
from rookery.cli.main import main
from rookery.cluster.state.rules import sinkrules
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.commit import Commit
from rookery.direct.layout import PackSettings
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError, Conflict, Unavailable
from rookery.jobs import CopyRequest, FileImport, FillTarget, ImportFiles, JobReport, JobRun
from rookery.jobs.move.topics import make_topic
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobStep
from tests.direct.sinking import make_cluster, rows
from tests.jobs.test_moving import check_map
from tests.jobs.test_replaced import replace, values
from tests.jobs.world import contents, create, fill, state_of, with_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKING = PackSettings(object_bytes=64 * 1024, batch_bytes=4096)


def _once(work: Callable[[], None]) -> JobRun:
    """Return a run that does something after its first slice."""
    told: list[JobStep] = []

    def progress(step: JobStep) -> None:
        told.append(step)
        if len(told) == 1:
            work()

    return JobRun(progress=progress)


def _filled(place: ClusterAddress, topic: str = "t", partitions: int = 2) -> None:
    create(place, topic, partitions)
    fill(place, topic, [rows(200, start) for start in range(0, 2_000, 200)])


def _into(topic: str) -> FillTarget:
    return FillTarget(topic, 3, "", _PACKING, 20_000)


def test_target_replaced_during_a_run_is_detected(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    target = asyncio.run(make_cluster(tmp_path / "other"))
    _filled(place)
    copying = CopyRequest(("t",), "c.", packing=_PACKING, slice_bytes=20_000)
    todo: dict[str, Callable[[JobRun], JobReport]] = {
        "u": lambda run: jobs.repartition(spark, place, "t", _into("u"), run),
        "o": lambda run: jobs.replay(spark, place, ["t"], _into("o"), run),
        "c.t": lambda run: jobs.copy(spark, place, target, copying, run),
    }
    for topic, run in todo.items():
        where, count = (target, 2) if topic == "c.t" else (place, 3)

        def replaced(where: ClusterAddress = where, topic: str = topic, count: int = count) -> None:
            replace(where, topic, count)

        with pytest.raises(Conflict, match=f"topic {topic} was deleted while this job wrote to it"):
            run(_once(replaced))
        assert run(JobRun()).is_right, "it begins anew"
        assert values(where, topic) == values(place, "t")


def test_import_detects_a_replaced_topic(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    for number in range(4):
        table = pa.table({"value": [b"%d" % number]})
        pq.write_table(table, tmp_path / "files" / f"{number}.parquet")
    create(place, "t", 2)

    def run(how: JobRun) -> JobReport:
        into = FileImport("t", packing=_PACKING, slice_bytes=1)
        return jobs.import_files(spark, place, ImportFiles(str(tmp_path / "files")), into, how)

    with pytest.raises(Conflict, match="topic t was deleted while this job wrote to it"):
        run(_once(lambda: replace(place, "t", 2)))
    assert run(JobRun()).facts["rows"] == 4
    assert values(place, "t") == [b"0", b"1", b"2", b"3"]


def test_foreign_write_to_the_target_between_slices_is_detected(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    _filled(place)
    into = FillTarget("u", 3, str(tmp_path / "map"), _PACKING, 20_000)
    foreign = pa.record_batch({"key": [b"k"], "value": [b"foreign"]})

    def run(how: JobRun | None = None) -> JobReport:
        return jobs.repartition(spark, place, "t", into, how)

    for how in (_once(lambda: fill(place, "u", [foreign])), JobRun()):
        with pytest.raises(Conflict, match="another producer has written to u"):
            run(how)


def test_slower_of_two_runs_stops(spark: SparkSession, place: ClusterAddress) -> None:
    _filled(place)

    def faster() -> None:
        assert jobs.repartition(spark, place, "t", _into("u")).is_right

    with pytest.raises(Conflict, match="another run of this job is at work"):
        jobs.repartition(spark, place, "t", _into("u"), _once(faster))
    assert values(place, "u") == values(place, "t")


def test_insufficient_budget_is_refused(spark: SparkSession, place: ClusterAddress) -> None:
    _filled(place)

    with pytest.raises(ConfigError, match="max_bytes=10 is too small"):
        jobs.repartition(spark, place, "t", _into("u"), JobRun(max_bytes=10))
    with pytest.raises(ConfigError, match="max_bytes=10 is too small"):
        jobs.replay(spark, place, ["t"], _into("o"), JobRun(max_bytes=10))
    assert jobs.repartition(spark, place, "t", _into("u")).is_right
    assert jobs.repartition(spark, place, "t", _into("u"), JobRun(max_bytes=10)).slices == 0


def test_copy_records_the_ids_of_its_topics(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    target = asyncio.run(make_cluster(tmp_path / "other"))
    for topic in ("a", "b"):
        _filled(place, topic)

    def run(*topics: str) -> JobReport:
        return jobs.copy(spark, place, target, CopyRequest(topics, name="mine"))

    assert run("a").is_right
    assert run("a", "b").facts["rows"] == 2_000
    with pytest.raises(ConfigError, match="also of topic a: name it, too"):
        run("b")
    assert run("a", "b").slices == 0


def test_job_with_an_incomplete_map_is_refused(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    _filled(place)

    def run(folder: str, how: JobRun | None = None) -> JobReport:
        into = FillTarget("u", 3, str(tmp_path / folder), _PACKING, 10_000)
        return jobs.repartition(spark, place, "t", into, how)

    half = run("map", JobRun(dry_run=True)).plan.bytes // 2
    assert run("map", JobRun(max_bytes=half)).slices > 1
    with pytest.raises(ConfigError, match=r"slice-000000\.parquet .* began with .*/map"):
        run("elsewhere")
    (tmp_path / "map" / "slice-000000.parquet").rename(tmp_path / "kept")
    with pytest.raises(ConfigError, match=r"slice-000000\.parquet"):
        run("map")
    (tmp_path / "kept").rename(tmp_path / "map" / "slice-000000.parquet")
    assert run("map").is_right
    check_map(tmp_path / "map", {"t": contents(place, "t")}, {"u": contents(place, "u")})


def test_new_topic_has_its_configs_from_the_start(
    place: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose, calls = DirectLog.propose, []

    async def killed_behind_the_first(self: DirectLog, events: Any) -> Any:
        calls.append(events)
        if len(calls) > 1:
            raise Unavailable("killed")
        return await propose(self, events)

    monkeypatch.setattr(DirectLog, "propose", killed_behind_the_first)
    configs = {"retention.ms": "-1", "cleanup.policy": "compact"}
    with BlockingLog(place) as log:
        make_topic(log, "new", 3, configs, is_begun=False)
    monkeypatch.undo()

    assert state_of(place, lambda state: dict(state.topics.by_name["new"].configs)) == configs


@pytest.mark.parametrize("partitions", [10, 6_000])
def test_positions_of_many_partitions_are_kept(place: ClusterAddress, partitions: int) -> None:
    numbers = {str(index): 10_000_000 + index * 7919 % 65_537 for index in range(partitions)}
    position = {"was": {"t": numbers}, "next": {"t": numbers}, "bases": {"t": numbers}}

    async def work(log: DirectLog) -> tuple[Commit, dict[str, Any]]:
        ledger = Ledger(log, "many", "test")
        ledger.check_room(position)
        done = await ledger.commit(0, position)
        return done, (await ledger.read()).position

    done, read = with_log(place, work)
    assert not done.is_repeated
    assert read == position


def test_too_many_partitions_are_refused_before_anything_is_written(
    spark: SparkSession, place: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(place)
    monkeypatch.setattr("rookery.jobs.progress.MAX_SOURCE_OFFSETS", 1_000)

    with pytest.raises(ConfigError, match="take fewer topics, or topics with fewer partitions"):
        jobs.repartition(spark, place, "t", FillTarget("u", 900, "", _PACKING))

    assert state_of(place, lambda state: not state.sinks.staged)
    assert sinkrules.MAX_SOURCE_OFFSETS > 1_000


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["repartition", "t", "--to", "u", "--partitions", "2", "--slice-bytes", "0"], "slice-by"),
        (["replay", "t", "--to", "u", "--slice-bytes", "0"], "--slice-bytes"),
        (["copy", "t", "--to-data", "x", "--slice-bytes", "0"], "--slice-bytes"),
        (["import", "f", "--topic", "t", "--slice-bytes", "0"], "--slice-bytes"),
        (["import", "f", "--topic", "t", "--create-partitions", "-1"], "--create-partitions"),
        (["repartition", "t", "--to", "u", "--partitions", "0"], "--partitions"),
        (["replay", "t", "--to", "u", "--partitions", "-3"], "--partitions"),
        (["replay", "t", "--to", "u", "--partitions", "10001"], "--partitions"),
    ],
)
def test_invalid_numbers_are_refused_by_name(
    place: ClusterAddress, flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["job", *flags, "--store", place.store]) == 2

    assert named in capsys.readouterr().err


def test_slice_bytes_must_be_positive() -> None:
    for make in (
        lambda: FillTarget("u", slice_bytes=0),
        lambda: CopyRequest(("t",), slice_bytes=-1),
    ):
        with pytest.raises(ConfigError, match="slice_bytes"):
            make()
