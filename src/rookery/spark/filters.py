"""Filters that Spark pushes down, as bounds of what is read.

Only what surely leaves records out is used, and Spark applies every filter again. Times are bounds
from below alone: the log knows the highest time of a piece, not the lowest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from rookery.direct.offsets import SubscribedPartition
from rookery.direct.plan import OffsetRange


@dataclass(frozen=True, slots=True)
class FilterBounds:
    """What may be wanted; None: all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    """The lowest offset."""
    last: int | None = None
    """The highest offset."""
    time_ms: int = -1
    """The lowest time."""

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> FilterBounds:
        """Return what is left by filters that must all hold; those that are not known are kept."""
        bounds = cls()
        for one in filters:
            bounds = bounds._and(one)
        return bounds

    def whole_partitions(self) -> FilterBounds:
        """Return the bounds that leave no record out of a partition that is read."""
        return FilterBounds(topics=self.topics, partitions=self.partitions)

    def admits(self, subject: SubscribedPartition) -> bool:
        """Whether a partition may have wanted records."""
        is_topic = self.topics is None or subject.topic.name in self.topics
        return is_topic and (self.partitions is None or subject.partition.index in self.partitions)

    def within(self, one: OffsetRange) -> OffsetRange:
        """Return the part of a range that may be wanted."""
        end = one.end if self.last is None else min(one.end, self.last + 1)
        return one._replace(begin=max(one.begin, min(self.first, one.end)), end=end)

    def _and(self, one: Filter) -> FilterBounds:
        name = ".".join(getattr(one, "attribute", ()))
        value: Any = getattr(one, "value", None)
        if name == "topic":
            return replace(self, topics=_among(self.topics, one, value))
        if name == "partition":
            return replace(self, partitions=_among(self.partitions, one, value))
        if name == "offset":
            return self._offset(one, value)
        if name == "timestamp" and isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            return replace(self, time_ms=max(self.time_ms, _milliseconds(value)))
        return self

    def _offset(self, one: Filter, value: Any) -> FilterBounds:
        first, last = self.first, self.last
        if isinstance(one, EqualTo | GreaterThanOrEqual):
            first = max(first, value)
        elif isinstance(one, GreaterThan):
            first = max(first, value + 1)
        if isinstance(one, EqualTo | LessThanOrEqual):
            last = value if last is None else min(last, value)
        elif isinstance(one, LessThan):
            last = value - 1 if last is None else min(last, value - 1)
        return replace(self, first=first, last=last)


def _among(known: frozenset[Any] | None, one: Filter, value: Any) -> frozenset[Any] | None:
    if not isinstance(one, EqualTo | In):
        return known
    found = frozenset(value) if isinstance(one, In) else frozenset((value,))
    return found if known is None else known & found


def _milliseconds(value: Any) -> int:
    """Return a time as the log has it, rounded down: a bound may be too low, not too high."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return -1  # nobody here knows the session's zone
    return int(value.timestamp() * 1000) - 1
