"""A stream's position: enough to resume exactly after the last row that was returned.

An offset alone is not enough. The order of rows, and which rows are late, depend on the highest
time seen in each partition. A checkpoint therefore stores that time (the partition's clock) with
each offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rookery.errors import ConfigError
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition

VERSION: Final = 1
NO_TIME: Final = -(1 << 62)
"""The clock of a partition in which no time has been seen yet."""

_RANGE: Final = r"\d{1,18}-\d{1,18}"
_NOTE: Final = re.compile(rf"rookery-clock=(-?\d{{1,19}})(?:;passed=({_RANGE}(?:,{_RANGE})*))?")
# Brokers reject commit metadata of more than 4096 bytes by default.
_MAX_NOTE: Final = 4_000


class PartitionMark(NamedTuple):
    """The position in one partition."""

    offset: int
    """The lowest offset that was not returned."""
    clock: int = NO_TIME
    """The highest time of the rows before the offset."""
    passed: tuple[tuple[int, int], ...] = ()
    """With a lateness allowance: ranges of later offsets that were already returned, as pairs of
    first offset and end (exclusive)."""

    def to_list(self) -> list[Any]:
        """Return it as plain values."""
        passed = [list(pair) for pair in self.passed]
        return [self.offset, self.clock, passed] if passed else [self.offset, self.clock]

    @classmethod
    def of_list(cls, values: list[Any]) -> PartitionMark:
        """Parse the result of `to_list`."""
        offset, clock, *rest = values
        passed = tuple((int(begin), int(end)) for begin, end in (rest[0] if rest else ()))
        return cls(int(offset), int(clock), passed)

    @classmethod
    def of_commit(cls, committed: CommittedOffset) -> PartitionMark:
        """Return the position that a group has committed, by any client."""
        note = _NOTE.fullmatch(committed.metadata)
        if note is None:
            return cls(committed.offset)
        ranges = [part.split("-") for part in (note[2] or "").split(",") if part]
        passed = tuple((int(begin), int(end)) for begin, end in ranges)
        return cls(committed.offset, int(note[1]), passed)

    def to_commit(self) -> CommittedOffset:
        """Return the commit: the offset, with the rest as commit metadata.

        Ranges that do not fit into the metadata are dropped, so their rows are returned again.
        """
        note = self._note
        if not self.has_room:
            note = self._replace(passed=())._note
        return CommittedOffset(self.offset, note)

    @property
    def has_room(self) -> bool:
        """Whether the whole mark fits into a commit."""
        return len(self._note) <= _MAX_NOTE

    @property
    def _note(self) -> str:
        passed = ",".join(f"{begin}-{end}" for begin, end in self.passed)
        return f"rookery-clock={self.clock}" + (f";passed={passed}" if passed else "")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position in every partition of a stream, and the settings that its order depends on."""

    partitions: Mapping[TopicPartition, PartitionMark]
    topics: tuple[str, ...] = ()
    """In the order that breaks ties."""
    lateness_ms: int = 0
    max_time_ms: int | None = None
    """A row with a later time is treated as an error."""
    frontier_ms: int = NO_TIME
    """The time in the sort key of the last row that was returned."""
    rows: int = 0
    """The number of rows that were returned since the first start."""
    version: int = field(default=VERSION)
    stays: Mapping[TopicPartition, int] = field(default_factory=dict, compare=False, repr=False)
    """The assignment of each partition that the checkpoint belongs to. A partition that the group
    revoked and assigned again has a new number. This field is not serialised."""

    def to_json(self) -> str:
        """Return the checkpoint as JSON, to store in a file or column."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        marks: dict[str, dict[str, list[Any]]] = {}
        for place, mark in sorted(self.partitions.items()):
            marks.setdefault(place.topic, {})[str(place.partition)] = mark.to_list()
        return {
            "version": self.version,
            "topics": list(self.topics),
            "lateness_ms": self.lateness_ms,
            "max_time_ms": self.max_time_ms,
            "frontier_ms": self.frontier_ms,
            "rows": self.rows,
            "partitions": marks,
        }

    @classmethod
    def from_json(cls, text: str) -> Checkpoint:
        """Parse the result of `to_json`.

        Raises:
            ConfigError: the text is not a checkpoint, or has a later version.
        """
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"not a checkpoint: {error}") from None
        return cls.from_dict(fields)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Checkpoint:
        """Parse the result of `to_dict`.

        Raises:
            ConfigError: the mapping is not a checkpoint, or has a later version.
        """
        try:
            if fields["version"] != VERSION:
                raise ConfigError(
                    f"the checkpoint has version {fields['version']}, this Rookery reads {VERSION}"
                )
            marks = {
                TopicPartition(topic, int(number)): PartitionMark.of_list(mark)
                for topic, numbers in fields["partitions"].items()
                for number, mark in numbers.items()
            }
            max_time_ms = fields["max_time_ms"]
            return cls(
                marks,
                tuple(map(str, fields["topics"])),
                int(fields["lateness_ms"]),
                None if max_time_ms is None else int(max_time_ms),
                int(fields["frontier_ms"]),
                int(fields["rows"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"not a checkpoint: {type(error).__name__} {error}") from None

    def commits(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the commits: offsets, with the rest as commit metadata."""
        return {place: mark.to_commit() for place, mark in self.partitions.items()}

    def offsets(self) -> dict[TopicPartition, int]:
        """Return the next offset of every partition, as a group commits it."""
        return {place: mark.offset for place, mark in self.partitions.items()}
