"""Cuts the records to move into slices, by offset or by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rookery.cluster.state.topics import Topic
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.offsets import check_reached, end_of
from rookery.direct.timeorder import SpanShare, span_shares
from rookery.errors import ConfigError, Conflict
from rookery.jobs.move.rangereads import refuse
from rookery.jobs.move.transfer import Offsets, TransferSlice
from rookery.log.read.rangeplan import OffsetRange, PlannedRange, ReadPlanner, TaskSize
from rookery.model.uuid import uuid_text

SLICE_BYTES: Final = 512 * 1024 * 1024
"""The approximate size of a commit."""
# The driver holds the offset map of a slice in memory.
_SLICE_OFFSETS: Final = 4_000_000
_TASK_OFFSETS: Final = 1_000_000
_HALVINGS: Final = 40
_ALL: Final = (1 << 63) - 1


def check_slice_bytes(size: int) -> None:
    """Reject a slice size below 1.

    Raises:
        ConfigError: the size is not positive.
    """
    if size < 1:
        raise ConfigError(f"slice_bytes={size}: must be at least 1 (--slice-bytes)")


def find_topics(log: BlockingLog, names: Sequence[str]) -> list[Topic]:
    """Return topics in the order in which they are named.

    Raises:
        ConfigError: one of them does not exist, or is named twice.
    """
    state = log.run(log.log.barrier())
    missing = [name for name in names if name not in state.topics.by_name]
    if missing or not names or len(set(names)) != len(names):
        what = f"there is no topic {', '.join(missing)} in this cluster" if missing else ""
        raise ConfigError(what or "name the topics, each once")
    return [state.topics.by_name[name] for name in names]


@dataclass(kw_only=True, slots=True)
class _Cutter:
    log: BlockingLog
    """The log of the source."""
    topics: Sequence[str]
    tasks: int
    """The number of tasks that run concurrently."""
    slice_bytes: int = SLICE_BYTES

    def _resolve(self, position: dict[str, Any]) -> dict[str, Any]:
        """Return a position with the ids of its topics.

        Raises:
            Conflict: a topic was recreated, so its offsets refer to other records.
            ConfigError: a topic of the position is no longer among the topics, so its progress
                would be lost.
        """
        ids = {topic.name: uuid_text(topic.id) for topic in find_topics(self.log, self.topics)}
        for name, known in position.get("topics", {}).items():
            if name not in ids:
                raise ConfigError(
                    f"this job is also of topic {name}: name it, too, or begin another job (name)"
                )
            if ids[name] != known:
                raise Conflict(
                    f"topic {name} was deleted and created again since this job read it: begin a "
                    "new job, with a new target"
                )
        return {**position, "topics": ids}

    def _ends(self) -> Offsets:
        """Return the current end offsets of committed records."""
        return {
            topic.name: {
                str(partition.index): end_of(partition, is_committed=True)
                for partition in topic.partitions
            }
            for topic in find_topics(self.log, self.topics)
        }

    def _starts(self) -> Offsets:
        return {
            topic.name: {
                str(partition.index): partition.log_start for partition in topic.partitions
            }
            for topic in find_topics(self.log, self.topics)
        }

    def _plan(self, begins: Offsets, ends: Offsets) -> list[PlannedRange]:
        wanted = []
        for topic in find_topics(self.log, self.topics):
            for index, end in ends[topic.name].items():
                begin = begins.get(topic.name, {}).get(index, 0)
                wanted.append(OffsetRange(topic.id, int(index), begin, end))
        planner = ReadPlanner(self.log.log)
        planned = self.log.run(planner.plan(wanted))
        if planner.gaps:
            refuse(planner.gaps)
        return planned


@dataclass(kw_only=True, slots=True)
class OffsetCutter(_Cutter):
    """Takes the next part of every partition, so that all partitions advance together."""

    until: Offsets = field(default_factory=dict)
    """The end offsets at the start of the run, so that concurrent writers do not prolong it."""

    def measure_rest(self, position: dict[str, Any]) -> int:
        """Start a run; return the number of bytes after a position."""
        self._resolve(position)
        self.until = self._ends()
        begins = self._begins(position)
        for topic in find_topics(self.log, self.topics):
            for partition in topic.partitions:
                begin = begins[topic.name].get(str(partition.index), 0)
                check_reached(topic.name, partition, begin)
        return _size(self._plan(begins, self.until))

    def next(self, position: dict[str, Any], max_bytes: int) -> TransferSlice | None:
        """Return the slice after a position; None if there is none, or none within the limit."""
        begins, ends = self._begins(position), self.until
        ranges = self._plan(begins, ends)
        most = min(self.slice_bytes, max_bytes or self.slice_bytes)
        parts = max(-(-_size(ranges) // most), -(-_offsets(begins, ends) // _SLICE_OFFSETS), 1)
        for _ in range(_HALVINGS):
            if parts > 1:
                stops = _cut(begins, ends, parts)
                ranges = self._plan(begins, stops)
            else:
                stops = ends
            if not max_bytes or _size(ranges) <= max_bytes:
                break
            parts *= 2
        else:
            return None
        if not _offsets(begins, stops):
            return None
        # After the plan, which finds topics by name: ids are never reused.
        return self._slice(ranges, {**self._resolve(position), "was": begins, "next": stops})

    def same(self, position: dict[str, Any]) -> TransferSlice:
        """Return the slice that ended at a position, once more."""
        ranges = self._plan(position["was"], position["next"])
        return self._slice(ranges, self._resolve(position))

    def _begins(self, position: dict[str, Any]) -> Offsets:
        """Return where each partition continues; a new one starts at its log start."""
        known: Offsets = position.get("next", {})
        return {
            name: {index: known.get(name, {}).get(index, start) for index, start in many.items()}
            for name, many in self._starts().items()
        }

    def _slice(self, ranges: list[PlannedRange], position: dict[str, Any]) -> TransferSlice:
        planner = ReadPlanner(self.log.log)
        shares = self.log.run(planner.tasks(ranges, TaskSize(cores=self.tasks)))
        return TransferSlice(shares, _size(ranges), position)


class TimeCutter(_Cutter):
    """Takes consecutive spans of time; records written later are left to another job.

    Its position is an end offset for each partition, and the clock after which all other records
    follow. Without the offsets, records could end up before that clock: compaction may remove the
    record that had the highest timestamp so far.
    """

    def measure_rest(self, position: dict[str, Any]) -> int:
        """Return the number of bytes after a position."""
        return _size(self._ranges(self._begin(position)))

    def next(self, position: dict[str, Any], max_bytes: int) -> TransferSlice | None:
        """Return what follows a position; None if nothing does, or nothing within the bound.

        Only the tasks that read the slice know the position of each partition after it (`next`).
        """
        position = self._begin(position)
        most = min(self.slice_bytes, max_bytes or self.slice_bytes)
        chosen: list[SpanShare] = []
        size = offsets = 0
        for share in self._behind(position, most, most):
            size += share.size
            offsets += share.offsets
            if chosen and (size > most or offsets > _SLICE_OFFSETS):
                break
            chosen.append(share)
        size = sum(share.size for share in chosen)
        if not chosen or (max_bytes and size > max_bytes):
            return None
        was = {"was": position["next"], "was_time": position["time"]}
        return TransferSlice(chosen, size, {**position, **was, "time": chosen[-1].end.clock})

    def same(self, position: dict[str, Any]) -> TransferSlice:
        """Return the slice that ended at a position, once more."""
        was = {"time": position["was_time"], "next": position["was"], "ends": position["next"]}
        shares = self._behind({**position, **was}, self.slice_bytes)
        return TransferSlice(shares, sum(share.size for share in shares), position)

    def _begin(self, position: dict[str, Any]) -> dict[str, Any]:
        if not position:
            known = self._resolve(position)
            return {**known, "time": -1, "next": self._starts(), "ends": self._ends()}
        if "next" not in position:
            raise Conflict(
                "this replay was begun by an earlier version, which has noted a time, but no "
                "offsets: begin with a new target"
            )
        return position

    def _behind(
        self, position: dict[str, Any], max_bytes: int, enough: int = _ALL
    ) -> list[SpanShare]:
        """Return the spans after a position, each of at most `max_bytes` where possible.

        The spans together have just over `enough` bytes; later ones are cut in a later call.
        """
        ranges = self._ranges(position)
        count = max(self.tasks, 2 * -(-_size(ranges) // max_bytes))
        return self.log.run(
            span_shares(
                self.log.log,
                ranges,
                count,
                clock=position["time"],
                max_offsets=_TASK_OFFSETS,
                enough=enough,
            )
        )

    def _ranges(self, position: dict[str, Any]) -> list[PlannedRange]:
        """Plan everything after a position."""
        self._resolve(position)
        _check_starts(position["next"], position["ends"], self._starts())
        ranges = self._plan(position["next"], position["ends"])
        self._resolve(position)  # planned by name, so check that the topics are still the same
        return ranges


def _check_starts(begins: Offsets, ends: Offsets, starts: Offsets) -> None:
    """Refuse to continue if retention deleted records that were not yet replayed."""
    for name, many in begins.items():
        for index, begin in many.items():
            start = starts[name][index]
            if min(start, ends[name][index]) > begin:
                raise Conflict(
                    f"{name}-{index} begins at {start} by now, and was replayed to {begin}: "
                    "records that belong to this replay are gone; raise the topic's retention, and "
                    "begin with a new target"
                )


def _size(ranges: Sequence[PlannedRange]) -> int:
    return sum(planned.size for planned in ranges)


def _offsets(begins: Offsets, ends: Offsets) -> int:
    return sum(
        max(end - begins[name][index], 0)
        for name, many in ends.items()
        for index, end in many.items()
    )


def _cut(begins: Offsets, ends: Offsets, parts: int) -> Offsets:
    """Return the end of the first of `parts` parts."""
    return {
        name: {
            index: begins[name][index] + -(-max(end - begins[name][index], 0) // parts)
            for index, end in many.items()
        }
        for name, many in ends.items()
    }
