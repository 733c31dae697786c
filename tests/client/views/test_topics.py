"""`client.views.topics`: topics with partitions, offsets and configs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.settings import ClientSettings
from rookery.client.views.topics import describe_topics, list_topics
from rookery.errors import ApiError, ErrorCode


async def test_topic_has_partitions_offsets_and_configs(
    client: Client, new_name: Callable[[], str]
) -> None:
    name = new_name()
    configs = {"retention.ms": "60000", "cleanup.policy": "compact"}
    await client.admin.create_topics(
        [NewTopic(name=name, partitions=2, replication_factor=1, configs=configs)]
    )
    for _ in range(3):
        await client.produce(name, b"tchack", key=b"jackdaw", partition=1)

    (topic,) = await describe_topics(client, [name, name])

    assert (topic.name, topic.is_internal, topic.span) == (name, False, 3)
    assert [
        (partition.partition, partition.start, partition.end, partition.span)
        for partition in topic.partitions
    ] == [
        (0, 0, 0, 0),
        (1, 0, 3, 3),
    ]
    assert all(
        partition.has_leader and partition.leader in partition.isr for partition in topic.partitions
    )
    of_the_topic = [
        config for config in topic.own_configs if config.source == "DYNAMIC_TOPIC_CONFIG"
    ]
    assert {config.name: config.value for config in of_the_topic} == configs
    (default,) = [config for config in topic.configs if config.name == "max.message.bytes"]
    assert (default.source, default.is_own) == ("DEFAULT_CONFIG", False)
    assert [partition.size_bytes for partition in topic.partitions] == [None, None]


async def test_topic_sizes_come_from_the_log_directories(
    client: Client, new_name: Callable[[], str]
) -> None:
    name = new_name()
    await client.create_topic(name, partitions=2, replication_factor=1)
    await client.produce(name, bytes(5000), partition=1)

    (topic,) = await describe_topics(client, [name], with_sizes=True)

    empty, full = (partition.size_bytes for partition in topic.partitions)
    assert empty == 0
    assert full is not None
    assert full > 5000


async def test_list_has_every_topic_once(client: Client, new_name: Callable[[], str]) -> None:
    names = sorted(new_name() for _ in range(2))
    for name in names:
        await client.create_topic(name, partitions=3, replication_factor=1)

    listed = await list_topics(client)

    ours = [topic for topic in listed if topic.name in names]
    assert [topic.name for topic in ours] == names
    assert [topic.name for topic in listed] == sorted(topic.name for topic in listed)
    for topic in ours:
        assert (topic.partitions, topic.replication_factor) == (3, 1)
        assert (topic.without_leader, topic.is_internal) == (0, False)
    (overview,) = await describe_topics(client, names[:1])
    assert ours[0].id == overview.id


async def test_unknown_topic_is_refused(bootstrap: str) -> None:
    settings = ClientSettings(bootstrap=bootstrap, unknown_topic_ms=1)
    async with Client(settings) as client:
        with pytest.raises(ApiError) as caught:
            await describe_topics(client, ["never-there"])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
