"""DeleteTopics (key 20): an administrator deletes topics (KIP-4).

Versions:
    1 the response has the throttle time; Kafka 4's oldest.
    2 a throttled client is answered at once and waits by itself (KIP-219).
    3 the client knows TOPIC_DELETION_DISABLED.
    4 flexible.
    5 a failure comes with a message; THROTTLING_QUOTA_EXCEEDED (KIP-599).
    6 topics by name or by id (KIP-516).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import ZERO_UUID, Api, Message, TopicId, TopicName, field, i32


class DeleteTopicsRequest(Message):
    """The topics to delete: by name up to version 5, either way from version 6."""

    topics: list[DeleteTopicState] = field(since=6, factory=list)
    topic_names: list[TopicName] = field(until=5, factory=list)
    timeout_ms: i32


class DeleteTopicState(Message):
    """A topic by name with a zero id, or by id with a null name."""

    name: TopicName | None = None
    topic_id: TopicId = ZERO_UUID


class DeleteTopicsResponse(Message):
    """Which topics were deleted."""

    throttle_time_ms: i32 = field(since=1, default=0)
    responses: list[DeletableTopicResult]


class DeletableTopicResult(Message):
    """Whether one topic was deleted."""

    name: TopicName | None = field(nullable=6)  # null where the client may not learn it
    topic_id: TopicId = field(since=6, default=ZERO_UUID)
    error_code: ErrorCode
    error_message: str | None = field(since=5, default=None)


def refuse(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Give the code to every topic, called by name or id as the client called it."""
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=code,
                error_message=code.sentence,
            )
            for topic in asked
        ]
    )


DELETE_TOPICS = Api(
    key=20,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    versions=range(7),
    flexible=4,
    refuse=refuse,
    items=(
        Items("topics(name | topic_id)", "responses(name | topic_id)"),
        Items("topic_names", "responses(name | topic_id)"),
    ),
)
