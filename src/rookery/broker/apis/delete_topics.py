"""DeleteTopics: deletes topics, by name or by id, with all their records."""

from __future__ import annotations

from collections import Counter
from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide, take_mutations
from rookery.cluster.events.topicevents import TopicDeleted
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.delete_topics import (
    DELETE_TOPICS,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_STRICT_SINCE: Final = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


@handles(
    DELETE_TOPICS,
    versions=range(1, 7),
    mutates=True,
)
async def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics by name or id; a topic that occurs twice in the request is not deleted."""
    await call.services.replica.barrier()
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    topics = [_find(call, item) for item in asked]
    counts = Counter(topic.id for topic in topics if topic is not None)
    results = [_check(call, item, topic, counts) for item, topic in zip(asked, topics, strict=True)]
    fine = [result for result in results if result.error_code is ErrorCode.NONE]
    events = [TopicDeleted(topic_id=result.topic_id) for result in fine]
    for result, outcome in zip(fine, await decide(call, events, request.timeout_ms), strict=True):
        result.error_code = outcome.error
        if outcome.error is not ErrorCode.NONE:
            result.error_message = outcome.error.sentence
    return DeleteTopicsResponse(responses=results)


def _find(call: Call, item: DeleteTopicState) -> Topic | None:
    topics = call.state.topics
    return topics.by_id.get(item.topic_id) if item.name is None else topics.by_name.get(item.name)


def _check(
    call: Call, item: DeleteTopicState, topic: Topic | None, counts: Counter[bytes]
) -> DeletableTopicResult:
    if item.name is not None and item.topic_id != ZERO_UUID:
        return _refuse(item, ErrorCode.INVALID_REQUEST, "name a topic or give its id, not both")
    if topic is None:
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID
            if item.name is None
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return _refuse(item, unknown, unknown.sentence)
    if counts[topic.id] > 1:
        return _refuse(item, ErrorCode.INVALID_REQUEST, "the topic is named more than once")
    try:
        take_mutations(call, len(topic.partitions), strict_since=_STRICT_SINCE)
    except ApiError as error:
        return _refuse(item, error.code, error.text)
    return DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=ErrorCode.NONE)


def _refuse(item: DeleteTopicState, code: ErrorCode, text: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=item.name, topic_id=item.topic_id, error_code=code, error_message=text
    )
