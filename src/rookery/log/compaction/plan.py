"""Plans which partitions to compact, and how far, from the state alone.

    │ clean: one record a key │ dirty │ too young, still growing, or held by a pin │
    log start            cleaned_to  bound                  next offset

A partition is due when its dirty part is large enough compared to the whole
(`min.cleanable.dirty.ratio`), or has waited for `max.compaction.lag.ms`. A part that Kafka would
leave in its active segment waits here too, until `segment.ms`: less than `segment.bytes`, or less
than the minimum worth a rewrite.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.cluster.state.topics import Topic
from rookery.log.settings import CompactionSettings

_FINAL: Final = int(RowKind.FINAL)
_NEVER: Final = (1 << 63) - 1


class CompactionLimits(Protocol):
    """The settings of a topic that compaction needs; times in milliseconds."""

    @property
    def is_compacted(self) -> bool:
        """Whether cleanup.policy names 'compact'."""

    @property
    def min_compaction_lag_ms(self) -> int:
        """Records younger than this are not compacted."""

    @property
    def max_compaction_lag_ms(self) -> int:
        """Records that have waited for this long are compacted, even if there are few."""

    @property
    def min_cleanable_dirty_ratio(self) -> float:
        """The minimum dirty part of the log."""

    @property
    def delete_retention_ms(self) -> int:
        """How long a tombstone is kept after its first compaction."""

    @property
    def segment_bytes(self) -> int:
        """The bytes that Kafka would leave in its active segment."""

    @property
    def segment_ms(self) -> int:
        """… and for how long."""


class DirtyRange(NamedTuple):
    """The part of a partition that can be compacted."""

    topic: Topic
    partition: Partition
    start: int
    """The first dirty offset."""
    bound: int
    """The first offset that must not be compacted yet."""
    clean_bytes: int
    dirty_bytes: int
    first: Row
    """The first dirty row."""

    @property
    def ratio(self) -> float:
        """The part that is dirty."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


Damage = Collection[tuple[int, int]]
"""Rows that cannot be read: object ids and positions."""


def last_stable_offset(partition: Partition) -> int:
    """Return the offset below which every transaction is decided."""
    return partition.last_stable_offset


def dirt_of(
    topic: Topic, partition: Partition, limits: CompactionLimits, now_ms: int, damage: Damage = ()
) -> DirtyRange | None:
    """Find the dirty rows of a partition that may be compacted; None if there are none."""
    bases, start = partition.base_offsets, partition.cleaned_to
    first = max(bisect_right(bases, start) - 1, 0)
    if first < len(bases) and partition.row(first).end_offset <= start:
        first += 1
    if first == len(bases) or _is_damaged(partition, range(first), damage):
        # A damaged row may be restored with a record that has been overwritten since.
        return None
    held = topic.held_from(partition.index, now_ms)
    stop = first
    while stop < len(bases) and _may_go(partition, stop, limits, now_ms, damage):
        if held is not None and partition.row(stop).end_offset > held:
            break  # a reader may have to read it again
        stop += 1
    if stop == first:
        return None
    return DirtyRange(
        topic,
        partition,
        max(start, bases[first]),
        partition.row(stop - 1).end_offset,
        sum(partition.sizes[:first]),
        sum(partition.sizes[first:stop]),
        partition.row(first),
    )


def is_due(
    dirt: DirtyRange, limits: CompactionLimits, settings: CompactionSettings, age_ms: int
) -> bool:
    """Whether a partition should be compacted now; the age is that of its oldest dirty record."""
    if age_ms >= limits.max_compaction_lag_ms:
        return True
    is_enough = (
        dirt.dirty_bytes >= min(settings.min_bytes, limits.segment_bytes)
        or age_ms >= limits.segment_ms
    )
    return is_enough and dirt.ratio >= limits.min_cleanable_dirty_ratio


def has_max_lag(limits: CompactionLimits) -> bool:
    """Whether a topic limits how long a record may wait."""
    return limits.max_compaction_lag_ms < _NEVER


def _may_go(
    partition: Partition, index: int, limits: CompactionLimits, now_ms: int, damage: Damage
) -> bool:
    row = partition.row(index)
    age_ms = now_ms - row.max_timestamp
    if row.end_offset > last_stable_offset(partition) or _is_damaged(
        partition, range(index, index + 1), damage
    ):
        return False
    if limits.min_compaction_lag_ms > 0 and age_ms < limits.min_compaction_lag_ms:
        return False
    # The last row grows while producers write, which would void a rewrite of it.
    is_tail = index == len(partition.base_offsets) - 1 and not row.kind & _FINAL
    return not is_tail or age_ms >= limits.max_compaction_lag_ms


def _is_damaged(partition: Partition, rows: range, damage: Damage) -> bool:
    if not damage:
        return False
    objects, positions = partition.objects, partition.positions
    return any((objects[index], positions[index]) in damage for index in rows)
