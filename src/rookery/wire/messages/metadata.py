"""Metadata (key 3): the map of the cluster: its brokers, and each topic's partitions and leaders.

A client asks for it before anything else, and again whenever an answer shows that its map is old.

Versions:
    0 an empty list of topics means all of them.
    1 null means all, an empty list none; controller, racks, internal topics.
    2 the cluster's id (KIP-78).
    3 the response has the throttle time.
    4 the client says whether asking may create a topic.
    5 replicas whose broker or disk is down (KIP-112).
    6 a throttled client is answered at once and waits by itself (KIP-219).
    7 leader epochs (KIP-320).
    8 what the client may do with the cluster and each topic (KIP-430).
    9 flexible.
    10 topic ids in the answer (KIP-516).
    11 the cluster's operations move to DescribeCluster (KIP-700).
    12 topics can be asked for by id (KIP-516).
    13 a code for the whole answer, to send a client back to its bootstrap servers (KIP-1102).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    BrokerId,
    ClusterId,
    Host,
    LeaderEpoch,
    Message,
    PartitionId,
    Port,
    RackId,
    TopicId,
    TopicName,
    field,
    i32,
)


class MetadataRequest(Message):
    """Which topics the client wants on its map."""

    topics: list[MetadataRequestTopic] | None = field(nullable=1)  # see versions 0 and 1
    allow_auto_topic_creation: bool = field(since=4, default=True)
    include_cluster_authorized_operations: bool = field(since=8, until=10, default=False)
    include_topic_authorized_operations: bool = field(since=8, default=False)


class MetadataRequestTopic(Message):
    """A topic by name, or by id with a null name."""

    topic_id: TopicId = field(since=10, default=ZERO_UUID)
    name: TopicName | None = field(nullable=10)


class MetadataResponse(Message):
    """The map, as the answering broker sees it."""

    throttle_time_ms: i32 = field(since=3, default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: ClusterId | None = field(since=2, default=None)
    controller_id: BrokerId = field(since=1, default=-1)
    topics: list[MetadataResponseTopic]
    # A bit for each permitted operation; the lowest number of all: not requested.
    cluster_authorized_operations: i32 = field(since=8, until=10, default=-2147483648)
    error_code: ErrorCode = field(since=13, default=ErrorCode.NONE)


class MetadataResponseBroker(Message):
    """A broker that is alive, and where to reach it."""

    node_id: BrokerId
    host: Host
    port: Port
    rack: RackId | None = field(since=1, default=None)


class MetadataResponseTopic(Message):
    """A topic and its partitions, or why there are none to show."""

    error_code: ErrorCode
    name: TopicName | None = field(nullable=12)  # null if it was asked for by an unknown id
    topic_id: TopicId = field(since=10, default=ZERO_UUID)
    is_internal: bool = field(since=1, default=False)  # Kafka's own, such as __consumer_offsets
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: i32 = field(since=8, default=-2147483648)


class MetadataResponsePartition(Message):
    """A partition's leader and its replicas."""

    error_code: ErrorCode
    partition_index: PartitionId
    leader_id: BrokerId  # -1 while there is none
    leader_epoch: LeaderEpoch = field(since=7, default=-1)
    replica_nodes: list[BrokerId]  # the preferred leader comes first
    isr_nodes: list[BrokerId]
    offline_replicas: list[BrokerId] = field(since=5, factory=list)


def refuse(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """Give the code to the whole and to each topic that was asked for, and name no broker.

    A request for all topics gets an empty map below version 13: there is no field for the code.
    """
    return MetadataResponse(
        error_code=code,
        brokers=[],
        topics=[_refuse_topic(topic, code) for topic in request.topics or []],
    )


def refuse_items(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """Give the code to each topic, and name no broker."""
    return MetadataResponse(
        brokers=[], topics=[_refuse_topic(topic, code) for topic in request.topics or []]
    )


def _refuse_topic(topic: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=topic.name or "",  # an answer's name may be null only from version 12
        topic_id=topic.topic_id,
        partitions=[],
    )


METADATA = Api(
    key=3,
    request=MetadataRequest,
    response=MetadataResponse,
    versions=range(14),
    flexible=9,
    refuse=refuse,
    items=(Items("topics(name | topic_id)", "topics(name | topic_id)", all_if_empty=range(1)),),
    refuse_items=refuse_items,
)
