"""Moves records between topics in slices, each committed atomically and exactly once.

    place in the cluster log ──► next slice ──► tasks stage it ──► one commit: its records and the
           ▲                                                       place after it
           └────────────────── map written, records read back and compared ◄──┘

Tasks are in offset order (or time order), and so are the objects of a commit. So the records of
each partition, and of each key, keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from rookery.cluster.state.state import State
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.commit import Commit
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress, check_host, host_mark
from rookery.direct.timeorder import SpanShare
from rookery.errors import ConfigError, Conflict
from rookery.jobs.move.movetask import Move, MoveResult, move
from rookery.jobs.move.offsetmap import OffsetMapFolder, map_offsets, slice_name
from rookery.jobs.move.pinnedtopics import PinnedTopics
from rookery.jobs.move.rangereads import plan_ranges, read
from rookery.jobs.move.route import TopicRoute
from rookery.jobs.progress import Ledger
from rookery.jobs.proof import COLUMNS, Proof, prove
from rookery.jobs.report import JobReport, JobRun, JobStep
from rookery.jobs.tasks import run_tasks
from rookery.log.read.rangeplan import OffsetRange, PlannedRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Offsets = dict[str, dict[str, int]]
"""By topic and partition."""
_ANOTHER_RUN: Final = "another run of this job is at work; let it end, or wait for it"


class TransferSlice(NamedTuple):
    """The records that are moved and committed together."""

    shares: Sequence[list[PlannedRange] | SpanShare]
    """One for each task, in order."""
    bytes: int
    position: dict[str, Any]
    """The job's position after it."""


class SliceCutter(Protocol):
    """Cuts the records to move into slices."""

    def next(self, position: dict[str, Any], max_bytes: int) -> TransferSlice | None:
        """Return the slice after a position; None if there is none, or none within the limit."""

    def same(self, position: dict[str, Any]) -> TransferSlice:
        """Return the slice that ended at a position again."""


@dataclass(kw_only=True, slots=True)
class Transfer:
    """One run of a transfer."""

    spark: SparkSession
    source: ClusterAddress
    target: ClusterAddress
    log: BlockingLog
    """The log of the target."""
    ledger: Ledger
    route: TopicRoute
    cutter: SliceCutter
    holding: PinnedTopics
    run: JobRun
    packing: PackSettings = field(default_factory=PackSettings)
    offset_map: OffsetMapFolder | None = None
    proved: tuple[str, ...] = COLUMNS

    def work(self, report: JobReport, total: int) -> None:
        """Move one slice after another, until everything is done or the budget is used up.

        Raises:
            Conflict: another run of the same job is active, or another writer writes to the target.
            ConfigError: the budget is too small for any slice.
            Error: the move failed; committed slices remain.
        """
        with self.holding:
            self._work(report, total)

    def _work(self, report: JobReport, total: int) -> None:
        at = self.log.run(self.ledger.read())
        if at.position:
            self._complete_map(at.batch_id - 1, at.position)
        elif self.offset_map is not None:
            self.log.run(self.offset_map.check_empty())
        before, after = Proof(), Proof()
        batch_id, position = at.batch_id, at.position
        while True:
            left = self.run.max_bytes - report.done_bytes if self.run.max_bytes else 0
            if self.run.max_bytes and left <= 0:
                break
            self.holding.renew()
            slice_ = self.cutter.next(position, left)
            if slice_ is None and left and not report.slices:
                slice_ = self._least(position, report.plan.job)
            if slice_ is None:
                break
            moved, position = self._move(batch_id, position, slice_)
            before += moved[0]
            after += moved[1]
            report.slices += 1
            report.done_bytes += slice_.bytes
            batch_id += 1
            text = f"{position['rows']:,} records"
            self.run.progress(JobStep(report.done_bytes, max(total, report.done_bytes), text))
        report.facts["rows"] = before.rows
        if self.run.proof:
            report.before, report.after = before, after
            report.check()

    def _least(self, position: dict[str, Any], job: str) -> TransferSlice | None:
        """Return a slice regardless of the budget, and check that it fits; None if none is left."""
        slice_ = self.cutter.next(position, 0)
        if slice_ is not None:
            self.run.check_budget(job, "a slice", slice_.bytes)
        return slice_

    def _move(
        self, batch_id: int, was: dict[str, Any], slice_: TransferSlice
    ) -> tuple[tuple[Proof, Proof], dict[str, Any]]:
        position = {**slice_.position, **self._begin(batch_id, was)}
        self.ledger.check_room(position)
        done = run_tasks(self.spark, move, [self._task(share, batch_id) for share in slice_.shares])
        rows = sum(moved.rows for moved in done)
        position |= {"slice_rows": rows, "rows": slice_.position.get("rows", 0) + rows}
        if any(moved.reached for moved in done):
            self.holding.check()
            position["next"] = _find_reached(position["next"], done)
        objects = [object_id for moved in done for object_id in moved.object_ids]
        commit = self.log.run(self.ledger.commit(batch_id, position, objects))
        self._check(commit, position, rows)
        self._write_map(batch_id, position, done)
        before = sum((moved.proof for moved in done), Proof())
        after = before
        if self.run.proof:
            after = read_back(self.spark, self.target, commit, self.proved)
        return (before, after), position

    def _task(self, share: list[PlannedRange] | SpanShare, batch_id: int | None) -> Move:
        return Move(
            self.source,
            host_mark(self.source),
            self.target,
            host_mark(self.target),
            share,
            self.route,
            self.packing,
            None if batch_id is None else self.ledger.batch(batch_id),
            self.offset_map is not None,
            self.proved,
        )

    # The target.

    def _begin(self, batch_id: int, was: dict[str, Any]) -> dict[str, Any]:
        """Return the facts about a slice that are needed before anything is written.

        Raises:
            Conflict: the written records were deleted, or another writer added records.
        """
        self.log.run(self.ledger.check_targets())
        bases = self._bases()
        if _count_grown(was.get("bases", {}), bases) != was.get("slice_rows", 0):
            if self.log.run(self.ledger.read()).batch_id != batch_id:
                raise Conflict(_ANOTHER_RUN)
            raise Conflict(
                f"another producer has written to {', '.join(self._targets)} since this job began: "
                "the order and the offset map would be wrong; stop it and begin with a new topic"
            )
        position = {"bases": bases, "first": was.get("first", 0) if was else batch_id}
        return position if self.offset_map is None else {**position, "map": self.offset_map.where}

    @property
    def _targets(self) -> list[str]:
        return sorted(set(self.route.targets.values()))

    def _bases(self) -> Offsets:
        """Return the current end offsets of the target's partitions."""
        state: State = self.log.run(self.log.log.barrier())
        return {
            name: {
                str(partition.index): partition.next_offset
                for partition in state.topics.by_name[name].partitions
            }
            for name in self._targets
        }

    def _check(self, commit: Commit, position: dict[str, Any], rows: int) -> None:
        """Refuse to continue if the records are not at the expected offsets."""
        if commit.is_repeated:
            raise Conflict(_ANOTHER_RUN)
        if commit.records != rows:
            raise Conflict(f"{rows} records were moved, but {commit.records} got offsets")
        state = self.log.log.state
        for range_ in commit.ranges:
            name = state.topics.by_id[range_.topic_id].name
            if range_.base_offset != position["bases"][name][str(range_.partition)]:
                raise Conflict(
                    f"another producer writes to {name}-{range_.partition} while it is being "
                    "filled: the offset map would be wrong; stop it and begin with a new topic"
                )

    # The map.

    def _write_map(self, number: int, position: dict[str, Any], done: Sequence[MoveResult]) -> None:
        if self.offset_map is None:
            return
        bases = {
            (name, int(index)): base
            for name, many in position["bases"].items()
            for index, base in many.items()
        }
        table = map_offsets([moved.origins for moved in done], bases)
        self.log.run(self.offset_map.write(number, table))

    def _complete_map(self, number: int, position: dict[str, Any]) -> None:
        """Write the map of the last slice, if a run ended between the commit and the map.

        Raises:
            ConfigError: earlier files are missing, too.
            Conflict: it can no longer be built.
        """
        if self.offset_map is None:
            return
        slices = range(position.get("first", 0), number + 1)
        missing = self.log.run(self.offset_map.find_missing(slices))
        if not missing:
            return
        if missing[0] != number:
            raise ConfigError(
                f"offset map {self.offset_map.where}: {slice_name(missing[0])} is missing; this "
                f"job began with {position.get('map', 'no map')}: name that, or begin with a new "
                "topic"
            )
        slice_ = self.cutter.same(position)
        done = run_tasks(self.spark, move, [self._task(share, None) for share in slice_.shares])
        rows = sum(moved.rows for moved in done)
        if not rows == position["slice_rows"] == _count_grown(position["bases"], self._bases()):
            raise Conflict(
                f"the offset map of slice {number} is missing and cannot be rebuilt: its records "
                "no longer exist in the source, or another producer wrote to the target; begin "
                "with a new topic"
            )
        self._write_map(number, position, done)


def _count_grown(bases: Offsets, now: Offsets) -> int:
    """Return how many offsets the target has assigned since."""
    return sum(
        end - bases.get(name, {}).get(index, 0)
        for name, many in now.items()
        for index, end in many.items()
    )


def _find_reached(begins: Offsets, done: Sequence[MoveResult]) -> Offsets:
    """Return the partitions' positions after a slice; the last task in order decides."""
    reached = {name: dict(many) for name, many in begins.items()}
    for moved in done:
        for (topic, partition), offset in moved.reached.items():
            reached[topic][str(partition)] = offset
    return reached


def read_back(
    spark: SparkSession, place: ClusterAddress, commit: Commit, columns: tuple[str, ...]
) -> Proof:
    """Read the committed records back, and sum them up."""
    host = host_mark(place)
    tasks = [_Back(place, host, OffsetRange(*range_[:4]), columns) for range_ in commit.ranges]
    return sum(run_tasks(spark, _prove_back, tasks), Proof())


class _Back(NamedTuple):
    place: ClusterAddress
    host: str
    wanted: OffsetRange
    proved: tuple[str, ...]


def _prove_back(task: _Back) -> Proof:
    check_host(task.place, task.host)
    return prove(read(task.place, plan_ranges(task.place, [task.wanted]), task.proved))
