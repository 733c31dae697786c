"""Shows clients the proxy's instances in place of the upstream's brokers.

Error codes, leader epochs, topic ids and everything else of the upstream stay as they are. A
partition has as many replicas as the upstream has, but no more than there are instances; its first
replica is its leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rookery.errors import ErrorCode
from rookery.model.address import Address
from rookery.proxy.addresses import replace_addresses
from rookery.proxy.nodes.instances import InstanceList
from rookery.proxy.nodes.resourceroute import TYPES_OF_BROKERS
from rookery.proxy.nodes.topology import NO_BROKER
from rookery.wire.message import Message
from rookery.wire.messages import fetch, produce
from rookery.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from rookery.wire.messages.describe_quorum import DescribeQuorumResponse
from rookery.wire.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from rookery.wire.messages.fetch import FetchResponse
from rookery.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from rookery.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesResponse,
)
from rookery.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from rookery.wire.messages.produce import ProduceResponse

_BROKERS: Final = 1
"""The kind of nodes that DescribeCluster lists, in addition to controllers."""


class NodeView:
    """Rewrites the answers of an upstream."""

    def __init__(self, instances: InstanceList, name_of: Callable[[bytes], str | None]) -> None:
        """Prepare the view.

        Args:
            instances: the nodes that clients see.
            name_of: returns the name of a topic by its id; None if it is not known.
        """
        self._instances = instances
        self._name_of = name_of

    def show(self, request: Message, response: Message) -> Message:
        """Replace brokers by instances in an answer, in place; return it."""
        match response:
            case MetadataResponse():
                self._show_metadata(response)
            case DescribeClusterResponse():
                self._show_cluster(response)
            case DescribeTopicPartitionsResponse():
                self._show_topics(response)
            case FindCoordinatorResponse():
                self._show_coordinators(request, response)
            case ProduceResponse():
                self._show_produced(response)
            case FetchResponse():
                self._show_fetched(response)
            case DescribeQuorumResponse():
                replace_addresses(response, self._instances.present.get)
            case ListConfigResourcesResponse():
                self._show_resources(response)
            case _:
                pass
        return response

    def _show_metadata(self, response: MetadataResponse) -> None:
        response.brokers = [
            MetadataResponseBroker(node_id=node, host=where.host, port=where.port, rack=None)
            for node, where in self._instances.present.items()
        ]
        response.controller_id = self._instances.controller_id
        for topic in response.topics:
            for row in topic.partitions:
                self._show_partition(topic.name, row)

    def _show_cluster(self, response: DescribeClusterResponse) -> None:
        if response.error_code or response.endpoint_type != _BROKERS:
            response.brokers = []
            return
        response.controller_id = self._instances.controller_id
        response.brokers = [
            DescribeClusterBroker(broker_id=node, host=where.host, port=where.port, rack=None)
            for node, where in self._instances.present.items()
        ]

    def _show_topics(self, response: DescribeTopicPartitionsResponse) -> None:
        for topic in response.topics:
            for row in topic.partitions:
                self._show_partition(topic.name, row)
                row.eligible_leader_replicas = row.eligible_leader_replicas and []
                row.last_known_elr = row.last_known_elr and []

    def _show_resources(self, response: ListConfigResourcesResponse) -> None:
        rows = response.config_resources
        kinds = sorted({row.resource_type for row in rows} & TYPES_OF_BROKERS)
        response.config_resources = [
            *(row for row in rows if row.resource_type not in TYPES_OF_BROKERS),
            *(
                ConfigResource(resource_name=str(node), resource_type=kind)
                for kind in kinds
                for node in self._instances.present
            ),
        ]

    def _show_partition(self, topic: str | None, row: Any) -> None:
        nodes = self._instances.replicas_of(
            topic or "", row.partition_index, len(row.replica_nodes)
        )
        if row.leader_id != NO_BROKER:
            row.leader_id = nodes[0]
        row.isr_nodes = nodes[: len(row.isr_nodes)]
        row.replica_nodes = nodes
        row.offline_replicas = []

    def _show_coordinators(self, request: Message, response: FindCoordinatorResponse) -> None:
        assert isinstance(request, FindCoordinatorRequest)  # noqa: S101 (each answers the other)
        if response.error_code is ErrorCode.NONE and response.node_id != NO_BROKER:
            place = self._coordinator(request.key_type, request.key)
            response.node_id, (response.host, response.port) = place
        for row in response.coordinators:
            if row.error_code is ErrorCode.NONE:
                place = self._coordinator(request.key_type, row.key)
                row.node_id, (row.host, row.port) = place

    def _coordinator(self, key_type: int, key: str) -> tuple[int, Address]:
        node = self._instances.coordinator_of(key_type, key)
        return node, self._instances.addresses[node]

    def _show_produced(self, response: ProduceResponse) -> None:
        nodes = {
            self._hint(topic.name or topic.topic_id, row.index, row.current_leader)
            for topic in response.responses
            for row in topic.partition_responses
            if row.current_leader is not None
        }
        response.node_endpoints = [
            produce.NodeEndpoint(node_id=node, host=where.host, port=where.port, rack=None)
            for node, where in self._instances.addresses.items()
            if node in nodes
        ]

    def _show_fetched(self, response: FetchResponse) -> None:
        nodes: set[int] = set()
        for topic in response.responses:
            for row in topic.partitions:
                row.preferred_read_replica = NO_BROKER
                if row.current_leader is not None:
                    key = topic.topic or topic.topic_id
                    nodes.add(self._hint(key, row.partition_index, row.current_leader))
        response.node_endpoints = [
            fetch.NodeEndpoint(node_id=node, host=where.host, port=where.port, rack=None)
            for node, where in self._instances.addresses.items()
            if node in nodes
        ]

    def _hint(self, topic: str | bytes, partition: int, leader: Any) -> int:
        """Name the instance in a broker's hint at the new leader (KIP-951); return it."""
        name = self._name_of(topic) if isinstance(topic, bytes) else topic
        if name is None or leader.leader_id == NO_BROKER:
            # Without a name, the client is left to ask for the metadata.
            leader.leader_id = NO_BROKER
            return NO_BROKER
        leader.leader_id = self._instances.leader_of(name, partition)
        return int(leader.leader_id)
