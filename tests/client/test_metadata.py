"""When the client requests metadata, and how it uses the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rookery.client.client import Client
from rookery.client.connect.retry import Deadline, PersistentError
from rookery.client.settings import ClientSettings
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.model.node import Node
from rookery.model.partition import TopicPartition
from rookery.testing.clock import ManualClock, SeededRandom
from rookery.wire.message import Message
from rookery.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.client.scripted import Script, scripted

BIRDS = TopicPartition("birds", 0)


class Cluster:
    """One broker's view: a topic `birds`, and others as given."""

    def __init__(self) -> None:
        self.port = 0
        self.leader = 1
        self.leader_epoch = 3
        self.codes: dict[str, ErrorCode] = {}
        self.error = ErrorCode.NONE

    def answer(self, request: Message) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        names = [topic.name or "" for topic in request.topics or []]
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        topics = [self._topic(name) for name in names]
        return MetadataResponse(brokers=[broker], topics=topics, error_code=self.error)

    def _topic(self, name: str) -> MetadataResponseTopic:
        code = self.codes.get(name, ErrorCode.NONE)
        partition = MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=self.leader_epoch,
            replica_nodes=[1, 2],
            isr_nodes=[1],
        )
        parts = [] if code else [partition]
        return MetadataResponseTopic(
            error_code=code, name=name, topic_id=name.encode().ljust(16), partitions=parts
        )


@asynccontextmanager
async def serve(cluster: Cluster, clock: ManualClock) -> AsyncIterator[tuple[Script, Client]]:
    """Run the broker and a client of it."""
    async with scripted(cluster.answer) as (script, port):
        cluster.port = port
        settings = ClientSettings(
            bootstrap=f"127.0.0.1:1,127.0.0.1:{port}",
            metadata_max_age_ms=1_000,
            unknown_topic_ms=500,
        )
        async with Client(settings, clock=clock, random=SeededRandom()) as client:
            yield script, client


async def test_concurrent_callers_share_one_metadata_request() -> None:
    cluster, clock = Cluster(), ManualClock()
    async with serve(cluster, clock) as (script, client):
        deadline = Deadline(clock, 5_000)
        answers = await asyncio.gather(
            *(client.metadata.locate([BIRDS], deadline) for _ in range(20))
        )
        await client.metadata.topic("birds", deadline)
    assert {(row.node.id, row.leader_epoch) for rows in answers for row in rows} == {(1, 3)}
    assert len(script.requests) == 1


async def test_metadata_is_refreshed_when_stale_or_invalidated() -> None:
    cluster, clock = Cluster(), ManualClock()
    async with serve(cluster, clock) as (script, client):
        deadline = Deadline(clock, 100_000)
        await client.metadata.topic("birds", deadline)
        clock.advance(999)
        await client.metadata.topic("birds", deadline)
        assert len(script.requests) == 1
        clock.advance(1)
        assert client.metadata.leader(BIRDS) is None
        await client.metadata.topic("birds", deadline)
        client.metadata.forget("birds")
        await client.metadata.topic("birds", deadline)
    assert len(script.requests) == 3


async def test_missing_leader_is_reported_and_looked_up_again() -> None:
    cluster, clock = Cluster(), ManualClock()
    cluster.leader = -1
    async with serve(cluster, clock) as (script, client):
        deadline = Deadline(clock, 5_000)
        with pytest.raises(ApiError, match=r"birds-0 has no leader.* brokers \[1, 2\]"):
            await client.metadata.locate([BIRDS], deadline)
        cluster.leader = 1
        (row,) = await client.metadata.locate([BIRDS], deadline)
    assert row.node.id == 1
    assert len(script.requests) == 2


async def test_leader_hint_is_used_without_a_metadata_request() -> None:
    cluster, clock = Cluster(), ManualClock()
    async with serve(cluster, clock) as (script, client):
        deadline = Deadline(clock, 5_000)
        await client.metadata.topic("birds", deadline)
        client.metadata.learn_nodes([Node(2, "other", 9092)])
        assert client.metadata.learn_leader(BIRDS, 2, 4)
        assert not client.metadata.learn_leader(BIRDS, 1, 4)
        (row,) = await client.metadata.locate([BIRDS], deadline)
    assert (row.node.host, row.leader_epoch) == ("other", 4)
    assert len(script.requests) == 1


async def test_refused_topic_does_not_affect_other_topics() -> None:
    cluster, clock = Cluster(), ManualClock()
    cluster.codes["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with serve(cluster, clock) as (_, client):
        await client.metadata.refresh(["birds", "secret"], Deadline(clock, 5_000))
        assert client.metadata.find(BIRDS).node.id == 1
        with pytest.raises(ApiError, match="topic 'secret'") as caught:
            client.metadata.find(TopicPartition("secret", 0))
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_unknown_topic_is_awaited_for_a_limited_time() -> None:
    cluster, clock = Cluster(), ManualClock()
    cluster.codes["new"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    async with serve(cluster, clock) as (_, client):
        deadline = Deadline(clock, 5_000)
        with pytest.raises(ApiError) as first:
            await client.metadata.topic("new", deadline)
        clock.advance(500)
        with pytest.raises(PersistentError, match="topic 'new' does not exist"):
            await client.metadata.topic("new", deadline)
        del cluster.codes["new"]
        assert (await client.metadata.topic("new", deadline)).name == "new"
    assert not isinstance(first.value, PersistentError)


async def test_rebootstrap_error_returns_to_the_bootstrap_addresses() -> None:
    cluster, clock = Cluster(), ManualClock()
    async with serve(cluster, clock) as (_, client):
        deadline = Deadline(clock, 5_000)
        await client.metadata.topic("birds", deadline)
        cluster.error = ErrorCode.REBOOTSTRAP_REQUIRED
        client.metadata.forget_all()
        with pytest.raises(Unavailable, match="start from the bootstrap addresses"):
            await client.metadata.topic("birds", deadline)
        assert client.metadata.view.nodes == {}
        cluster.error = ErrorCode.NONE
        assert (await client.metadata.topic("birds", deadline)).name == "birds"


async def test_the_next_bootstrap_address_is_tried() -> None:
    cluster, clock = Cluster(), ManualClock()
    async with serve(cluster, clock) as (_, client):
        # No process listens on the first one.
        assert client.settings.addresses[0].port == 1
        birds = await client.metadata.topic("birds", Deadline(clock, 5_000))
    assert birds.name == "birds"
