"""Elements of lists are removed by a field of one kind."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.elements import drop_elements
from rookery.wire.message import TopicName
from rookery.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from rookery.wire.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from rookery.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


def is_foreign(name: str) -> bool:
    return not name.startswith("own.")


def test_structures_are_dropped_by_their_name() -> None:
    topics = [
        MetadataResponseTopic(error_code=ErrorCode.NONE, name=name, partitions=[])
        for name in ("own.a", "foreign", "own.b", None)
    ]
    response = MetadataResponse(brokers=[], topics=topics)

    drop_elements(response, TopicName, is_foreign)

    assert [topic.name for topic in response.topics] == ["own.a", "own.b", None]


def test_lists_inside_other_lists_are_searched() -> None:
    topics = [DescribeLogDirsTopic(name=name, partitions=[]) for name in ("own.a", "foreign")]
    response = DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(error_code=ErrorCode.NONE, log_dir="/data", topics=topics)]
    )

    drop_elements(response, TopicName, is_foreign)

    assert [topic.name for topic in response.results[0].topics] == ["own.a"]


def test_plain_names_are_dropped() -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["foreign", "own.a"]
    )

    drop_elements(request, TopicName, is_foreign)

    assert request.subscribed_topic_names == ["own.a"]
