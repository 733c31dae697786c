"""Which partitions are to be compacted, and how far: from the state alone.

    │ clean: one record a key │ dirty │ too young, still growing, or held by a pin │
    log start            cleaned_to  bound                  next offset

A partition is due when its dirty part is large enough against the whole (`min.cleanable.dirty.
ratio`), or has waited for `max.compaction.lag.ms`. What Kafka leaves in its active segment waits
here too: less than `segment.bytes`, or than the smallest worth a rewrite, until `segment.ms`.
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
    """What compaction needs to know of a topic's settings; times in milliseconds."""

    @property
    def is_compacted(self) -> bool:
        """Whether cleanup.policy names 'compact'."""

    @property
    def min_compaction_lag_ms(self) -> int:
        """Records younger than this stay as they are."""

    @property
    def max_compaction_lag_ms(self) -> int:
        """Records that have waited for so long are compacted, however few."""

    @property
    def min_cleanable_dirty_ratio(self) -> float:
        """The part of the log that must be dirty."""

    @property
    def delete_retention_ms(self) -> int:
        """How long a tombstone stays after its first compaction."""

    @property
    def segment_bytes(self) -> int:
        """What Kafka would leave in its active segment."""

    @property
    def segment_ms(self) -> int:
        """… and for how long."""


class Dirt(NamedTuple):
    """What there is to compact in a partition."""

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
"""Where rows lie that cannot be read: object ids and positions."""


def last_stable_offset(partition: Partition) -> int:
    """Return the offset below which every record's fate is decided."""
    return partition.last_stable_offset


def dirt_of(
    topic: Topic, partition: Partition, limits: CompactionLimits, now_ms: int, damage: Damage = ()
) -> Dirt | None:
    """Find the dirty rows of a partition that may be compacted; None if there are none."""
    bases, start = partition.base_offsets, partition.cleaned_to
    first = max(bisect_right(bases, start) - 1, 0)
    if first < len(bases) and partition.row(first).end_offset <= start:
        first += 1
    if first == len(bases) or _is_damaged(partition, range(first), damage):
        # What is damaged may come back with a record that has been overwritten since.
        return None
    held = topic.held_from(partition.index, now_ms)
    stop = first
    while stop < len(bases) and _may_go(partition, stop, limits, now_ms, damage):
        if held is not None and partition.row(stop).end_offset > held:
            break  # a reader may have to read it again
        stop += 1
    if stop == first:
        return None
    return Dirt(
        topic,
        partition,
        max(start, bases[first]),
        partition.row(stop - 1).end_offset,
        sum(partition.sizes[:first]),
        sum(partition.sizes[first:stop]),
        partition.row(first),
    )


def is_due(dirt: Dirt, limits: CompactionLimits, settings: CompactionSettings, age_ms: int) -> bool:
    """Whether a partition should be compacted now; the age is that of its oldest dirty record."""
    if age_ms >= limits.max_compaction_lag_ms:
        return True
    is_enough = (
        dirt.dirty_bytes >= min(settings.min_bytes, limits.segment_bytes)
        or age_ms >= limits.segment_ms
    )
    return is_enough and dirt.ratio >= limits.min_cleanable_dirty_ratio


def has_max_lag(limits: CompactionLimits) -> bool:
    """Whether a topic bounds how long a record may wait."""
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
    # The last row grows while producers write, and a rewrite of it would be void.
    is_tail = index == len(partition.base_offsets) - 1 and not row.kind & _FINAL
    return not is_tail or age_ms >= limits.max_compaction_lag_ms


def _is_damaged(partition: Partition, rows: range, damage: Damage) -> bool:
    if not damage:
        return False
    objects, positions = partition.objects, partition.positions
    return any((objects[index], positions[index]) in damage for index in rows)
