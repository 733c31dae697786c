"""Brokers that no longer lead a partition name the new leader (KIP-951), by the proxy's address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ErrorCode
from rookery.model.address import Address
from rookery.records import recordcodec
from rookery.records.recordcodec import Record
from rookery.testing.kafka import KafkaCluster
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.messages import alter_partition_reassignments as reassignments
from rookery.wire.messages.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequest,
    TopicPartitions,
)
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


class Move(NamedTuple):
    """A partition whose leader has moved."""

    name: str
    topic_id: bytes
    old: int
    old_epoch: int
    new: int


@pytest.fixture(scope="module")
def proxy(kafka_cluster: KafkaCluster) -> Iterator[ServedProxy]:
    with ServedProxy(kafka_cluster.bootstrap) as proxy:
        yield proxy


def describe(bootstrap: str, name: str) -> tuple[bytes, MetadataResponsePartition]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])

    def ask_any() -> MetadataResponseTopic:
        [topic] = ask(bootstrap, METADATA, 12, request).topics
        return topic

    # Brokers learn of a new topic one after the other, and any of them answers.
    topic = wait_until(ask_any, "the partition", accepts=lambda topic: topic.partitions)
    return topic.topic_id, topic.partitions[0]


@pytest.fixture
def move(proxy: ServedProxy) -> Move:
    """A topic with one partition, led by another broker than at first."""
    name, bootstrap = f"t-{uuid4().hex[:8]}", proxy.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(30)
    topic_id, before = describe(bootstrap, name)
    wait_until(lambda: len(describe(bootstrap, name)[1].isr_nodes) == 3)
    replicas = [*before.replica_nodes[1:], before.replica_nodes[0]]
    row = reassignments.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = reassignments.ReassignableTopic(name=name, partitions=[row])
    ask(
        bootstrap,
        reassignments.ALTER_PARTITION_REASSIGNMENTS,
        0,
        reassignments.AlterPartitionReassignmentsRequest(topics=[topic]),
    )
    wait_until(lambda: describe(bootstrap, name)[1].replica_nodes == replicas)
    elected = [TopicPartitions(topic=name, partitions=[0])]
    ask(bootstrap, ELECT_LEADERS, 2, ElectLeadersRequest(topic_partitions=elected))
    wait_until(lambda: describe(bootstrap, name)[1].leader_id == replicas[0])
    return Move(name, topic_id, before.leader_id, before.leader_epoch, replicas[0])


def new_leader(proxy: ServedProxy, move: Move) -> tuple[int, Address]:
    """Return the id of the new leader, and its address at the proxy."""
    return move.new, proxy.proxy.clusters[0].nodes[move.new]


def test_old_leader_names_the_new_one_for_a_produce(proxy: ServedProxy, move: Move) -> None:
    batch = recordcodec.build([Record(None, b"late")])
    part = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(topic_id=move.topic_id, partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    old = proxy.proxy.clusters[0].nodes[move.old].text

    response = ask(old, PRODUCE, 13, request)

    [row] = response.responses[0].partition_responses
    assert row.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader is not None
    assert row.current_leader.leader_id == move.new
    named = [(each.node_id, Address(each.host, each.port)) for each in response.node_endpoints]
    assert named == [new_leader(proxy, move)]


def test_old_leader_names_the_new_one_for_a_fetch(proxy: ServedProxy, move: Move) -> None:
    part = FetchPartition(
        partition=0,
        current_leader_epoch=move.old_epoch,
        fetch_offset=0,
        partition_max_bytes=1,
    )
    topic = FetchTopic(topic_id=move.topic_id, partitions=[part])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], forgotten_topics_data=[])
    old = proxy.proxy.clusters[0].nodes[move.old].text

    response = ask(old, FETCH, 16, request)

    [row] = response.responses[0].partitions
    assert row.error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert row.current_leader is not None
    assert row.current_leader.leader_id == move.new
    named = [(each.node_id, Address(each.host, each.port)) for each in response.node_endpoints]
    assert named == [new_leader(proxy, move)]
