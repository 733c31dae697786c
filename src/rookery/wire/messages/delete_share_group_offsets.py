"""DeleteShareGroupOffsets (key 92): make a share group forget topics (KIP-932).

The group must be empty.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import ZERO_UUID, Api, GroupId, Message, TopicId, TopicName, i32


class DeleteShareGroupOffsetsRequest(Message):
    """The topics to forget."""

    group_id: GroupId
    topics: list[TopicRequest]


class TopicRequest(Message):
    """One topic to forget."""

    topic_name: TopicName


class DeleteShareGroupOffsetsResponse(Message):
    """Whether the topics are forgotten."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    responses: list[TopicResponse]


class TopicResponse(Message):
    """One topic, answered."""

    topic_name: TopicName
    topic_id: TopicId
    error_code: ErrorCode
    error_message: str | None = None


def refuse(
    request: DeleteShareGroupOffsetsRequest, code: ErrorCode
) -> DeleteShareGroupOffsetsResponse:
    """Give the code and its sentence for the whole request."""
    return DeleteShareGroupOffsetsResponse(
        error_code=code, error_message=code.sentence, responses=[]
    )


def refuse_items(
    request: DeleteShareGroupOffsetsRequest, code: ErrorCode
) -> DeleteShareGroupOffsetsResponse:
    """Give the code to every topic."""
    return DeleteShareGroupOffsetsResponse(
        error_code=ErrorCode.NONE,
        responses=[
            TopicResponse(
                topic_name=topic.topic_name,
                topic_id=ZERO_UUID,
                error_code=code,
                error_message=code.sentence,
            )
            for topic in request.topics
        ],
    )


DELETE_SHARE_GROUP_OFFSETS = Api(
    key=92,
    request=DeleteShareGroupOffsetsRequest,
    response=DeleteShareGroupOffsetsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(Items("topics(topic_name)", "responses(topic_name)"),),
    refuse_items=refuse_items,
)
