"""Key compaction on Spark: one task per partition, each doing the caretaker's compaction.

    state ──► dirty partitions, the dirtiest first ──► tasks ──► segments, each by an event of its
    own that counts only if its rows are still the ones that were read

The compaction progress of a partition is part of the state, so an interrupted run can simply be
started again. If a broker's caretaker was faster, the partition is examined again. If the caretaker
went further than the job, or records were deleted in the meantime, the two proofs cover different
data. They are not compared then, and the report says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.clock import SystemRandom
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.direct.blockinglog import BlockingLog, open_shared
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress, check_host, host_mark
from rookery.errors import ConfigError, Conflict, Corrupt, Gone
from rookery.jobs.clocks import read_trusted_time
from rookery.jobs.limits import limits_of
from rookery.jobs.move.rangereads import plan_ranges, read
from rookery.jobs.proof import COLUMNS, Proof, prove_latest
from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, JobStep, Requests
from rookery.jobs.tasks import run_tasks, slots
from rookery.log.compaction.output import Output
from rookery.log.compaction.partition import CompactionTask, PartitionCompaction
from rookery.log.compaction.plan import DirtyRange, dirt_of
from rookery.log.compaction.source import UnreadableRowError
from rookery.log.maintain.newobjects import Publisher
from rookery.log.read.rangeplan import OffsetRange
from rookery.log.settings import CompactionSettings, RewriteSettings
from rookery.records.sieve import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

NAME: Final = "compact"
_ROUNDS: Final = 5
_READ_BYTES: Final = 8 * 1024 * 1024
_PROVED: Final = ("offset", *COLUMNS)


class _Task(NamedTuple):
    place: ClusterAddress
    host: str
    topic_id: bytes
    partition: int
    bound: int
    """The first offset that is not compacted."""
    now_ms: int
    """The time by the driver's clock; no other clock is used."""
    has_proof: bool
    size: int
    """The approximate number of bytes to read."""


class _TaskResult(NamedTuple):
    """The result of a task."""

    replaced: int
    before: Proof
    after: Proof
    fault: str = ""
    """The reason for a failure."""
    note: str = ""
    """The reason why the proofs are not compared."""


_NOTHING: Final = Proof(exact_keys=0)


def compact(
    spark: SparkSession,
    place: ClusterAddress,
    topics: Sequence[str] = (),
    run: JobRun | None = None,
) -> JobReport:
    """Keep the last record of every key, in topics whose cleanup.policy includes 'compact'.

    Args:
        spark: the session that runs the tasks.
        place: the location of the log.
        topics: the topics to compact; none: all compacted topics.
        run: budget, dry run, proof, progress.

    Raises:
        ConfigError: a topic does not exist or is not compacted, this host's clock is wrong, or the
            budget is too small.
        Unavailable: the log cannot be read or written.
    """
    run = run or JobRun()
    with BlockingLog(place, "job-compact") as log:
        now_ms = log.run(read_trusted_time(log.log))
        chosen, left = _fit(_dirty(log.log.state, topics, now_ms), run)
        report = JobReport(_plan(chosen, left), is_dry=run.dry_run)
        if not run.dry_run:
            host = host_mark(place)
            tasks = [_task(place, host, dirt, now_ms, has_proof=run.proof) for dirt in chosen]
            _work(spark, log, tasks, run, report)
        return report


def _dirty(state: State, topics: Sequence[str], now_ms: int) -> list[DirtyRange]:
    """Return the partitions that can be compacted, the dirtiest first."""
    dirty = [
        dirt
        for topic in _choose(state, topics)
        for partition in topic.partitions
        if (dirt := dirt_of(topic, partition, limits_of(state, topic), now_ms))
    ]
    return sorted(dirty, key=lambda dirt: (-dirt.ratio, dirt.topic.name, dirt.partition.index))


def _choose(state: State, names: Sequence[str]) -> list[Topic]:
    if not names:
        return [topic for topic in state.topics if limits_of(state, topic).is_compacted]
    chosen = []
    for name in names:
        topic = state.topics.by_name.get(name)
        if topic is None:
            raise ConfigError(f"there is no topic {name!r} in this cluster")
        if not limits_of(state, topic).is_compacted:
            raise ConfigError(
                f"topic {name!r} is not compacted: set its cleanup.policy to compact first"
            )
        chosen.append(topic)
    return chosen


def _cost(dirt: DirtyRange) -> int:
    """Return the bytes to read: the dirty part twice, for its keys and for its records."""
    return dirt.clean_bytes + 2 * dirt.dirty_bytes


def _fit(dirty: list[DirtyRange], run: JobRun) -> tuple[list[DirtyRange], list[DirtyRange]]:
    """Choose what fits a budget, for a large partition its first part; return also the rest."""
    if not run.max_bytes or not dirty:
        return dirty, []
    least = min(dirty, key=_least)
    run.check_budget(NAME, f"{least.topic.name}-{least.partition.index}", _least(least))
    max_bytes = run.max_bytes
    chosen, left = [], []
    for dirt in dirty:
        part = _cut(dirt, max_bytes)
        if part is not None:
            chosen.append(part)
            max_bytes -= _cost(part)
        if part is None or part.bound < dirt.bound:
            left.append(dirt if part is None else _rest(dirt, part))
    return chosen, left


def _least(dirt: DirtyRange) -> int:
    """Return the minimum number of bytes to read, for the first row alone."""
    return dirt.clean_bytes + 2 * dirt.first.size


def _cut(dirt: DirtyRange, max_bytes: int) -> DirtyRange | None:
    """Return the part of the dirt that can be compacted by reading at most `max_bytes`."""
    if _cost(dirt) <= max_bytes:
        return dirt
    partition = dirt.partition
    size, bound = 0, dirt.start
    for index in range(partition.row_of(dirt.start), len(partition.base_offsets)):
        row = partition.row(index)
        if row.end_offset > dirt.bound or dirt.clean_bytes + 2 * (size + row.size) > max_bytes:
            break
        size, bound = size + row.size, row.end_offset
    return dirt._replace(bound=bound, dirty_bytes=size) if size else None


def _rest(whole: DirtyRange, part: DirtyRange) -> DirtyRange:
    return whole._replace(start=part.bound, dirty_bytes=whole.dirty_bytes - part.dirty_bytes)


def _plan(chosen: list[DirtyRange], left: list[DirtyRange]) -> JobPlan:
    size = sum(map(_cost, chosen))
    segment_bytes = RewriteSettings().segment_bytes
    gets = size // _READ_BYTES + len(chosen)
    requests = Requests(gets, 3 * (size // segment_bytes + len(chosen)))
    return JobPlan(NAME, tuple(map(_part, chosen)), tuple(map(_part, left)), requests)


def _part(dirt: DirtyRange) -> JobPart:
    what = f"{dirt.topic.name}-{dirt.partition.index} offsets {dirt.start} to {dirt.bound - 1}"
    return JobPart(what, _cost(dirt), f"{dirt.ratio:.0%} dirty")


def _task(
    place: ClusterAddress, host: str, dirt: DirtyRange, now_ms: int, *, has_proof: bool
) -> _Task:
    index, bound = dirt.partition.index, dirt.bound
    return _Task(place, host, dirt.topic.id, index, bound, now_ms, has_proof, _cost(dirt))


def _work(
    spark: SparkSession, log: BlockingLog, tasks: list[_Task], run: JobRun, report: JobReport
) -> None:
    total = sum(task.size for task in tasks)
    before = after = _NOTHING
    replaced = 0
    wave = 4 * slots(spark)
    for start in range(0, len(tasks), wave):
        some = tasks[start : start + wave]
        for task, done in zip(some, run_tasks(spark, _compact, some), strict=True):
            before, after = before + done.before, after + done.after
            replaced += done.replaced
            report.done_bytes += task.size
            report.problems += [done.fault] if done.fault else []
            report.notes += [done.note] if done.note else []
        report.slices += 1
        run.progress(JobStep(report.done_bytes, total, f"{replaced:,} bytes replaced"))
    log.run(log.log.barrier())
    report.facts["replaced_bytes"] = replaced
    if run.proof:
        report.before, report.after = before, after
        report.check()


# Code that runs in the tasks.


def _compact(task: _Task) -> _TaskResult:
    check_host(task.place, task.host)
    log = open_shared(task.place)
    start = log.run(_log_start(log.log, task))
    if start is None:
        return _TaskResult(0, _NOTHING, _NOTHING)
    try:
        before = _prove(task, start)
        replaced = log.run(_clean(log.log, task))
        after = _prove(task, start)
    except Corrupt as error:  # the other partitions are not affected
        return _TaskResult(0, _NOTHING, _NOTHING, f"not compacted: {error}")
    if isinstance(before, Gone) or isinstance(after, Gone):
        gone = before if isinstance(before, Gone) else after
        return _TaskResult(replaced, _NOTHING, _NOTHING, note=f"not compared: {gone}")
    if task.has_proof and (further := log.run(_further(log.log, task))):
        return _TaskResult(replaced, _NOTHING, _NOTHING, note=further)
    return _TaskResult(replaced, before, after)


async def _log_start(log: DirectLog, task: _Task) -> int | None:
    await log.barrier()
    partition = log.state.topics.partition(task.topic_id, task.partition)
    return None if partition is None else partition.log_start


async def _further(log: DirectLog, task: _Task) -> str:
    """Check whether others compacted beyond the bound, where a key's last record may be now."""
    await log.barrier()
    topic = log.state.topics.by_id.get(task.topic_id)
    partition = log.state.topics.partition(task.topic_id, task.partition)
    if topic is None or partition is None or partition.cleaned_to <= task.bound:
        return ""
    return (
        f"{topic.name}-{partition.index} was not compared: others have compacted it up to offset "
        f"{partition.cleaned_to} meanwhile"
    )


def _prove(task: _Task, start: int) -> Proof | Gone:
    """Sum up the last record of every key, which compaction must not change; or return why not."""
    if not task.has_proof or start >= task.bound:
        return _NOTHING
    wanted = OffsetRange(task.topic_id, task.partition, start, task.bound)
    try:
        ranges = plan_ranges(task.place, [wanted])
        return prove_latest(lambda: read(task.place, ranges, _PROVED))
    except Gone as error:
        return error


async def _clean(log: DirectLog, task: _Task) -> int:
    """Compact up to the bound; return the number of replaced bytes.

    Raises:
        Corrupt: a row is damaged.
        Conflict: other processes rewrote the partition first, several times.
    """
    replaced = 0
    name = ""
    for _ in range(_ROUNDS):
        numbers = await log.numbers()
        await log.barrier()
        dirt = _dirt(log.state, task)
        if dirt is None:
            return replaced
        name = f"{dirt.topic.name}-{dirt.partition.index}"
        publisher = Publisher(
            replica=log.replica,
            store=log.store,
            clock=log.clock,
            next_id=numbers,
            namespace=log.namespace,
        )
        cleaning = CompactionTask(
            dirt,
            task.now_ms,
            limits_of(log.state, dirt.topic).delete_retention_ms,
            CompactionSettings().map_bytes,
            SystemRandom().token(SEED_BYTES),
        )
        try:
            output = Output(publisher, RewriteSettings())
            async for step in PartitionCompaction(cleaning, output, log.read).run():
                replaced += step.replaced
        except UnreadableRowError as error:
            if not error.refined.is_damaged:
                continue  # it was moved in the meantime
            raise Corrupt(f"{name}: {error}; run rookery fsck") from error
        finally:
            await publisher.condemn_orphans()
    raise Conflict(f"{name}: others rewrote it {_ROUNDS} times while it was compacted")


def _dirt(state: State, task: _Task) -> DirtyRange | None:
    """Find the part below the bound that is not yet compacted."""
    topic = state.topics.by_id.get(task.topic_id)
    partition = state.topics.partition(task.topic_id, task.partition)
    if topic is None or partition is None or partition.cleaned_to >= task.bound:
        return None
    dirt = dirt_of(topic, partition, limits_of(state, topic), task.now_ms)
    if dirt is None or dirt.start >= task.bound:
        return None
    return dirt._replace(bound=min(dirt.bound, task.bound))
