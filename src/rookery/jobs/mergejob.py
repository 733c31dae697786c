"""Small objects into large ones, on Spark: the caretaker's own jobs, many of them at a time.

    state ──► jobs that want different rows ──► tasks: read, check, write, Replaced ──► again, until
    there is nothing left to do or the budget is used up

An event counts only for rows that are still the ones that were read, so neither a broker's
caretaker nor a second run can be harmed, nor a killed run leave anything worse than an object that
nothing names. If records were deleted or compacted meanwhile, what was there before and what is
there now are different things and are not compared, which the report says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.cluster.state.state import State
from rookery.direct.blockinglog import BlockingLog, shared
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress, check_host, host_mark
from rookery.direct.plan import OffsetRange, rows_of
from rookery.errors import ConfigError, Corrupt, Gone
from rookery.jobs.limits import limits_of
from rookery.jobs.proof import COLUMNS, Proof, prove
from rookery.jobs.rangereads import plan_ranges, read
from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, JobStep, Requests
from rookery.jobs.tasks import run_tasks, slots
from rookery.log.maintain.plan import MergeJob, RewritePlanner, RowRange, SegmentJob
from rookery.log.maintain.rewriter import Rewriter
from rookery.log.settings import RewriteSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

NAME: Final = "merge"
# A plan has two merges at most; so many are put together.
_PLANS: Final = 100
# How often a byte is moved on, from small objects to large ones and to a segment.
_TIERS: Final = 4
_READ_BYTES: Final = 8 * 1024 * 1024
# The planner asks how long things have waited: for someone who asks for a merge, long enough.
_AGES_MS: Final = 10**12
_PROVED: Final = ("offset", *COLUMNS)

Job = MergeJob | SegmentJob


class _Task(NamedTuple):
    place: ClusterAddress
    host: str
    job: Job
    settings: RewriteSettings
    has_proof: bool


class _Done(NamedTuple):
    """What a task has done."""

    rewritten: int
    before: Proof
    after: Proof
    damaged: list[tuple[int, int]]
    """Object ids and positions of rows that cannot be read."""
    note: str = ""
    """Why the proofs are not compared."""


def merge(
    spark: SparkSession,
    place: ClusterAddress,
    topics: Sequence[str] = (),
    run: JobRun | None = None,
    settings: RewriteSettings | None = None,
) -> JobReport:
    """Merge what producers and sinks have written into larger objects, and those into segments.

    Args:
        spark: where the tasks run.
        place: where the log lies.
        topics: their names; none: all.
        run: budget, dry run, proof, progress.
        settings: how large merged objects and segments are.

    Raises:
        ConfigError: a topic is not there, or the budget is too little.
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
    """One run."""

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
        objects = len({one for job in jobs for one in _inputs(state, job)})
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
            done = [one for some in self._waves(jobs) for one in self._wave(report, some, total)]
            for one in done:
                proofs = proofs[0] + one.before, proofs[1] + one.after
                rewritten += one.rewritten
                self._damaged.update(one.damaged)
                report.notes += [one.note] if one.note else []
            if not any(one.rewritten for one in done):
                break  # nothing to do, or nothing that can be done now
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

    def _wave(self, report: JobReport, jobs: list[Job], total: int) -> list[_Done]:
        host = host_mark(self._place)
        tasks = [_Task(self._place, host, job, self._settings, self._run.proof) for job in jobs]
        done = run_tasks(self._spark, _rewrite, tasks)
        report.done_bytes += sum(job.size for job in jobs)
        report.slices += 1
        total = max(total, report.done_bytes)
        self._run.progress(JobStep(report.done_bytes, total, f"slice {report.slices}"))
        return done

    def _jobs(self, state: State, topics: Sequence[str]) -> list[Job]:
        """Plan until nothing is left, no row twice."""
        planner = RewritePlanner(self._settings)
        taken = set(self._damaged)
        found: list[Job] = []
        planner.plan(state, 0, damage=taken)  # which makes all of it old at the next one
        for _ in range(_PLANS):
            jobs = planner.plan(state, _AGES_MS, before_entry=state.applied, damage=taken)
            fresh = [job for job in jobs if len(_inputs(state, job)) > 1 or _is_loose(state, job)]
            if not fresh:
                break
            found += fresh
            taken.update(place for job in fresh for place in _places(state, job))
        return [job for one in found if (job := _of_topics(state, one, topics)) is not None]


def _ranges(job: Job) -> tuple[RowRange, ...]:
    return job.ranges if isinstance(job, MergeJob) else (job.range,)


def _places(state: State, job: Job) -> Iterable[tuple[int, int]]:
    """Return where the rows of a job lie."""
    for one in _ranges(job):
        partition = state.topics.partition(one.topic_id, one.partition)
        span = partition.span(one.base_offset, one.end_offset) if partition else None
        if partition is not None and span is not None:
            yield from ((partition.objects[index], partition.positions[index]) for index in span)


def _inputs(state: State, job: Job) -> set[int]:
    return {object_id for object_id, _ in _places(state, job)}


def _is_loose(state: State, job: Job) -> bool:
    """Whether a job makes a segment, or moves batches out of an entry or a journal."""
    return isinstance(job, SegmentJob) or any(one < 0 for one in _inputs(state, job))


def _of_topics(state: State, job: Job, topics: Sequence[str]) -> Job | None:
    """Return the part of a job that is about some topics; None if nothing is."""
    if not topics:
        return job
    wanted = {state.topics.by_name[name].id for name in topics}
    ranges = tuple(one for one in _ranges(job) if one.topic_id in wanted)
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


# In the tasks.


def _rewrite(task: _Task) -> _Done:
    check_host(task.place, task.host)
    log = shared(task.place)
    known = _lying(log.run(log.log.barrier()), task.job)
    before = _prove(task)
    rewritten, damaged, made = log.run(_carry_out(log.log, task))
    after = _prove(task)
    if isinstance(before, Gone) or isinstance(after, Gone):
        gone = before if isinstance(before, Gone) else after
        return _Done(rewritten, Proof(), Proof(), damaged, f"not compared: {gone}")
    log.run(log.log.barrier())
    if task.has_proof and (note := _compacted(log.log.state, task.job, known, made)):
        return _Done(rewritten, Proof(), Proof(), damaged, note)
    return _Done(rewritten, before, after, damaged)


def _prove(task: _Task) -> Proof | Gone:
    """Sum up the committed records at the offsets of a job, which it must not change.

    Where some of them are gone by now, say so instead.
    """
    if not task.has_proof:
        return Proof()
    wanted = [
        OffsetRange(one.topic_id, one.partition, one.base_offset, one.end_offset)
        for one in _ranges(task.job)
    ]
    try:
        return prove(read(task.place, plan_ranges(task.place, wanted), _PROVED))
    except Corrupt:
        return Proof()  # the job itself leaves such rows alone, and says which
    except Gone as error:
        return error


def _compacted(state: State, job: Job, known: dict[RowRange, set[int]], made: set[int]) -> str:
    """Say whether others may have taken records out: some lie in objects that we did not make."""
    for one, objects in _lying(state, job).items():
        topic = state.topics.by_id[one.topic_id]
        if limits_of(state, topic).is_compacted and not objects <= known.get(one, set()) | made:
            return f"{topic.name}-{one.partition} was not compared: others rewrote it meanwhile"
    return ""


def _lying(state: State, job: Job) -> dict[RowRange, set[int]]:
    """Return the objects that the offsets of a job lie in, however they are cut into rows."""
    found = {}
    for one in _ranges(job):
        partition = state.topics.partition(one.topic_id, one.partition)
        if partition is not None and partition.base_offsets:
            rows = rows_of(partition, one.base_offset, one.end_offset)
            found[one] = {row.object_id for row in rows}
    return found


async def _carry_out(log: DirectLog, task: _Task) -> tuple[int, list[tuple[int, int]], set[int]]:
    """Return how many bytes were rewritten, what is damaged, and the objects that were made."""
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
    # Rows that have changed since they were planned for are left: the next plan sees them anew.
    return await rewriter.rewrite(task.job), sorted(rewriter.damage), made
