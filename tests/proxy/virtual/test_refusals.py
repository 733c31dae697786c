"""What virtual partitions cannot do is refused by name, and never reaches the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from rookery.errors import ErrorCode
from rookery.net.upstream import connect
from rookery.proxy.nodes.routes import list_refused_apis
from rookery.proxy.virtual.apirules import VIRTUAL_ROUTES, VirtualRoute, virtual_passages
from rookery.testing.kafka import KafkaServer
from rookery.testing.messages import random_message
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.catalog import kafka_apis
from rookery.wire.message import Api, Message, TopicName
from rookery.wire.walk import rewrite, visit
from tests.proxy.virtual.conftest import P, V, create
from tests.proxy.virtual.test_clients import consumer, produce

REFUSED = [
    api
    for api in kafka_apis().values()
    if VIRTUAL_ROUTES.get(api.name) is VirtualRoute.TOPIC_REFUSED
]
PASSAGES = virtual_passages((), list_refused_apis())


def sample(api: Api[Any, Any], version: int, topic: str) -> Message:
    """Return a random request that names a topic, and no other."""
    random = Random(version)
    while True:
        request: Message = random_message(api.request, version, random)
        rewrite(request, TopicName, lambda _: topic)
        refusal = api.refuse_items(request, ErrorCode.POLICY_VIOLATION)
        is_named = len(visit(request, TopicName)) == 1
        if is_named and set(codes(refusal)) == {ErrorCode.POLICY_VIOLATION}:
            return request


def codes(message: Any) -> Iterator[ErrorCode]:
    """Yield the innermost error codes of a response."""
    inner = [
        each
        for name in message.__fields__
        if isinstance(getattr(message, name), list)
        for each in getattr(message, name)
        if isinstance(each, Message)
    ]
    if inner:
        for each in inner:
            yield from codes(each)
        return
    for name in message.__fields__:
        value = getattr(message, name)
        if isinstance(value, ErrorCode):
            yield value


@pytest.mark.parametrize("api", REFUSED, ids=lambda api: api.name)
def test_apis_refuse_virtual_topics_in_every_version(
    proxy: ServedProxy, topic: str, api: Api[Any, Any]
) -> None:
    async def ask() -> list[Message]:
        upstream = await connect("127.0.0.1", proxy.port)
        try:
            return [
                await upstream.call(api, version, sample(api, version, topic), 20_000)
                for version in PASSAGES.versions(api.key)
            ]
        finally:
            upstream.close()

    for answer in asyncio.run(ask()):
        assert set(codes(answer)) == {ErrorCode.POLICY_VIOLATION}


def test_partitions_beyond_the_last_are_unknown(proxy: ServedProxy, topic: str) -> None:
    with closing(consumer(proxy.bootstrap, topic)) as reader:
        reader.commit(offsets=[TopicPartition(topic, V - 1, 1)], asynchronous=False)
        with pytest.raises(KafkaException) as refused:
            reader.commit(offsets=[TopicPartition(topic, V, 1)], asynchronous=False)

    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("partitions", "settings", "reason"),
    [
        (P, {}, "retention.ms"),
        (P, {"retention.ms": "-1", "cleanup.policy": "compact"}, "cleanup.policy"),
        (P, {"retention.ms": "-1", "compression.type": "gzip"}, "compression.type"),
        (
            P,
            {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"},
            "message.timestamp.type",
        ),
        (P + 1, {"retention.ms": "-1"}, "physical_partitions"),
    ],
    ids=["retention", "compaction", "recompression", "append time", "partitions"],
)
def test_topics_that_would_break_tags_are_not_served(
    kafka: KafkaServer,
    proxy: ServedProxy,
    caplog: pytest.LogCaptureFixture,
    partitions: int,
    settings: dict[str, str],
    reason: str,
) -> None:
    name = create(kafka.bootstrap, f"virtual-{uuid4().hex}", partitions, settings)

    found = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(name, 20).topics[name]

    assert found.error is not None
    assert found.error.code() == KafkaError.TOPIC_EXCEPTION
    assert any(name in line and reason in line for line in caplog.messages)


def test_records_of_direct_writers_stop_a_partition(
    kafka: KafkaServer, proxy: ServedProxy, topic: str
) -> None:
    produce(proxy.bootstrap, topic, 0, is_idempotent=True)
    direct = Producer({"bootstrap.servers": kafka.bootstrap})
    direct.produce(topic, b"?", partition=1)
    assert direct.flush(20) == 0

    failures: list[KafkaError | None] = []
    through = Producer({"bootstrap.servers": proxy.bootstrap})
    for partition in (1, 5, 2):
        through.produce(
            topic, b"x", partition=partition, on_delivery=lambda error, _: failures.append(error)
        )
    assert through.flush(20) == 0

    refused = [each.code() for each in failures if each is not None]
    assert refused == [KafkaError.POLICY_VIOLATION] * 2


def test_a_log_that_has_lost_its_start_is_refused(
    kafka: KafkaServer, proxy: ServedProxy, topic: str
) -> None:
    produce(proxy.bootstrap, topic, 0, is_idempotent=True)
    direct = AdminClient({"bootstrap.servers": kafka.bootstrap})
    place = TopicPartition(topic, 1, 1)
    direct.delete_records([place])[place].result(20)

    failures: list[KafkaError | None] = []
    through = Producer({"bootstrap.servers": proxy.bootstrap})
    for partition in (1, 2):
        through.produce(
            topic, b"x", partition=partition, on_delivery=lambda error, _: failures.append(error)
        )
    assert through.flush(20) == 0

    [refused] = [each for each in failures if each is not None]
    assert refused.code() == KafkaError.POLICY_VIOLATION


def test_topics_are_created_with_physical_partitions(
    kafka: KafkaServer, proxy: ServedProxy
) -> None:
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    name, other = f"virtual-{uuid4().hex}", f"virtual-{uuid4().hex}"
    made = admin.create_topics([NewTopic(name, V, 1), NewTopic(other, V + 1, 1)])

    made[name].result(20)
    with pytest.raises(KafkaException) as refused:
        made[other].result(20)

    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS
    assert "virtual_partitions" in refused.value.args[0].str()
    assert len(admin.list_topics(name, 20).topics[name].partitions) == V
    direct = AdminClient({"bootstrap.servers": kafka.bootstrap})
    assert len(direct.list_topics(name, 20).topics[name].partitions) == P


def test_settings_that_would_break_tags_are_refused(proxy: ServedProxy, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})

    def change(name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)

    change("max.message.bytes", "2000000")
    with pytest.raises(KafkaException, match=r"cleanup\.policy must be delete"):
        change("cleanup.policy", "compact")


def test_groups_are_listed_and_deleted_without_their_shadows(
    kafka: KafkaServer, proxy: ServedProxy, topic: str
) -> None:
    with closing(consumer(proxy.bootstrap, topic)) as reader:
        places = [TopicPartition(topic, number, 1) for number in range(V)]
        reader.commit(offsets=places, asynchronous=False)
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    direct = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def groups(client: AdminClient) -> list[str]:
        found = client.list_consumer_groups(request_timeout=20).result(20).valid
        return [each.group_id for each in found if topic in each.group_id]

    assert groups(admin) == [topic]
    assert len(groups(direct)) == 1 + V // P
    admin.delete_consumer_groups([topic])[topic].result(20)
    assert groups(direct) == []
