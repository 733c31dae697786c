"""Clients see instances in place of brokers, and everything else as the upstream has it."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.model.address import Address
from rookery.proxy.nodes.instances import InstanceList
from rookery.proxy.nodes.nodeview import NodeView
from rookery.proxy.nodes.resourceroute import (
    REFUSED,
    choose_broker,
    rename_brokers,
    restore_names,
)
from rookery.proxy.nodes.topology import NO_BROKER
from rookery.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from rookery.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from rookery.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PartitionResponse,
    TopicResponse,
)
from rookery.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from rookery.wire.messages.fetch import LeaderIdAndEpoch as FetchLeader
from rookery.wire.messages.fetch import NodeEndpoint as FetchEndpoint
from rookery.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from rookery.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from rookery.wire.messages.metadata import MetadataRequest
from rookery.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.proxy.nodes.test_topology import BIRDS, metadata

INSTANCES = InstanceList(10, {10: Address("proxy-10", 9092), 20: Address("proxy-20", 9093)})
VIEW = NodeView(INSTANCES, {BIRDS: "birds"}.get)


def test_metadata_shows_instances() -> None:
    response = metadata({0: (1, 5), 1: (2, 6), 2: (NO_BROKER, 7)})
    for row in response.topics[0].partitions:
        row.replica_nodes = [1, 2, 3]
        row.isr_nodes = [1]
        row.offline_replicas = [2, 3]

    VIEW.show(MetadataRequest(topics=[]), response)

    assert [(row.node_id, row.host, row.port) for row in response.brokers] == [
        (10, "proxy-10", 9092),
        (20, "proxy-20", 9093),
    ]
    assert response.controller_id == 10
    first, second, last = response.topics[0].partitions
    assert {first.leader_id, second.leader_id} == {10, 20}
    for row in (first, second):
        assert row.leader_id == row.replica_nodes[0] == row.isr_nodes[0]
        assert sorted(row.replica_nodes) == [10, 20]
        assert len(row.isr_nodes) == 1
        assert row.offline_replicas == []
    assert [row.leader_epoch for row in (first, second, last)] == [5, 6, 7]
    assert last.leader_id == NO_BROKER


def test_described_topics_have_the_same_leaders() -> None:
    response = DescribeTopicPartitionsResponse(
        topics=[
            TopicResponse(
                error_code=ErrorCode.NONE,
                name="birds",
                topic_id=BIRDS,
                partitions=[
                    PartitionResponse(
                        error_code=ErrorCode.NONE,
                        partition_index=index,
                        leader_id=3,
                        replica_nodes=[3],
                        isr_nodes=[3],
                        eligible_leader_replicas=[1],
                        last_known_elr=None,
                        offline_replicas=[],
                    )
                    for index in range(4)
                ],
            )
        ]
    )

    VIEW.show(DescribeTopicPartitionsRequest(topics=[]), response)

    rows = response.topics[0].partitions
    assert [row.leader_id for row in rows] == [INSTANCES.leader_of("birds", n) for n in range(4)]
    assert all(row.eligible_leader_replicas == [] for row in rows)
    assert all(row.last_known_elr is None for row in rows)


def test_described_cluster_shows_instances() -> None:
    broker = DescribeClusterBroker(broker_id=3, host="kafka-3", port=9092)
    response = DescribeClusterResponse(
        error_code=ErrorCode.NONE, cluster_id="kafka", controller_id=3, brokers=[broker]
    )

    VIEW.show(DescribeClusterRequest(), response)

    assert [row.broker_id for row in response.brokers] == [10, 20]
    assert response.controller_id == 10
    assert response.cluster_id == "kafka"


def test_controllers_are_not_shown() -> None:
    broker = DescribeClusterBroker(broker_id=3, host="controller-3", port=9093)
    response = DescribeClusterResponse(
        error_code=ErrorCode.NONE, endpoint_type=2, cluster_id="kafka", brokers=[broker]
    )

    VIEW.show(DescribeClusterRequest(endpoint_type=2), response)

    assert response.brokers == []


def test_coordinators_are_instances() -> None:
    rows = [
        Coordinator(key=key, node_id=2, host="kafka-2", port=9092, error_code=ErrorCode.NONE)
        for key in ("a", "b", "c")
    ]
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    failed = Coordinator(key="d", node_id=-1, host="", port=-1, error_code=code)
    response = FindCoordinatorResponse(coordinators=[*rows, failed])

    VIEW.show(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "c", "d"]), response)

    for row in response.coordinators[:3]:
        assert row.node_id == INSTANCES.coordinator_of(0, row.key)
        assert (row.host, row.port) == INSTANCES.addresses[row.node_id]
    assert (failed.node_id, failed.host) == (-1, "")


def test_single_coordinator_is_an_instance() -> None:
    response = FindCoordinatorResponse(node_id=2, host="kafka-2", port=9092)

    VIEW.show(FindCoordinatorRequest(key="a", key_type=1), response)

    assert response.node_id == INSTANCES.coordinator_of(1, "a")
    assert response.host == f"proxy-{response.node_id}"


def test_hints_of_produces_name_instances() -> None:
    row = PartitionProduceResponse(
        index=1,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        base_offset=-1,
        current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=8),
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(topic_id=BIRDS, partition_responses=[row])],
        node_endpoints=[NodeEndpoint(node_id=3, host="kafka-3", port=9092)],
    )

    VIEW.show(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[]), response)

    leader = INSTANCES.leader_of("birds", 1)
    assert row.current_leader == LeaderIdAndEpoch(leader_id=leader, leader_epoch=8)
    assert [(each.node_id, each.host) for each in response.node_endpoints] == [
        (leader, f"proxy-{leader}")
    ]


def test_hints_of_fetches_name_instances() -> None:
    rows = [
        PartitionData(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            high_watermark=-1,
            current_leader=FetchLeader(leader_id=3, leader_epoch=8),
            preferred_read_replica=2,
            records=b"",
        )
    ]
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic_id=b"unknown".ljust(16), partitions=rows)],
        node_endpoints=[FetchEndpoint(node_id=3, host="kafka-3", port=9092)],
    )

    VIEW.show(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), response)

    assert rows[0].current_leader == FetchLeader(leader_id=-1, leader_epoch=8)
    assert rows[0].preferred_read_replica == -1
    assert response.node_endpoints == []


def test_listed_brokers_are_instances() -> None:
    rows = [(2, "birds"), (4, "1"), (4, "2"), (4, "3")]
    response = ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind) for kind, name in rows
        ],
    )

    VIEW.show(ListConfigResourcesRequest(resource_types=[]), response)

    listed = [(row.resource_type, row.resource_name) for row in response.config_resources]
    assert listed == [(2, "birds"), (4, "10"), (4, "20")]


def test_settings_of_an_instance_are_those_of_a_broker() -> None:
    own = DescribeConfigsResource(resource_type=4, resource_name="10", configuration_keys=None)
    upstream = own.replace(resource_name="3")
    topic = own.replace(resource_type=2, resource_name="10")
    all_brokers = own.replace(resource_name="")

    broker = choose_broker(INSTANCES, [1, 2, 3], own, is_change=False)
    assert broker in {1, 2, 3}
    assert choose_broker(INSTANCES, [1, 2, 3], own, is_change=True) == REFUSED
    assert choose_broker(INSTANCES, [1, 2, 3], upstream, is_change=True) == 3
    assert choose_broker(INSTANCES, [1, 2], upstream, is_change=True) == NO_BROKER
    assert choose_broker(INSTANCES, [1, 2, 3], topic, is_change=True) == NO_BROKER
    assert choose_broker(INSTANCES, [1, 2, 3], all_brokers, is_change=True) == NO_BROKER

    request = DescribeConfigsRequest(resources=[own])
    renamed = rename_brokers(request, broker)
    assert renamed == DescribeConfigsRequest(resources=[own.replace(resource_name=str(broker))])
    answer = DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=4,
                resource_name=str(broker),
                configs=[],
            )
        ]
    )
    restore_names(request, answer)
    assert answer.results[0].resource_name == "10"
