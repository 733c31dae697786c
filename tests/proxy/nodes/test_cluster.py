"""Tools and several kinds of clients on broker nodes, before three brokers of Rookery."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from rookery.client import Client
from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from rookery.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from rookery.wire.messages.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tests.kafkapython import KafkaConsumer, KafkaProducer
from tests.proxy.nodes.conftest import two_instances
from tests.proxy.test_mirror import read

PARTITIONS = 6


@pytest.fixture(scope="module")
def proxies(brokers: list[ServedBroker]) -> Iterator[list[ServedProxy]]:
    """Two instances that know each other."""
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    with ExitStack() as stack:
        yield [stack.enter_context(proxy) for proxy in two_instances(bootstrap)]


@pytest.fixture
def topic(proxies: list[ServedProxy]) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": proxies[0].bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(20)
    return name


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer = ask(bootstrap, METADATA, 12, request)
    return {row.partition_index: row.leader_id for row in answer.topics[0].partitions}


def test_instances_agree_about_everything(proxies: list[ServedProxy], topic: str) -> None:
    first, second = (each.bootstrap for each in proxies)

    assert leaders(first, topic) == leaders(second, topic)
    assert sorted(leaders(first, topic).values()) == [1, 1, 1, 2, 2, 2]
    clusters = [
        ask(each, DESCRIBE_CLUSTER, 1, DescribeClusterRequest()) for each in (first, second)
    ]
    assert clusters[0] == clusters[1]
    assert [(row.broker_id, row.port) for row in clusters[0].brokers] == [
        (1, proxies[0].port),
        (2, proxies[1].port),
    ]
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "c", "d", "e"])
    answers = [ask(each, FIND_COORDINATOR, 4, request) for each in (first, second)]
    assert answers[0] == answers[1]
    assert {row.node_id for row in answers[0].coordinators} <= {1, 2}


def test_records_pass_through_both_instances(proxies: list[ServedProxy], topic: str) -> None:
    produce(proxies[0].bootstrap, topic, 300)

    consumer = Consumer(
        {
            "bootstrap.servers": proxies[1].bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    messages = read(consumer, 300)
    consumer.close()

    rows: dict[int | None, list[int]] = {}
    for message in messages:
        rows.setdefault(message.partition(), []).append(int(message.value() or b""))
    assert rows == {n: list(range(n, 300, PARTITIONS)) for n in range(PARTITIONS)}


def test_any_instance_serves_any_partition(proxies: list[ServedProxy], topic: str) -> None:
    produce(proxies[0].bootstrap, topic, 60)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=-1)
                    for number in range(PARTITIONS + 1)
                ],
            )
        ],
    )

    for proxy in proxies:
        rows = ask(proxy.bootstrap, LIST_OFFSETS, 7, request).topics[0].partitions
        assert [row.partition_index for row in rows] == list(range(PARTITIONS + 1))
        assert [row.offset for row in rows] == [10] * PARTITIONS + [-1]
        assert rows[-1].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_groups_are_listed_once(proxies: list[ServedProxy], topic: str) -> None:
    groups = [f"{topic}-{number}" for number in range(6)]
    produce(proxies[0].bootstrap, topic, 6)
    for group in groups:
        consumer = Consumer({"bootstrap.servers": proxies[0].bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        consumer.close()

    request = ListGroupsRequest(states_filter=[])
    answers = [ask(each.bootstrap, LIST_GROUPS, 4, request) for each in proxies]

    listed = [row.group_id for answer in answers for row in answer.groups]
    assert sorted(group for group in listed if group in groups) == groups


def test_folders_are_listed_with_their_broker(
    proxies: list[ServedProxy], brokers: list[ServedBroker]
) -> None:
    request = DescribeLogDirsRequest(topics=None)
    answers = [ask(each.bootstrap, DESCRIBE_LOG_DIRS, 4, request) for each in proxies]

    names = [row.log_dir for answer in answers for row in answer.results]
    prefixes = sorted(name.partition(":")[0] for name in names)
    assert prefixes == [f"broker-{broker.node_id}" for broker in brokers]


def test_settings_of_an_instance_can_be_read(proxies: list[ServedProxy]) -> None:
    admin = AdminClient({"bootstrap.servers": proxies[0].bootstrap})
    resource = ConfigResource(ResourceType.BROKER, "2")

    settings = admin.describe_configs([resource])[resource].result(20)

    assert settings


def test_replicas_cannot_be_assigned(proxies: list[ServedProxy]) -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    rows = [
        CreatableTopic(
            name=name,
            num_partitions=-1 if assigned else 1,
            replication_factor=-1,
            assignments=assigned,
            configs=[],
        )
        for name, assigned in ((uuid4().hex, [assignment]), (uuid4().hex, []))
    ]
    request = CreateTopicsRequest(topics=rows, timeout_ms=10_000)

    answer = ask(proxies[0].bootstrap, CREATE_TOPICS, 7, request)

    codes = {row.name: row.error_code for row in answer.topics}
    assert codes == {
        rows[0].name: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        rows[1].name: ErrorCode.NONE,
    }


def test_refused_apis_are_not_offered(proxies: list[ServedProxy]) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = ask(proxies[0].bootstrap, API_VERSIONS, 3, request)

    offered = {row.api_key for row in answer.api_keys}
    assert {0, 1, 3, 10, 68} <= offered
    assert offered.isdisjoint({34, 45, 46, 64, 76, 77, 78, 79, 90, 91, 92})
    assert "share.version" not in {row.name for row in answer.supported_features}


def test_consumer_groups_of_the_new_protocol(proxies: list[ServedProxy], topic: str) -> None:
    produce(proxies[0].bootstrap, topic, 60)
    settings = {
        "bootstrap.servers": proxies[0].bootstrap,
        "group.id": topic,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        assert sorted(int(each.value() or b"") for each in read(consumer, 60)) == list(range(60))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_kafka_python_reads_and_writes(proxies: list[ServedProxy], topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=proxies[0].bootstrap, acks="all")
    for number in range(60):
        producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    producer.flush(20)
    producer.close()

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=proxies[1].bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
    )
    values: list[int] = []

    def has_all() -> bool:
        for messages in consumer.poll(500).values():
            values.extend(int(message.value) for message in messages)
        return len(values) >= 60

    wait_until(has_all)
    consumer.close()
    assert sorted(values) == list(range(60))


def test_own_client_reads_and_writes(proxies: list[ServedProxy], topic: str) -> None:
    async def run() -> list[int]:
        async with Client(proxies[0].bootstrap) as client:
            return [
                (await client.produce(topic, value=b"tchack", partition=number)).offset
                for number in (0, 1, 1, 2)
            ]

    assert asyncio.run(run()) == [0, 0, 1, 0]
