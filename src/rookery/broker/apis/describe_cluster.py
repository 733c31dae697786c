"""DescribeCluster: the cluster's id and its live brokers (KIP-700)."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.operations import NOT_ASKED, ON_CLUSTER
from rookery.errors import ErrorCode
from rookery.wire.messages.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    refuse,
)

_BROKERS, _CONTROLLERS = 1, 2


@handles(
    DESCRIBE_CLUSTER,
    versions=range(3),
    mutates=False,
)
async def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the live brokers; fenced brokers are removed immediately and never listed."""
    if request.endpoint_type != _BROKERS:
        is_known = request.endpoint_type == _CONTROLLERS
        answer = refuse(
            request,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        )
        answer.endpoint_type = _BROKERS
        answer.error_message = "this is a broker; the cluster has no controllers of its own"
        return answer
    await call.services.replica.barrier()
    brokers = call.brokers
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=call.state.cluster_id,
        controller_id=min((broker.node_id for broker in brokers), default=-1),
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers
        ],
        cluster_authorized_operations=(
            ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
