"""Topics with their partitions, offsets, sizes and configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rookery.client.client import Client
from rookery.client.cluster import NO_NODE, PartitionView, TopicView
from rookery.client.configs import ResourceType
from rookery.client.offsets import ListedOffset
from rookery.client.views.brokers import partition_sizes
from rookery.client.views.configs import ConfigOverview, describe_configs
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition
from rookery.model.uuid import uuid_text


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic as a list shows it."""

    name: str
    id: str
    partitions: int
    replication_factor: int
    without_leader: int
    """Partitions that have no leader at the moment."""
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """A partition: its replicas and what it holds."""

    partition: int
    leader: int
    """-1 while there is none."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    start: int | None
    """The first offset; None if the partition has no leader to ask."""
    end: int | None
    """The offset of the next record; None if the partition has no leader to ask."""
    size_bytes: int | None = None
    """None if it was not asked for, or no broker reports it."""

    @property
    def has_leader(self) -> bool:
        """Whether it can be read and written."""
        return self.leader != NO_NODE

    @property
    def span(self) -> int:
        """Offsets between start and end; more than the records if the topic is compacted."""
        return (self.end or 0) - (self.start or 0)


@dataclass(frozen=True, slots=True)
class TopicOverview:
    """A topic with its partitions and configs."""

    name: str
    id: str
    is_internal: bool
    partitions: tuple[PartitionOverview, ...]
    configs: tuple[ConfigOverview, ...]

    @property
    def span(self) -> int:
        """Offsets between the starts and ends of all partitions."""
        return sum(one.span for one in self.partitions)

    @property
    def own_configs(self) -> tuple[ConfigOverview, ...]:
        """The configs that were set, and are no defaults."""
        return tuple(one for one in self.configs if one.is_own)


async def list_topics(
    client: Client, *, include_internal: bool = False
) -> tuple[TopicSummary, ...]:
    """Return all topics, sorted by name."""
    names = await client.admin.list_topics(include_internal=include_internal)
    views = await client.admin.describe_topics(names) if names else {}
    return tuple(_summary(view) for view in views.values())


async def describe_topics(
    client: Client, names: Iterable[str], *, with_sizes: bool = False
) -> tuple[TopicOverview, ...]:
    """Return topics in the order of their names as given; a repeated name counts once.

    Args:
        client: of the cluster.
        names: of the topics.
        with_sizes: ask every broker for the sizes of partitions, too.

    Raises:
        ApiError: there is no such topic.
    """
    views = await client.admin.describe_topics(dict.fromkeys(names))
    # A partition without a leader can be described, but not asked for its offsets.
    places = [
        TopicPartition(view.name, number) for view in views.values() for number in view.available
    ]
    starts = await client.offsets.find(dict.fromkeys(places, EARLIEST))
    ends = await client.offsets.find(dict.fromkeys(places, LATEST))
    sizes = await partition_sizes(client) if with_sizes else {}
    overviews = []
    for view in views.values():
        partitions = (
            _partition(one, TopicPartition(view.name, number), starts, ends, sizes)
            for number, one in view.partitions.items()
        )
        configs = await describe_configs(client, ResourceType.TOPIC, view.name)
        overviews.append(
            TopicOverview(
                view.name, uuid_text(view.id), view.is_internal, tuple(partitions), configs
            )
        )
    return tuple(overviews)


def _partition(
    view: PartitionView,
    place: TopicPartition,
    starts: Mapping[TopicPartition, ListedOffset],
    ends: Mapping[TopicPartition, ListedOffset],
    sizes: Mapping[TopicPartition, int],
) -> PartitionOverview:
    return PartitionOverview(
        partition=place.partition,
        leader=view.leader,
        replicas=view.replicas,
        isr=view.isr,
        offline_replicas=view.offline_replicas,
        start=starts[place].offset if place in starts else None,
        end=ends[place].offset if place in ends else None,
        size_bytes=sizes.get(place),
    )


def _summary(view: TopicView) -> TopicSummary:
    return TopicSummary(
        name=view.name,
        id=uuid_text(view.id),
        partitions=len(view.partitions),
        replication_factor=max((len(one.replicas) for one in view.partitions.values()), default=0),
        without_leader=len(view.partitions) - len(view.available),
        is_internal=view.is_internal,
    )
