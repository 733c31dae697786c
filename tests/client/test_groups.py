"""Groups and their offsets, on a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as OtherPlace

from rookery.client.client import Client
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.testing.kafka import KafkaServer


@pytest.fixture
def group(new_name: Callable[[], str]) -> str:
    return new_name()


def join(kafka: KafkaServer, group: str, topic: str, protocol: str) -> Consumer:
    """Become the only member of a group, with librdkafka; return when it has its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "the-member",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    return consumer


async def test_committed_offsets_can_be_fetched(client: Client, topic: str, group: str) -> None:
    places = [TopicPartition(topic, number) for number in range(3)]
    await client.groups.commit_offsets(
        group, {places[0]: 5, places[2]: CommittedOffset(7, "a note", 0)}
    )

    everything = await client.groups.committed_offsets(group)
    some = await client.groups.committed_offsets(group, places[1:])
    stable = await client.groups.committed_offsets(group, stable=True)
    assert everything == {
        places[0]: CommittedOffset(5),
        places[2]: CommittedOffset(7, "a note", 0),
    }
    assert some == {places[2]: CommittedOffset(7, "a note", 0)}
    assert stable == everything


async def test_librdkafka_reads_our_committed_offsets(
    kafka: KafkaServer, client: Client, topic: str, group: str
) -> None:
    await client.groups.commit_offsets(group, {TopicPartition(topic, 3): 33})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        (committed,) = await asyncio.to_thread(consumer.committed, [OtherPlace(topic, 3)], 30)
    finally:
        consumer.close()
    assert committed.offset == 33


async def test_offsets_can_be_deleted(client: Client, topic: str, group: str) -> None:
    places = [TopicPartition(topic, number) for number in range(2)]
    await client.groups.commit_offsets(group, dict.fromkeys(places, 5))
    await client.groups.delete_offsets(group, places[:1])

    assert (await client.groups.committed_offsets(group)).keys() == {places[1]}


async def test_a_group_can_be_listed_and_deleted(client: Client, topic: str, group: str) -> None:
    await client.groups.commit_offsets(group, {TopicPartition(topic, 0): 5})
    listed = {row.group_id: row for row in await client.groups.list_all()}
    assert (listed[group].state, listed[group].kind) == ("Empty", "classic")

    await client.groups.delete(group)
    assert group not in {row.group_id for row in await client.groups.list_all()}
    assert await client.groups.committed_offsets(group) == {}


async def test_deleting_an_unknown_group_is_refused(client: Client) -> None:
    with pytest.raises(ApiError, match="GROUP_ID_NOT_FOUND: delete group 'nobody'"):
        await client.groups.delete("nobody")


async def test_describing_an_unknown_group_is_refused(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        await client.groups.describe("nobody")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_group_with_members_is_described_and_not_deleted(
    kafka: KafkaServer, client: Client, topic: str, group: str, protocol: str
) -> None:
    consumer = await asyncio.to_thread(join, kafka, group, topic, protocol)
    try:
        description = await client.groups.describe(group)
        with pytest.raises(ApiError) as delete:
            await client.groups.delete(group)
        with pytest.raises(ApiError) as commit:
            await client.groups.commit_offsets(group, {TopicPartition(topic, 0): 1})
    finally:
        await asyncio.to_thread(consumer.close)

    (member,) = description.members
    assert (description.kind, description.state) == (protocol, "Stable")
    assert member.client_id == "the-member"
    assert set(member.partitions) == {TopicPartition(topic, number) for number in range(10)}
    assert delete.value.code is ErrorCode.NON_EMPTY_GROUP
    assert commit.value.code is ErrorCode.UNKNOWN_MEMBER_ID
