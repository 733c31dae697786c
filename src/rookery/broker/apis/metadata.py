"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from rookery.broker.call import Call
from rookery.broker.registry import handles
from rookery.broker.topics import new_topic
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@handles(METADATA)
async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describe the topics asked for, or all; make those that are missing, if that is allowed."""
    asked = request.topics
    is_all = asked is None or (not asked and call.version == 0)
    if is_all:
        topics = [_describe(topic) for topic in list(call.state.topics)]
    else:
        await _make_missing(call, request)
        topics = [_find(call, item) for item in asked or ()]
    brokers = call.state.brokers
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers.by_node.values()
        ],
        cluster_id=call.state.cluster_id,
        controller_id=min(brokers.by_node, default=-1),
        topics=topics,
    )


async def _make_missing(call: Call, request: MetadataRequest) -> None:
    names = [item.name for item in request.topics or () if item.name]
    missing = [name for name in names if name not in call.state.topics.by_name]
    if not missing:
        return
    # Another broker may have made it just now.
    await call.services.replica.barrier()
    allowed = call.services.settings.auto_create_topics and (
        request.allow_auto_topic_creation or call.version < 4
    )
    events = []
    for name in missing:
        if allowed and name not in call.state.topics.by_name:
            try:
                events.append(new_topic(call.services, name))
            except ApiError:
                continue  # `_find` answers with the reason
    if events:
        await call.services.replica.propose(events)


def _find(call: Call, item: MetadataRequestTopic) -> MetadataResponseTopic:
    topics = call.state.topics
    if item.name:
        topic = topics.by_name.get(item.name)
        error = _reason(item.name)
    else:
        topic = topics.by_id.get(item.topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
    if topic is not None:
        return _describe(topic)
    return MetadataResponseTopic(
        error_code=error,
        name=item.name,
        topic_id=item.topic_id if item.name is None else ZERO_UUID,
        is_internal=False,
        partitions=[],
    )


def _reason(name: str) -> ErrorCode:
    from rookery.broker.topics import check_name  # noqa: PLC0415

    try:
        check_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _describe(topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=False,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[partition.leader],
                isr_nodes=[partition.leader],
                offline_replicas=[],
            )
            for partition in topic.partitions
        ],
    )
