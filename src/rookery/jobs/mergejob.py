"""Merges small objects into large ones on Spark: the caretaker's jobs, many in parallel.

    state ──► jobs that want different rows ──► tasks: read, check, write, propose RowsReplaced
      ▲                                                                            │
      └────────────── until no job is left, or the budget is used up ◄─────────────┘

An event applies only to rows that are unchanged since they were read. So the job is safe to run
while a broker's caretaker or a second run works, and a killed run leaves at most an unreferenced
object.
If records were deleted or compacted in the meantime, the states before and after differ and are not
compared, and the report says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.cluster.state.state import State
from rookery.direct.blockinglog import BlockingLog, open_shared
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress, check_host, host_mark
from rookery.errors import ConfigError, Corrupt, Gone
from rookery.jobs.limits import limits_of
from rookery.jobs.move.rangereads import plan_ranges, read
from rookery.jobs.proof import COLUMNS, Proof, prove
from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, JobStep, Requests
from rookery.jobs.tasks import run_tasks, slots
from rookery.log.maintain.plan import RewritePlanner
from rookery.log.maintain.rewritejob import MergeJob, RowRange, SegmentJob
from rookery.log.maintain.rewriter import Rewriter
from rookery.log.read.rangeplan import OffsetRange, rows_of
from rookery.log.settings import RewriteSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

NAME: Final = "merge"
# A plan has at most two merges, so this many plans are combined.
_PLANS: Final = 100
# How many times a byte is moved, from small objects to large ones and to a segment.
_TIERS: Final = 4
_READ_BYTES: Final = 8 * 1024 * 1024
# The planner checks how long rows have waited. For an explicit merge, they have waited enough.
_AGES_MS: Final = 10**12
_PROVED: Final = ("offset", *COLUMNS)

Job = MergeJob | SegmentJob


class _Task(NamedTuple):
    place: ClusterAddress
    host: str
    job: Job
    settings: RewriteSettings
    has_proof: bool


class _TaskResult(NamedTuple):
    """The result of a task."""

    rewritten: int
    before: Proof
    after: Proof
    damaged: list[tuple[int, int]]
    """Object ids and positions of unreadable rows."""
    note: str = ""
    """The reason why the proofs are not compared."""


def merge(
    spark: SparkSession,
    place: ClusterAddress,
    topics: Sequence[str] = (),
    run: JobRun | None = None,
    settings: RewriteSettings | None = None,
) -> JobReport:
    """Merge the objects of producers and sinks into larger objects, and those into segments.

    Args:
        spark: the session that runs the tasks.
        place: the location of the log.
        topics: the names of the topics; none: all.
        run: budget, dry run, proof, progress.
        settings: the sizes of merged objects and segments.

    Raises:
        ConfigError: a topic does not exist, or the budget is too small.
        Unavailable: the log cannot be read or written.
    """
    run, settings = run or JobRun(), settings or RewriteSettings()
    with BlockingLog(place, "job-merge") as log:
        _check_topics(log.log.state, topics)
        return _Merge(spark, place, log, run, settings).run(topics)


def _check_topics(state: State, topics: Sequence[str]) -> None:
    for name in topics:
        if name not in state.topics.by_name:
            raise ConfigError(f"there is no topic {name!r} in this cluster")


class _Merge:
    """One run of a merge."""

    def __init__(
        self,
        spark: SparkSession,
        place: ClusterAddress,
        log: BlockingLog,
        run: JobRun,
        settings: RewriteSettings,
    ) -> None:
        self._spark = spark
        self._place = place
        self._log = log
        self._run = run
        self._settings = settings
        self._damaged: set[tuple[int, int]] = set()

    def run(self, topics: Sequence[str]) -> JobReport:
        state = self._log.log.state
        jobs = self._jobs(state, topics)
        if jobs:
            self._run.check_budget(NAME, _part(jobs[0]).what, jobs[0].size)
        count = self._run.choose(job.size for job in jobs)
        objects = len({object_id for job in jobs for object_id in _inputs(state, job)})
        report = JobReport(_plan(jobs, count, objects), is_dry=self._run.dry_run)
        if not self._run.dry_run:
            self._work(report, topics, sum(job.size for job in jobs[:count]))
        return report

    def _work(self, report: JobReport, topics: Sequence[str], total: int) -> None:
        proofs = Proof(), Proof()
        rewritten = 0
        most = self._run.max_bytes or total * _TIERS
        while report.done_bytes < most:
            self._log.run(self._log.log.barrier())
            jobs = self._jobs(self._log.log.state, topics)
            left = JobRun(max_bytes=most - report.done_bytes)
            jobs = jobs[: left.choose(job.size for job in jobs)]
            done = [
                result for some in self._waves(jobs) for result in self._wave(report, some, total)
            ]
            for result in done:
                proofs = proofs[0] + result.before, proofs[1] + result.after
                rewritten += result.rewritten
                self._damaged.update(result.damaged)
                report.notes += [result.note] if result.note else []
            if not any(result.rewritten for result in done):
                break  # nothing to do, or nothing that is possible now
        report.facts["rewritten_bytes"] = rewritten
        report.problems += [
            f"object {object_id} at byte {position} is damaged and stays as it is: run rookery fsck"
            for object_id, position in sorted(self._damaged)
        ]
        if self._run.proof:
            report.before, report.after = proofs
            report.check()

    def _waves(self, jobs: list[Job]) -> Iterator[list[Job]]:
        wave = 2 * slots(self._spark)
        return (jobs[at : at + wave] for at in range(0, len(jobs), wave))

    def _wave(self, report: JobReport, jobs: list[Job], total: int) -> list[_TaskResult]:
        host = host_mark(self._place)
        tasks = [_Task(self._place, host, job, self._settings, self._run.proof) for job in jobs]
        done = run_tasks(self._spark, _rewrite, tasks)
        report.done_bytes += sum(job.size for job in jobs)
        report.slices += 1
        total = max(total, report.done_bytes)
        self._run.progress(JobStep(report.done_bytes, total, f"slice {report.slices}"))
        return done

    def _jobs(self, state: State, topics: Sequence[str]) -> list[Job]:
        """Plan until nothing is left, with each row at most once."""
        planner = RewritePlanner(self._settings)
        taken = set(self._damaged)
        planned: list[Job] = []
        planner.plan(state, 0, damage=taken)  # makes all rows old for the next call
        for _ in range(_PLANS):
            jobs = planner.plan(state, _AGES_MS, before_entry=state.applied, damage=taken)
            fresh = [job for job in jobs if len(_inputs(state, job)) > 1 or _is_loose(state, job)]
            if not fresh:
                break
            planned += fresh
            taken.update(place for job in fresh for place in _places(state, job))
        return [job for whole in planned if (job := _of_topics(state, whole, topics)) is not None]


def _ranges(job: Job) -> tuple[RowRange, ...]:
    return job.ranges if isinstance(job, MergeJob) else (job.range,)


def _places(state: State, job: Job) -> Iterable[tuple[int, int]]:
    """Return the locations of a job's rows."""
    for range_ in _ranges(job):
        partition = state.topics.partition(range_.topic_id, range_.partition)
        span = partition.span(range_.base_offset, range_.end_offset) if partition else None
        if partition is not None and span is not None:
            yield from ((partition.objects[index], partition.positions[index]) for index in span)


def _inputs(state: State, job: Job) -> set[int]:
    return {object_id for object_id, _ in _places(state, job)}


def _is_loose(state: State, job: Job) -> bool:
    """Whether a job builds a segment, or moves batches out of an entry or a journal."""
    return isinstance(job, SegmentJob) or any(object_id < 0 for object_id in _inputs(state, job))


def _of_topics(state: State, job: Job, topics: Sequence[str]) -> Job | None:
    """Return the part of a job that covers the given topics; None if it is empty."""
    if not topics:
        return job
    wanted = {state.topics.by_name[name].id for name in topics}
    ranges = tuple(range_ for range_ in _ranges(job) if range_.topic_id in wanted)
    if not ranges:
        return None
    return MergeJob(ranges) if isinstance(job, MergeJob) else job


def _plan(jobs: list[Job], count: int, objects: int) -> JobPlan:
    parts = list(map(_part, jobs))
    size = sum(part.bytes for part in parts[:count])
    puts = sum(1 if isinstance(job, MergeJob) else 3 for job in jobs[:count])
    requests = Requests(size // _READ_BYTES + objects, puts)
    facts: dict[str, object] = {"objects": objects}
    return JobPlan(NAME, tuple(parts[:count]), tuple(parts[count:]), requests, facts)


def _part(job: Job) -> JobPart:
    return JobPart(f"{job.kind} of {len(_ranges(job))} ranges", job.size)


# Code that runs in the tasks.


def _rewrite(task: _Task) -> _TaskResult:
    check_host(task.place, task.host)
    log = open_shared(task.place)
    known = _find_objects(log.run(log.log.barrier()), task.job)
    before = _prove(task)
    rewritten, damaged, made = log.run(_carry_out(log.log, task))
    after = _prove(task)
    if isinstance(before, Gone) or isinstance(after, Gone):
        gone = before if isinstance(before, Gone) else after
        return _TaskResult(rewritten, Proof(), Proof(), damaged, f"not compared: {gone}")
    log.run(log.log.barrier())
    if task.has_proof and (note := _check_compacted(log.log.state, task.job, known, made)):
        return _TaskResult(rewritten, Proof(), Proof(), damaged, note)
    return _TaskResult(rewritten, before, after, damaged)


def _prove(task: _Task) -> Proof | Gone:
    """Sum up the committed records at the offsets of a job, which it must not change.

    If some of them were deleted, return that error instead.
    """
    if not task.has_proof:
        return Proof()
    wanted = [
        OffsetRange(range_.topic_id, range_.partition, range_.base_offset, range_.end_offset)
        for range_ in _ranges(task.job)
    ]
    try:
        return prove(read(task.place, plan_ranges(task.place, wanted), _PROVED))
    except Corrupt:
        return Proof()  # the job itself skips such rows and reports them
    except Gone as error:
        return error


def _check_compacted(
    state: State, job: Job, known: dict[RowRange, set[int]], made: set[int]
) -> str:
    """Check whether others may have removed records: some are in objects not made by this job."""
    for range_, objects in _find_objects(state, job).items():
        topic = state.topics.by_id[range_.topic_id]
        if limits_of(state, topic).is_compacted and not objects <= known.get(range_, set()) | made:
            return f"{topic.name}-{range_.partition} was not compared: others rewrote it meanwhile"
    return ""


def _find_objects(state: State, job: Job) -> dict[RowRange, set[int]]:
    """Return the objects that contain a job's offsets, regardless of row boundaries."""
    objects = {}
    for range_ in _ranges(job):
        partition = state.topics.partition(range_.topic_id, range_.partition)
        if partition is not None and partition.base_offsets:
            rows = rows_of(partition, range_.base_offset, range_.end_offset)
            objects[range_] = {row.object_id for row in rows}
    return objects


async def _carry_out(log: DirectLog, task: _Task) -> tuple[int, list[tuple[int, int]], set[int]]:
    """Return the number of rewritten bytes, the damaged rows and the created objects."""
    numbers = await log.numbers()
    await log.barrier()
    made: set[int] = set()

    def next_id() -> int:
        made.add(number := numbers())
        return number

    rewriter = Rewriter(
        replica=log.replica,
        read=log.read,
        store=log.store,
        clock=log.clock,
        next_id=next_id,
        namespace=log.namespace,
        settings=task.settings,
    )
    # Rows that have changed since they were planned are skipped; the next plan covers them.
    return await rewriter.rewrite(task.job), sorted(rewriter.damage), made
