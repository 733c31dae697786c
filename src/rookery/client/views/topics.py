"""Topics with their partitions, offsets, sizes and configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rookery.client.client import Client
from rookery.client.configs import ResourceType
from rookery.client.connect.cluster import NO_NODE, PartitionView, TopicView
from rookery.client.offsets import ListedOffset
from rookery.client.views.brokers import partition_sizes
from rookery.client.views.configs import ConfigOverview, describe_configs
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition
from rookery.model.uuid import uuid_text


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic as shown in a list."""

    name: str
    id: str
    partitions: int
    replication_factor: int
    without_leader: int
    """The number of partitions that have no leader at the moment."""
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """A partition: its replicas and its offsets."""

    partition: int
    leader: int
    """-1 while there is none."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    start: int | None
    """The log start offset; None if the partition has no leader."""
    end: int | None
    """The offset of the next record; None if the partition has no leader."""
    size_bytes: int | None = None
    """None if it was not requested, or no broker reports it."""

    @property
    def has_leader(self) -> bool:
        """Whether it can be read and written."""
        return self.leader != NO_NODE

    @property
    def span(self) -> int:
        """The offsets between start and end; more than the records if the topic is compacted."""
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
        """The offsets between the starts and ends of all partitions."""
        return sum(partition.span for partition in self.partitions)

    @property
    def own_configs(self) -> tuple[ConfigOverview, ...]:
        """The configs that were set at run time."""
        return tuple(config for config in self.configs if config.is_own)


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
    """Return topics in the order of the given names; a repeated name counts once.

    Args:
        client: a client of the cluster.
        names: the topics' names.
        with_sizes: also request the sizes of partitions from every broker.

    Raises:
        ApiError: a topic does not exist.
    """
    views = await client.admin.describe_topics(dict.fromkeys(names))
    # A partition without a leader can be described, but has no broker to report its offsets.
    places = [
        TopicPartition(view.name, number) for view in views.values() for number in view.available
    ]
    starts = await client.offsets.find(dict.fromkeys(places, EARLIEST))
    ends = await client.offsets.find(dict.fromkeys(places, LATEST))
    sizes = await partition_sizes(client) if with_sizes else {}
    overviews = []
    for view in views.values():
        partitions = (
            _partition(partition, TopicPartition(view.name, number), starts, ends, sizes)
            for number, partition in view.partitions.items()
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
        replication_factor=max(
            (len(partition.replicas) for partition in view.partitions.values()), default=0
        ),
        without_leader=len(view.partitions) - len(view.available),
        is_internal=view.is_internal,
    )
