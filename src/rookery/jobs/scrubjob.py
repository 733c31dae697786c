"""Reads all data that the log refers to, and checks every byte.

    state ──► objects after the cursor ───► a slice of them ──► tasks: every batch by its CRC
                        ▲                                                    │
                        └──────────── cursor, in the cluster log ◄───────────┘

A run that is killed, or has used up its budget, resumes where it stopped. Its findings are stored
with the cursor until a run completes and reports them; otherwise a killed run would lose them. Rows
that are rewritten in the meantime are checked by the rewriting process, and again as part of the
new object in its turn.

The proof covers the rows of the cluster log: those that it names in the objects of a task, and
those of them that were read and are valid. If others move rows in the meantime, both refer to one
version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from rookery.direct.blockinglog import BlockingLog, SharedLogs
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress, check_host, host_mark
from rookery.jobs.progress import Ledger
from rookery.jobs.proof import Proof, prove
from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, JobStep, Requests
from rookery.jobs.tasks import run_tasks, slots
from rookery.log.check.fault import LogFault
from rookery.log.check.objects import ObjectCheck, Suspect
from rookery.log.check.rows import OffsetSpan, RowTable
from rookery.log.check.sources import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "scrub"
_TASK_BYTES: Final = 64 * 1024 * 1024
_TASKS_PER_SLOT: Final = 2
_READ_BYTES: Final = 4 * 1024 * 1024
_ROUNDS: Final = 5
_MAX_FAULTS: Final = 1000
# The limits of the faults stored with the cursor, so that they fit an entry of the cluster log.
_KEPT_FAULTS: Final = 100
_KEPT_CHARACTERS: Final = 500


class _Object(NamedTuple):
    """An object, and how many of its bytes the log references."""

    object_id: int
    bytes: int

    @property
    def order(self) -> tuple[bool, int]:
        return self.object_id > 0, abs(self.object_id)


class _Task(NamedTuple):
    place: ClusterAddress
    host: str
    object_ids: frozenset[int]


class _ScrubResult(NamedTuple):
    """The findings of a task."""

    records: int
    faults: list[LogFault]
    named: Proof
    """The proof of the rows that the cluster log names in its objects."""
    sound: Proof
    """The proof of the rows without faults."""


class _Faults:
    """Faults that are not yet reported, including those of earlier runs."""

    def __init__(self, position: dict[str, Any]) -> None:
        self.texts: list[str] = list(position.get("faults", ()))
        self.count = int(position.get("fault_count", 0))

    def add(self, faults: list[LogFault]) -> None:
        self.count += len(faults)
        room = _MAX_FAULTS - len(self.texts)
        self.texts += [
            f"{fault.kind} {fault.key}: {fault.text} → {fault.advice}"
            for fault in faults[: max(room, 0)]
        ]

    def position(self) -> dict[str, Any]:
        """Return the part that is stored with the cursor: the faults that fit, and their number."""
        if not self.count:
            return {}
        kept = [text[:_KEPT_CHARACTERS] for text in self.texts[:_KEPT_FAULTS]]
        return {"faults": kept, "fault_count": self.count}


def scrub(
    spark: SparkSession, place: ClusterAddress, run: JobRun | None = None, *, restart: bool = False
) -> JobReport:
    """Verify the checksum of every batch and of every segment of the log.

    Args:
        spark: the session that runs the tasks.
        place: the location of the log.
        run: budget, dry run, proof, progress.
        restart: start with the first object, regardless of where the last run stopped.

    Raises:
        ConfigError: the log cannot be opened, or the budget is too small.
        Unavailable: the log cannot be read.
    """
    run = run or JobRun()
    with BlockingLog(place, "job-scrub") as log:
        return _Scrub(spark, place, log, run).run(restart=restart)


class _Scrub:
    """One run of a scrub."""

    def __init__(
        self, spark: SparkSession, place: ClusterAddress, log: BlockingLog, run: JobRun
    ) -> None:
        self._spark = spark
        self._place = place
        self._log = log
        self._run = run
        self._host = host_mark(place)
        self._ledger = Ledger(log.log, NAME, NAME)
        self._slice_bytes = slots(spark) * _TASKS_PER_SLOT * _TASK_BYTES

    def run(self, *, restart: bool) -> JobReport:
        at = self._log.run(self._ledger.read())
        cursor = (False, -1) if restart else _cursor(at.position)
        objects = _objects_after(self._log.log, cursor)
        if objects:
            self._run.check_budget(NAME, f"object {objects[0].object_id}", objects[0].bytes)
        count = self._run.choose(item.bytes for item in objects)
        report = JobReport(self._plan(objects, count), is_dry=self._run.dry_run)
        if not self._run.dry_run:
            size = sum(item.bytes for item in objects[:count])
            self._work(report, at.batch_id, cursor, size, _Faults(at.position))
        return report

    def _plan(self, objects: list[_Object], count: int) -> JobPlan:
        size = sum(item.bytes for item in objects[:count])
        rest = sum(item.bytes for item in objects[count:])
        parts = (JobPart(f"{count} objects", size),) if count else ()
        left = (JobPart(f"{len(objects) - count} objects", rest),) if rest else ()
        return JobPlan(NAME, parts, left, Requests(gets=count * 3 + size // _READ_BYTES))

    def _work(
        self, report: JobReport, batch_id: int, cursor: tuple[bool, int], size: int, faults: _Faults
    ) -> None:
        records = 0
        named, sound = Proof(), Proof()
        while report.done_bytes < size:
            slice_ = self._next(cursor, size - report.done_bytes)
            if not slice_:
                break
            tasks = [_Task(self._place, self._host, ids) for ids in _shares(slice_)]
            for task in run_tasks(self._spark, _check, tasks):
                records += task.records
                faults.add(task.faults)
                named, sound = named + task.named, sound + task.sound
            cursor = slice_[-1].order
            report.done_bytes += sum(item.bytes for item in slice_)
            report.slices += 1
            self._log.run(self._ledger.commit(batch_id, _position(cursor) | faults.position()))
            batch_id += 1
            text = f"{records:,} records checked, {faults.count:,} faults"
            self._run.progress(JobStep(report.done_bytes, size, text))
        self._end(batch_id, cursor, faults)
        report.facts |= {"rows": named.rows, "records": records, "faults": faults.count}
        report.problems += faults.texts
        if self._run.proof:
            report.before, report.after = named, sound
        if not faults.count:  # otherwise the faults are more specific
            report.check()

    def _end(self, batch_id: int, cursor: tuple[bool, int], faults: _Faults) -> None:
        """Record that all faults are reported; the next run starts over if no objects are left."""
        is_last = not _objects_after(self._log.log, cursor)
        if is_last or faults.count:
            self._log.run(self._ledger.commit(batch_id, {} if is_last else _position(cursor)))

    def _next(self, cursor: tuple[bool, int], left: int) -> list[_Object]:
        """Return the next slice of the current objects."""
        self._log.run(self._log.log.barrier())
        slice_: list[_Object] = []
        size = 0
        for item in _objects_after(self._log.log, cursor):
            size += item.bytes
            if slice_ and size > min(self._slice_bytes, left):
                break
            slice_.append(item)
        return slice_


def _position(cursor: tuple[bool, int]) -> dict[str, Any]:
    return {"after": list(cursor)}


def _cursor(position: dict[str, Any]) -> tuple[bool, int]:
    is_object, number = position.get("after", (False, -1))
    return bool(is_object), int(number)


def _objects_after(log: DirectLog, cursor: tuple[bool, int]) -> list[_Object]:
    """Return the objects after the cursor, in order."""
    sizes: dict[int, int] = {}
    for topic in log.state.topics:
        for partition in topic.partitions:
            for object_id, size in zip(partition.objects, partition.sizes, strict=True):
                if object_id:
                    sizes[object_id] = sizes.get(object_id, 0) + size
    objects = (_Object(*item) for item in sizes.items())
    return sorted((item for item in objects if item.order > cursor), key=lambda item: item.order)


def _shares(slice_: list[_Object]) -> Iterator[frozenset[int]]:
    """Cut a slice into tasks."""
    ids: list[int] = []
    size = 0
    for item in slice_:
        ids.append(item.object_id)
        size += item.bytes
        if size >= _TASK_BYTES:
            yield frozenset(ids)
            ids, size = [], 0
    if ids:
        yield frozenset(ids)


# Code that runs in the tasks.

# A separate log: the state must not change during a check, and writers advance it.
_LOGS: SharedLogs[BlockingLog] = SharedLogs(
    lambda place: BlockingLog(place, "scrub"), BlockingLog.finish
)


def _check(task: _Task) -> _ScrubResult:
    check_host(task.place, task.host)
    log = _LOGS.get(task.place)
    return log.run(_check_objects(log.log, task.object_ids))


async def _check_objects(log: DirectLog, object_ids: frozenset[int]) -> _ScrubResult:
    await log.barrier()
    rows = RowTable.of(log.state, object_ids.__contains__)
    checked = 0

    def note(_size: int, records: int) -> None:
        nonlocal checked
        checked += records

    suspects = await _suspects(log, rows, note)
    named = _places(rows)
    confirmed = await _confirm(log, suspects)
    spans = {suspect.span for suspect in confirmed}
    sound = [row for row in named if not _is_within(row, spans)]
    return _ScrubResult(
        checked, [suspect.fault for suspect in confirmed], _prove(named), _prove(sound)
    )


class _NamedRow(NamedTuple):
    """A row as the cluster log names it."""

    span: OffsetSpan
    object_id: int
    position: int
    size: int


def _places(rows: RowTable) -> list[_NamedRow]:
    """Copy the rows, because the state is about to change."""
    return [
        _NamedRow(row.span, row.row.object_id, row.row.position, row.row.size)
        for object_id in rows.objects
        for row in rows.in_object(object_id)
    ]


def _is_within(row: _NamedRow, spans: Collection[OffsetSpan]) -> bool:
    return any(
        row.span[:2] == other[:2]
        and row.span.base_offset < other.end_offset
        and other.base_offset < row.span.end_offset
        for other in spans
    )


def _prove(rows: list[_NamedRow]) -> Proof:
    """Compute the proof of rows from their offsets and locations."""
    values = [b"%b %d %d %d %d" % (*row.span[:2], *row[1:]) for row in rows]
    bases = [row.span.base_offset for row in rows]
    ends = [row.span.end_offset for row in rows]
    columns = {
        "offset": pa.array(bases, pa.int64()),
        "timestamp": pa.array(ends, pa.int64()),
        "value": pa.array(values, pa.binary()),
    }
    return prove([pa.record_batch(columns)])


async def _suspects(log: DirectLog, rows: RowTable, note: Any) -> list[Suspect]:
    handles = log.handles
    sources = Sources(
        handles.cluster_log, handles.store, handles.files, handles.namespace, handles.journals
    )
    return await ObjectCheck(sources, log.state, rows, {}, note, is_quick=False).run()


async def _confirm(log: DirectLog, suspects: list[Suspect]) -> list[Suspect]:
    """Check suspects again in newer states until their rows no longer move; return the faults."""
    confirmed: list[Suspect] = []
    for _ in range(_ROUNDS):
        if not suspects:
            break
        before = {suspect[1:] for suspect in suspects}
        await log.barrier()
        rows = RowTable.within(log.state, {suspect.span for suspect in suspects})
        again = await _suspects(log, rows, lambda *_: None)
        confirmed += [suspect for suspect in again if suspect[1:] in before]
        suspects = [suspect for suspect in again if suspect[1:] not in before]
    return confirmed + suspects
