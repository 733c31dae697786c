"""Which names and ids of topics a client learns from refusals and from pages of all topics.

A client that may not describe a topic sees only what it sent: a name without the id, or an id
without the name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rookery.errors import ErrorCode
from rookery.security.access import AclResource, Operation
from rookery.service.access.policy import AccessClient
from rookery.service.access.verdict import AccessVerdict
from rookery.wire.message import ZERO_UUID, Api, Message
from rookery.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from rookery.wire.messages.delete_topics import DELETE_TOPICS, DeleteTopicsResponse
from rookery.wire.messages.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    TopicRequest,
    has_valid_cursor,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataResponse
from rookery.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from rookery.wire.messages.offset_fetch import OFFSET_FETCH, OffsetFetchResponse

_NULL_NAMES_SINCE: Final = 12
"""The first version of Metadata whose answer can have a topic without a name."""
_GROUP_CODE: Final = range(2, 8)
"""The versions of OffsetFetch with one group and an error code for it."""


def has_lost_cursor(request: Message) -> bool:
    """Return whether a page is asked for that no topic of the request begins.

    Kafka refuses the whole request for it before it asks for permissions.
    """
    return isinstance(request, DescribeTopicPartitionsRequest) and not has_valid_cursor(request)


def name_visible_topics(
    api: Api[Any, Any], request: Message, client: AccessClient, names: Callable[[], list[str]]
) -> DescribeTopicPartitionsRequest | None:
    """Return a request for all topics with the names of those that the client may describe.

    An answer cannot be filtered instead, because the cursor of the next page names a topic. A
    request with names loses those before its cursor. None for other requests.
    """
    if api is not DESCRIBE_TOPIC_PARTITIONS:
        return None
    asked: DescribeTopicPartitionsRequest = request  # type: ignore[assignment] # of this API
    if asked.topics:
        # Clients repeat all names for each page, and a denied topic is reported on one of them.
        return (
            None if asked.cursor is None else _page(asked, [topic.name for topic in asked.topics])
        )
    visible = [name for name in names() if client.has(Operation.DESCRIBE, AclResource.TOPIC, name)]
    return _page(asked, visible)


def _page(
    asked: DescribeTopicPartitionsRequest, names: list[str]
) -> DescribeTopicPartitionsRequest:
    """Return a request for those of the names that do not precede the cursor."""
    first = "" if asked.cursor is None else asked.cursor.topic_name
    page = asked.replace(topics=[TopicRequest(name=name) for name in names if name >= first])
    return _without_lost_cursor(page)


def _without_lost_cursor(page: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsRequest:
    """Return a page without its cursor if it is of a topic that is not on the page any more."""
    return page if has_valid_cursor(page) else page.replace(cursor=None)


def serve_page(verdict: AccessVerdict) -> None:
    """Serve a page of topics from its first one if the topic of its cursor is refused."""
    if isinstance(verdict.request, DescribeTopicPartitionsRequest):
        verdict.request = _without_lost_cursor(verdict.request)


def restore_names(
    api: Api[Any, Any],
    version: int,
    refusal: Message,
    client: AccessClient,
    name_of: Callable[[bytes], str | None],
) -> None:
    """Give refused topics the names that Kafka gives them."""
    if api is METADATA and isinstance(refusal, MetadataResponse):
        for topic in refusal.topics:
            if topic.topic_id != ZERO_UUID and version >= _NULL_NAMES_SINCE:
                topic.name = None
    elif api is DELETE_TOPICS and isinstance(refusal, DeleteTopicsResponse):
        for result in refusal.responses:
            if result.error_code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED or result.name:
                continue
            name = name_of(result.topic_id)
            if name and client.has(Operation.DESCRIBE, AclResource.TOPIC, name):
                result.name = name


def report_missing(refusal: Message, partitions_of: Callable[[str], int]) -> None:
    """Report partitions that do not exist as such, of topics that a denied one keeps from a change.

    A client may write to these topics, so that it may learn this.
    """
    if not isinstance(refusal, AddPartitionsToTxnResponse):
        return
    for topic in refusal.results_by_topic_v3_and_below:
        count = partitions_of(topic.name)
        for part in topic.results_by_partition:
            if not 0 <= part.partition_index < count:
                part.partition_error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def serve_brokers(verdict: AccessVerdict, request: Message) -> None:
    """Serve a Metadata request whose topics are all refused: every client learns of the brokers."""
    if verdict.request is not None or not isinstance(request, MetadataRequest):
        return

    def remove_topics(answer: MetadataResponse) -> Message:
        # In version 0, an empty list asks for all topics.
        return answer.replace(topics=[])

    verdict.serve_empty(request.replace(topics=[]))
    verdict.changes.append(remove_topics)


def serve_group(verdict: AccessVerdict, request: Message) -> None:
    """Serve an OffsetDelete whose topics are refused: the group is looked up first.

    An error of the group then takes the place of those of its topics.
    """
    if not isinstance(request, OffsetDeleteRequest) or not verdict.refused:
        return
    refusal: OffsetDeleteResponse = verdict.refused[-1].answer  # type: ignore[assignment] # its API
    if refusal.error_code is not ErrorCode.NONE:
        return

    def keep_error(answer: OffsetDeleteResponse) -> Message:
        is_whole = answer.error_code is not ErrorCode.NONE
        return answer.replace(topics=[]) if is_whole else answer

    if verdict.request is None:
        verdict.serve_empty(request.replace(topics=[]))
    verdict.last_changes.append(keep_error)


def shorten(api: Api[Any, Any], version: int, refusal: Message) -> None:
    """Leave only the error of the group in an answer that has one."""
    if api is OFFSET_FETCH and version in _GROUP_CODE and isinstance(refusal, OffsetFetchResponse):
        refusal.topics = []
