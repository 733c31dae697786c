"""DescribeCluster (key 60): the cluster's id, its brokers and its controller (KIP-700).

Admin tools ask this; producers and consumers ask Metadata.

Versions:
    1: can ask for the controllers instead of the brokers (KIP-919).
    2: can ask for brokers that are fenced, which Metadata hides (KIP-1073).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    BrokerId,
    ClusterId,
    Host,
    Message,
    Port,
    RackId,
    field,
    i8,
    i32,
)


class DescribeClusterRequest(Message):
    """The kind of nodes to list, and whether to add permitted operations."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: i8 = field(since=1, default=1)  # 1 brokers, 2 controllers
    include_fenced_brokers: bool = field(since=2, default=False)


class DescribeClusterResponse(Message):
    """The cluster as the broker sees it."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    endpoint_type: i8 = field(since=1, default=1)
    cluster_id: ClusterId
    controller_id: BrokerId = -1  # -1: none
    brokers: list[DescribeClusterBroker]
    # A bit for each operation of an access rule; the smallest number: not requested.
    cluster_authorized_operations: i32 = -2147483648


class DescribeClusterBroker(Message):
    """One broker, or controller."""

    broker_id: BrokerId
    host: Host
    port: Port
    rack: RackId | None = None
    is_fenced: bool = field(since=2, default=False)


def refuse(request: DescribeClusterRequest, code: ErrorCode) -> DescribeClusterResponse:
    """Answer with the code and no brokers."""
    return DescribeClusterResponse(
        error_code=code,
        error_message=code.sentence,
        endpoint_type=request.endpoint_type,
        cluster_id="",
        brokers=[],
    )


DESCRIBE_CLUSTER = Api(
    key=60,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    versions=range(3),
    flexible=0,
    refuse=refuse,
)
