"""Filters that Spark pushes down, converted to bounds on the records to read.

Only filters that certainly exclude records are used, and Spark applies every filter again.
Timestamps give only a lower bound, because the log stores the highest timestamp of a piece, not the
lowest.
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
from rookery.log.read.rangeplan import OffsetRange


@dataclass(frozen=True, slots=True)
class FilterBounds:
    """Bounds on the records to read; None means no bound."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    """The lowest offset."""
    last: int | None = None
    """The highest offset."""
    time_ms: int = -1
    """The lowest timestamp."""

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> FilterBounds:
        """Return the bounds implied by a conjunction of filters; unknown filters are ignored."""
        bounds = cls()
        for condition in filters:
            bounds = bounds._and(condition)
        return bounds

    def whole_partitions(self) -> FilterBounds:
        """Return only the bounds that select whole partitions."""
        return FilterBounds(topics=self.topics, partitions=self.partitions)

    def admits(self, subject: SubscribedPartition) -> bool:
        """Return whether a partition can contain matching records."""
        is_topic = self.topics is None or subject.topic.name in self.topics
        return is_topic and (self.partitions is None or subject.partition.index in self.partitions)

    def within(self, range_: OffsetRange) -> OffsetRange:
        """Return the part of a range that can contain matching records."""
        end = range_.end if self.last is None else min(range_.end, self.last + 1)
        return range_._replace(begin=max(range_.begin, min(self.first, range_.end)), end=end)

    def _and(self, condition: Filter) -> FilterBounds:
        name = ".".join(getattr(condition, "attribute", ()))
        value: Any = getattr(condition, "value", None)
        if name == "topic":
            return replace(self, topics=_among(self.topics, condition, value))
        if name == "partition":
            return replace(self, partitions=_among(self.partitions, condition, value))
        if name == "offset":
            return self._offset(condition, value)
        if name == "timestamp" and isinstance(
            condition, EqualTo | GreaterThan | GreaterThanOrEqual
        ):
            return replace(self, time_ms=max(self.time_ms, _milliseconds(value)))
        return self

    def _offset(self, condition: Filter, value: Any) -> FilterBounds:
        first, last = self.first, self.last
        if isinstance(condition, EqualTo | GreaterThanOrEqual):
            first = max(first, value)
        elif isinstance(condition, GreaterThan):
            first = max(first, value + 1)
        if isinstance(condition, EqualTo | LessThanOrEqual):
            last = value if last is None else min(last, value)
        elif isinstance(condition, LessThan):
            last = value - 1 if last is None else min(last, value - 1)
        return replace(self, first=first, last=last)


def _among(known: frozenset[Any] | None, condition: Filter, value: Any) -> frozenset[Any] | None:
    if not isinstance(condition, EqualTo | In):
        return known
    allowed = frozenset(value) if isinstance(condition, In) else frozenset((value,))
    return allowed if known is None else known & allowed


def _milliseconds(value: Any) -> int:
    """Return a timestamp in the log's unit, rounded down: a bound can be too low, not too high."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return -1  # the session's time zone is not known here
    return int(value.timestamp() * 1000) - 1
