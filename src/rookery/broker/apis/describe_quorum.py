"""DescribeQuorum: presents the cluster log as a Kafka metadata quorum.

There is no quorum and no leader: every broker appends to the shared log. Every live broker is
reported as a voter that has the whole log. The leader is the broker that Metadata reports as the
controller.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.cluster.state.brokers import LiveBroker
from rookery.errors import ErrorCode
from rookery.wire.messages.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)

_LOG: Final = "__cluster_metadata"


@handles(DESCRIBE_QUORUM, versions=range(3), mutates=False)
async def describe_quorum(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe partition 0 of the metadata log; all other partitions are unknown here.

    The nodes are those of that partition: without it, there are none.
    """
    await call.services.replica.barrier()
    topics = [
        QuorumTopic(
            topic_name=topic.topic_name,
            partitions=[
                _partition(call, topic.topic_name, asked.partition_index)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    is_known = any(
        part.error_code is ErrorCode.NONE for topic in topics for part in topic.partitions
    )
    nodes = [
        Node(node_id=broker.node_id, listeners=_listeners(broker))
        for broker in call.services.brokers
    ]
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE, topics=topics, nodes=nodes if is_known else []
    )


def _listeners(broker: LiveBroker) -> list[Listener]:
    if not broker.endpoints:
        return [Listener(name="PLAINTEXT", host=broker.host, port=broker.port)]
    return [
        Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
        for endpoint in broker.endpoints
    ]


def _partition(call: Call, name: str, index: int) -> QuorumPartition:
    if (name, index) != (_LOG, 0):
        return QuorumPartition(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
            current_voters=[],
            observers=[],
        )
    now = call.services.clock.now_ms()
    return QuorumPartition(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=min(call.state.brokers.by_node, default=-1),
        leader_epoch=0,
        high_watermark=call.state.applied,
        current_voters=[
            ReplicaState(
                replica_id=node,
                log_end_offset=call.state.applied,
                last_fetch_timestamp=now,
                last_caught_up_timestamp=now,
            )
            for node in call.state.brokers.nodes
        ],
        observers=[],
    )
