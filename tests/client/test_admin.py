"""Topics, configs, records and brokers of a real Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.configs import ConfigChange, ConfigOperation, ResourceType
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition
from rookery.model.uuid import ZERO
from rookery.testing.kafka import KafkaCluster, KafkaServer
from tests.client.conftest import DIRECT
from tests.proxies import Proxies, through

# Rookery has defaults and refusals of its own (docs/differences.md).
WAYS = (DIRECT, *through("kafka", "cluster"))


async def test_created_topic_is_visible_immediately(
    client: Client, new_name: Callable[[], str]
) -> None:
    name = new_name()
    await client.admin.create_topics(
        [NewTopic(name=name, partitions=3, configs={"retention.ms": "12345"})]
    )

    topic = (await client.admin.describe_topics([name]))[name]
    configs = await client.admin.configs.describe(ResourceType.TOPIC, name)
    assert sorted(topic.partitions) == [0, 1, 2]
    assert topic.id != ZERO
    assert (configs["retention.ms"].value, configs["retention.ms"].is_own) == ("12345", True)
    assert not configs["segment.bytes"].is_own
    assert name in await client.admin.list_topics()


async def test_topic_is_created_with_broker_defaults(
    client: Client, new_name: Callable[[], str]
) -> None:
    name = new_name()
    await client.create_topic(name)
    assert len((await client.topic(name)).partitions) == 4


async def test_topic_is_created_with_given_replica_assignments(
    kafka_cluster: KafkaCluster, new_name: Callable[[], str]
) -> None:
    name = new_name()
    async with Client(kafka_cluster.bootstrap) as client:
        await client.admin.create_topics([NewTopic(name=name, assignments={0: (3, 1), 1: (2, 3)})])
        topic = await client.topic(name)
    assert [topic.partitions[number].replicas for number in (0, 1)] == [(3, 1), (2, 3)]


async def test_a_topic_that_exists_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(ApiError, match=rf"create topic '{topic}'") as caught:
        await client.create_topic(topic)
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_validation_creates_nothing(client: Client, new_name: Callable[[], str]) -> None:
    name = new_name()
    await client.admin.create_topics([NewTopic(name=name, partitions=1)], validate_only=True)
    assert name not in await client.admin.list_topics()
    with pytest.raises(ApiError) as caught:
        await client.admin.create_topics(
            [NewTopic(name=name, configs={"no.such.config": "1"})], validate_only=True
        )
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_a_deleted_topic_is_gone(client: Client, topic: str) -> None:
    await client.delete_topic(topic)
    while topic in await client.admin.list_topics():
        pass
    with pytest.raises(ApiError, match="there is no such topic"):
        await client.delete_topic(topic)


async def test_partitions_can_be_added_to_a_topic(client: Client, topic: str) -> None:
    await client.topic(topic)
    await client.admin.create_partitions(topic, 12)

    assert len((await client.topic(topic)).partitions) == 12
    assert (await client.produce(topic, b"x", partition=11)).offset == 0
    with pytest.raises(ApiError) as caught:
        await client.admin.create_partitions(topic, 5)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS


async def test_configs_change_one_by_one(client: Client, topic: str) -> None:
    configs = client.admin.configs
    await configs.alter(ResourceType.TOPIC, topic, {"retention.ms": "1", "segment.ms": "77777"})
    await configs.alter(
        ResourceType.TOPIC,
        topic,
        {
            "retention.ms": None,
            "cleanup.policy": ConfigChange(ConfigOperation.APPEND, "compact"),
        },
    )

    settings = await configs.describe(ResourceType.TOPIC, topic)
    while not settings["cleanup.policy"].is_own:
        settings = await configs.describe(ResourceType.TOPIC, topic)
    assert not settings["retention.ms"].is_own
    assert settings["segment.ms"].value == "77777"
    assert set((settings["cleanup.policy"].value or "").split(",")) == {"delete", "compact"}


async def test_a_wrong_config_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(ApiError, match=rf"change configs of TOPIC '{topic}'") as caught:
        await client.admin.configs.alter(ResourceType.TOPIC, topic, {"retention.ms": "long"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_configs_of_an_unknown_topic_are_refused(client: Client) -> None:
    with pytest.raises(ApiError, match="there is no such topic"):
        await client.admin.configs.describe(ResourceType.TOPIC, "nowhere")


async def test_configs_of_a_broker_are_changed_and_described(client: Client, way: str) -> None:
    configs = client.admin.configs
    if way == "cluster-proxy":
        # With broker nodes, node 1 is the proxy, whose settings cannot be changed.
        with pytest.raises(ApiError, match="INVALID_REQUEST"):
            await configs.alter(ResourceType.BROKER, "1", {"log.cleaner.threads": "2"})
        return
    await configs.alter(ResourceType.BROKER, "1", {"log.cleaner.threads": "2"})
    settings = await configs.describe(ResourceType.BROKER, "1")
    # A broker learns of the change a moment after the controller has made it.
    while settings["log.cleaner.threads"].value != "2":
        settings = await configs.describe(ResourceType.BROKER, "1")
    await configs.alter(ResourceType.BROKER, "1", {"log.cleaner.threads": None})

    assert settings["broker.id"].is_read_only
    threads = settings["log.cleaner.threads"]
    assert (threads.value, threads.is_own) == ("2", True)


async def test_a_broker_is_named_by_its_id(client: Client) -> None:
    with pytest.raises(ApiError, match="a broker's name is its id, not 'first'"):
        await client.admin.configs.describe(ResourceType.BROKER, "first")


async def test_records_can_be_deleted(client: Client, topic: str) -> None:
    for _ in range(5):
        await client.produce(topic, b"x", partition=0)
        await client.produce(topic, b"x", partition=1)
    places = [TopicPartition(topic, number) for number in (0, 1)]

    starts = await client.admin.delete_records({places[0]: 3, places[1]: LATEST})
    rows = await client.offsets.find(dict.fromkeys(places, EARLIEST))
    assert starts == {places[0]: 3, places[1]: 5}
    assert {place: row.offset for place, row in rows.items()} == starts


async def test_cluster_is_described(kafka: KafkaServer, client: Client, proxies: Proxies) -> None:
    cluster = await client.admin.describe_cluster()
    assert cluster.cluster_id == kafka.cluster_id
    addresses = proxies.brokers(kafka.bootstrap)
    assert [node.id for node in cluster.brokers] == [*range(1, len(addresses) + 1)]
    assert [node.address.text for node in cluster.brokers] == addresses


async def test_cluster_of_three_brokers_is_described(kafka_cluster: KafkaCluster) -> None:
    async with Client(kafka_cluster.nodes[1].bootstrap) as client:
        cluster = await client.admin.describe_cluster()
        await client.groups.list_all()
        configs = await client.admin.configs.describe(ResourceType.BROKER, "3")
    assert [node.id for node in cluster.brokers] == [1, 2, 3]
    assert configs["broker.id"].value == "3"


async def test_internal_topics_are_listed_on_demand(client: Client, topic: str) -> None:
    await client.groups.commit_offsets(f"{topic}-group", {TopicPartition(topic, 0): 1})
    assert "__consumer_offsets" not in await client.admin.list_topics()
    assert "__consumer_offsets" in await client.admin.list_topics(include_internal=True)


async def test_unreachable_bootstrap_is_reported(new_name: Callable[[], str]) -> None:
    async with Client("127.0.0.1:1") as client:
        with pytest.raises(
            Unavailable, match=r"gave up after 300 ms.*no broker can be reached: 127.0.0.1:1"
        ):
            await client.admin.describe_cluster(timeout_ms=300)


async def test_closed_client_refuses_calls(kafka: KafkaServer) -> None:
    client = Client(kafka.bootstrap)
    await client.close()
    with pytest.raises(Unavailable, match="the client is closed"):
        await client.admin.describe_cluster(timeout_ms=200)
