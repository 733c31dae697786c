"""Metadata: brokers, topics, partitions and their leaders.

Requests of versions 10 and 11 have topic ids that must not be used; version 12 accepts them.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide, may_create_unasked
from rookery.broker.operations import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from rookery.broker.topics import (
    check_alike,
    check_name,
    new_topic,
)
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.model.topicname import INTERNAL_TOPICS, RESERVED_TOPICS
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

# Limits how many topics one request can create.
_MAX_MADE: Final = 1000
Refused = dict[str, ErrorCode]


@handles(
    METADATA,
    versions=range(14),
    # It can create topics, but not on a read-only broker.
    mutates=True,
    is_served_read_only=True,
)
async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describe the brokers and the topics asked for; create missing topics if that is allowed."""
    asked = request.topics
    if asked is None or (not asked and call.version == 0):
        await call.services.replica.barrier()
        topics = [_describe(call, topic) for topic in call.state.topics]
    else:
        _check(call, asked)
        refused = await _complete(call, request)
        topics = [_find(call, item, refused) for item in asked]
    if request.include_topic_authorized_operations:
        topics = [_with_operations(topic) for topic in topics]
    return _answer(call, request, topics)


def _answer(
    call: Call, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    brokers = call.brokers
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers
        ],
        cluster_id=call.state.cluster_id,
        # Any broker accepts administrative requests; all brokers report the same controller.
        controller_id=min((broker.node_id for broker in brokers), default=-1),
        topics=topics,
        cluster_authorized_operations=(
            ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _check(call: Call, asked: list[MetadataRequestTopic]) -> None:
    if call.version < 12 and any(item.name is None or item.topic_id != ZERO_UUID for item in asked):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "topics can be requested by id from version 12 on"
        )


async def _complete(call: Call, request: MetadataRequest) -> Refused:
    """Wait for topics that are not known here, and create those that do not exist."""
    if all(_topic(call, item) for item in request.topics or ()):
        return {}
    # Another broker may have just created it.
    await call.services.replica.barrier()
    allowed = call.services.settings.auto_create_topics and (
        request.allow_auto_topic_creation or call.version < 4
    )
    missing = [
        item.name or ""
        for item in request.topics or ()
        if item.topic_id == ZERO_UUID and not _topic(call, item)
    ]
    return await _make(call, list(dict.fromkeys(missing)), allowed=allowed)


async def _make(call: Call, names: list[str], *, allowed: bool) -> Refused:
    refused: Refused = {}
    events: list[TopicCreated] = []
    for name in names:
        try:
            check_name(name)
            if allowed and name not in RESERVED_TOPICS and len(events) < _MAX_MADE:
                check_alike(call.state.topics, name)
                event = new_topic(call.services, name)
                # Otherwise the topic is reported as unknown, and the client asks again.
                if may_create_unasked(call, event.partitions):
                    events.append(event)
        except ApiError as error:
            refused[name] = error.code
    outcomes = await decide(call, events)
    for event, outcome in zip(events, outcomes, strict=True):
        if outcome.error not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            refused[event.name] = outcome.error
    return refused


def _topic(call: Call, item: MetadataRequestTopic) -> Topic | None:
    topics = call.state.topics
    if item.topic_id != ZERO_UUID:
        return topics.by_id.get(item.topic_id)
    return topics.by_name.get(item.name or "")


def _find(call: Call, item: MetadataRequestTopic, refused: Refused) -> MetadataResponseTopic:
    topic = _topic(call, item)
    if topic is not None:
        return _describe(call, topic)
    is_by_id = item.topic_id != ZERO_UUID
    name = item.name or ""
    return MetadataResponseTopic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_ID
            if is_by_id
            else refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ),
        name=None if is_by_id else name,
        topic_id=item.topic_id,
        is_internal=not is_by_id and name in INTERNAL_TOPICS,
        partitions=[],
    )


def _describe(call: Call, topic: Topic) -> MetadataResponseTopic:
    return call.services.descriptions.of(call.state, topic)


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """Return a copy: the description is shared with clients that do not ask for operations."""
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        # Kafka has no authorized operations for a topic that it knows only by id.
        topic_authorized_operations=NOT_ASKED if topic.name is None else ON_TOPIC,
    )
