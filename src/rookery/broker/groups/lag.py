"""The lag of each group in records, as metrics of the broker that coordinates it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from rookery import metrics
from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.clock import Clock
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import Group, unpack_offset
from rookery.service.looppace import LoopPace

# `GroupLag` has its own limit: one child for all others would sum unrelated numbers.
_UNBOUNDED: Final = 1_000_000

LAG: Final = metrics.gauges(
    "rookery_groups_lag_records",
    "Records between a group's committed offset and the end of the partition.",
    ("group", "topic", "partition"),
    _UNBOUNDED,
)
OMITTED: Final = metrics.gauge(
    "rookery_groups_lag_omitted_partitions",
    "Committed offsets without a lag metric, because group_lag_partitions are shown already.",
)


class GroupLag:
    """Updates the lag metrics of this broker's groups."""

    def __init__(
        self, groups: GroupCoordinator, replica: Replica, clock: Clock, limit: int
    ) -> None:
        """Expose nothing yet.

        Args:
            groups: determines which groups belong to this broker.
            replica: has the offsets and the ends of partitions.
            clock: paces the work.
            limit: the maximum number of partitions to expose, which also limits the work.
        """
        self._groups = groups
        self._replica = replica
        self._clock = clock
        self._limit = limit
        self._shown: set[tuple[str, str, str]] = set()
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        """Set the metrics, with pauses for other work; remove those of deleted offsets."""
        async with self._refreshing:
            pace, omitted = LoopPace(self._clock), 0
            shown: set[tuple[str, str, str]] = set()
            for group in list(self._replica.state.groups):
                await pace.step()
                if not group.offsets or not self._groups.is_ours(group.id):
                    continue
                size = sum(map(len, group.offsets.values()))
                # A group is exposed completely or not at all: a part of it would look like all of
                # it.
                if len(shown) + size > self._limit:
                    omitted += size
                    continue
                for key, lag in list(self._lags(group)):
                    await pace.step()
                    LAG.labels(*key).value = lag
                    shown.add(key)
            for key in self._shown - shown:
                LAG.remove(*key)
            self._shown = shown
            OMITTED.set(omitted)

    def _lags(self, group: Group) -> Iterator[tuple[tuple[str, str, str], int]]:
        topics = self._replica.state.topics
        for topic_id, partitions in group.offsets.items():
            topic = topics.by_id.get(topic_id)
            if topic is None:
                continue
            for partition, packed in partitions.items():
                offset = unpack_offset(packed)
                if offset >= 0 and partition < len(topic.partitions):
                    end = topic.partitions[partition].next_offset
                    yield (group.id, topic.name, str(partition)), max(end - offset, 0)
