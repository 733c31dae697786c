"""`client.views.groups`: groups with members and lag."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from rookery.client.client import Client
from rookery.client.views.groups import describe_groups, list_groups
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record


async def _topic(client: Client, name: str) -> str:
    """Create a topic with ten records in its second partition."""
    await client.create_topic(name, partitions=2, replication_factor=1)
    async with client.producer() as producer:
        for number in range(10):
            await producer.send(name, Record(None, b"%d" % number), 1)
        await producer.flush()
    return name


async def test_group_without_members_has_lag(client: Client, new_name: Callable[[], str]) -> None:
    topic, group = await _topic(client, new_name()), new_name()
    await client.groups.commit_offsets(
        group, {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): CommittedOffset(4, "note")}
    )

    (overview,) = await describe_groups(client, [group])

    assert (overview.group, overview.state, overview.kind) == (group, "Empty", "classic")
    assert overview.members == ()
    assert overview.lag == 6
    first, second = overview.offsets
    assert (first.partition, first.offset, first.end, first.lag) == (0, 0, 0, 0)
    assert (second.partition, second.offset, second.end, second.lag) == (1, 4, 10, 6)
    assert (second.metadata, second.member) == ("note", None)
    assert [
        listing.group_id
        for listing in await list_groups(client, ["EMPTY"])
        if listing.group_id == group
    ]
    assert group not in [listing.group_id for listing in await list_groups(client, ["stable"])]


async def test_group_with_a_member_shows_its_partitions(
    bootstrap: str, client: Client, new_name: Callable[[], str]
) -> None:
    topic, group = await _topic(client, new_name()), new_name()
    consumer = await asyncio.to_thread(_join, bootstrap, group, topic)
    try:
        (overview,) = await describe_groups(client, [group])
    finally:
        await asyncio.to_thread(consumer.close)

    (member,) = overview.members
    assert (overview.state, overview.lag) == ("Stable", 0)
    assert (member.client, member.host) == ("binoculars", "127.0.0.1")
    assert sorted(member.partitions) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    # Nothing is committed yet, so that the lag is unknown.
    assert [(offset.offset, offset.end, offset.lag) for offset in overview.offsets] == [
        (None, 0, None),
        (None, 10, None),
    ]
    assert {offset.member for offset in overview.offsets} == {member.member}


async def test_unknown_group_is_refused(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        await describe_groups(client, ["nobody"])
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def _join(bootstrap: str, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "binoculars",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    return consumer
