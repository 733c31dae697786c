"""Imports files into a topic: Parquet or JSON lines, each row as one record, exactly once.

    files by name ──► slices ──► Spark reads, tasks stage ──► one commit a slice: its records, and
    how many files are done

A row becomes a record by columns for key, value, timestamp and headers. Without a value column, the
whole row becomes the value, as JSON. Rows of a file keep their order.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.commit import Commit
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress, host_mark
from rookery.direct.targets import TopicTarget, find_target
from rookery.errors import ConfigError, Conflict, Unavailable
from rookery.jobs.move.filerows import ImportFiles, change_settings, records_of
from rookery.jobs.move.importtask import Load, LoadResult, load
from rookery.jobs.move.slicecutters import SLICE_BYTES
from rookery.jobs.move.transfer import read_back
from rookery.jobs.progress import Ledger
from rookery.jobs.proof import Proof
from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, JobStep, Requests
from rookery.jobs.tasks import TaskFailure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "import"
_TRIES: Final = 3
_TASK_BYTES: Final = 64 * 1024 * 1024
# Then Spark puts only one part of a file into a task: otherwise the order would be unknown.
_ONE_SPLIT_A_TASK: Final = {
    "spark.sql.files.maxPartitionBytes": str(_TASK_BYTES),
    "spark.sql.files.openCostInBytes": str(_TASK_BYTES),
}


@dataclass(frozen=True, slots=True)
class FileImport:
    """The topic to import into, and how."""

    topic: str
    create_partitions: int = 0
    """Create a missing topic with this number of partitions."""
    name: str = ""
    """The name of the job, by which it resumes; empty: derived from topic and path."""
    packing: PackSettings = field(default_factory=PackSettings)
    slice_bytes: int = SLICE_BYTES


class _File(NamedTuple):
    path: str
    size: int
    modified: int


def import_files(
    spark: SparkSession,
    place: ClusterAddress,
    files: ImportFiles,
    into: FileImport,
    run: JobRun | None = None,
) -> JobReport:
    """Write the rows of files into a topic; a repeated run continues with new files.

    Args:
        spark: the session that reads the files.
        place: the location of the log.
        files: the files, and how rows become records.
        into: the topic.
        run: budget, dry run, proof, progress.

    Raises:
        ConfigError: the topic, the files or the columns do not exist.
        Conflict: imported files have changed, or another run of the job is active.
        Unavailable: the log cannot be written.
    """
    with BlockingLog(place, "job-import") as log:
        return _ImportRun(spark, place, log, files, into).run(run or JobRun())


class _ImportRun:
    """One run of an import."""

    def __init__(
        self,
        spark: SparkSession,
        place: ClusterAddress,
        log: BlockingLog,
        files: ImportFiles,
        into: FileImport,
    ) -> None:
        self._spark = spark
        self._place = place
        self._log = log
        self._files = files
        self._into = into
        digest = hashlib.sha256(files.path.encode()).hexdigest()[:12]
        name = into.name or f"{NAME}:{into.topic}:{digest}"
        self._ledger = Ledger(log.log, name, NAME, [into.topic])
        self._host = host_mark(place)

    def run(self, run: JobRun) -> JobReport:
        self._check_topic()
        at = self._log.run(self._ledger.read())
        files = _list_files(self._spark, self._files)
        done = int(at.position.get("files", 0))
        _check_same(files[:done], done, at.position)
        rest = files[done:]
        count = run.choose(file.size for file in rest)
        if rest:
            run.check_budget(NAME, rest[0].path, rest[0].size)
        report = JobReport(_plan(self._into.topic, rest, count), is_dry=run.dry_run)
        if not run.dry_run and count:
            self._work(report, files, range(done, done + count), run, at.batch_id, at.position)
        return report

    def _check_topic(self) -> None:
        state = self._log.run(self._log.log.barrier())
        if not self._into.create_partitions and self._into.topic not in state.topics.by_name:
            raise ConfigError(
                f"there is no topic {self._into.topic!r}: create it, or set its number of "
                "partitions (create_partitions, --create-partitions)"
            )

    def _work(
        self,
        report: JobReport,
        files: list[_File],
        wanted: range,
        run: JobRun,
        batch_id: int,
        position: dict[str, Any],
    ) -> None:
        into = self._into
        target = self._log.run(find_target(self._log.log, into.topic, into.create_partitions))
        before, after = Proof(), Proof()
        rows = int(position.get("rows", 0))
        total = sum(file.size for file in files[wanted.start : wanted.stop])
        for some in _slices(files, wanted, into.slice_bytes):
            paths = [files[index].path for index in some]
            records, columns = records_of(self._spark, paths, self._files)
            proved = _provable(columns, target)
            loaded = self._load(records, batch_id, proved)
            mine = sum((result.proof for result in loaded), Proof())
            rows += mine.rows
            behind = {"files": some.stop, "digest": _digest(files[: some.stop]), "rows": rows}
            objects = [object_id for task in loaded for object_id in task.object_ids]
            commit = self._log.run(self._ledger.commit(batch_id, behind, objects))
            _check_commit(commit, mine.rows)
            before += mine
            if run.proof:
                after += read_back(self._spark, self._place, commit, proved)
            report.done_bytes += sum(file.size for file in files[some.start : some.stop])
            report.slices += 1
            batch_id += 1
            run.progress(JobStep(report.done_bytes, total, f"{rows:,} records"))
        report.facts["rows"] = before.rows
        if run.proof:
            report.before, report.after = before, after
            report.check()

    def _load(self, rows: DataFrame, batch_id: int, proved: tuple[str, ...]) -> list[LoadResult]:
        """Stage a slice, with retries on conflicts; return the task results in order."""
        batch = self._ledger.batch(batch_id)
        packing = replace(self._into.packing, topic=self._into.topic)
        task = Load(self._place, self._host, batch, packing, proved)
        for attempt in range(_TRIES):
            with change_settings(self._spark, _ONE_SPLIT_A_TASK):
                packed = rows.mapInArrow(partial(load, task), "result binary").collect()
            results = [pickle.loads(row["result"]) for row in packed]  # noqa: S301 (our own)
            errors = [result.error for result in results if isinstance(result, TaskFailure)]
            if not errors:
                return sorted(results, key=lambda result: result.order)
            if attempt == _TRIES - 1 or not isinstance(errors[0], Conflict | Unavailable):
                raise errors[0]
        raise AssertionError("unreachable")


# Files.


def _list_files(spark: SparkSession, files: ImportFiles) -> list[_File]:
    """Return the files in the order of their names."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 (it takes a second)

    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        listed = reader.load(files.path).selectExpr(
            "path", "length AS size", "unix_micros(modificationTime) AS modified"
        )
        rows = listed.collect()
    except AnalysisException as error:
        raise ConfigError(f"import: {files.path!r} cannot be read: {error}") from error
    if not rows:
        raise ConfigError(f"import: there are no files at {files.path!r}")
    return sorted(_File(*row) for row in rows if row["size"])


def _digest(files: Sequence[_File]) -> str:
    return hashlib.sha256(repr(list(map(tuple, files))).encode()).hexdigest()


def _check_same(files: Sequence[_File], done: int, position: dict[str, Any]) -> None:
    if done and (len(files) < done or _digest(files) != position["digest"]):
        raise Conflict(
            f"import: of the first {done} files, which are imported, some were changed, "
            "deleted or added; restore them, or start a job with another name"
        )


def _slices(files: list[_File], wanted: range, most: int) -> Iterator[range]:
    begin, size = wanted.start, 0
    for index in wanted:
        if size and size + files[index].size > most:
            yield range(begin, index)
            begin, size = index, 0
        size += files[index].size
    yield range(begin, wanted.stop)


def _plan(topic: str, files: list[_File], count: int) -> JobPlan:
    size = sum(file.size for file in files[:count])
    parts = (JobPart(f"{count} files to {topic}", size),) if count else ()
    rest = sum(file.size for file in files[count:])
    left = (JobPart(f"{len(files) - count} files", rest),) if rest else ()
    return JobPlan(NAME, parts, left, Requests(puts=size // PackSettings().object_bytes + 1))


def _provable(columns: tuple[str, ...], target: TopicTarget) -> tuple[str, ...]:
    """Return the columns that stay the same in the topic; no time if the topic sets its own."""
    return tuple(column for column in columns if column != "timestamp" or not target.is_append_time)


def _check_commit(commit: Commit, rows: int) -> None:
    if commit.is_repeated:
        raise Conflict("another run of this job is at work; let it end, or wait for it")
    if commit.records != rows:
        raise Conflict(f"{rows} rows were read, but {commit.records} records got offsets")
