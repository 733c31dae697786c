"""Items of a response that its request did not ask for are found, in every API with such lists."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rookery.errors import ErrorCode
from rookery.proxy.edits.surplus import find_surplus
from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.message import Api, Message
from rookery.wire.messages.delete_topics import (
    DELETE_TOPICS,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from rookery.wire.messages.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from rookery.wire.partition import asks_for_all

SEEDS: Final = range(30)
EVERY_VERSION: Final = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in apis().values()
    if api.items
    for version in api.versions
]
ID, OTHER_ID = b"1" * 16, b"2" * 16


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_responses_to_the_items_of_a_request_have_no_surplus(
    api: Api[Any, Any], version: int
) -> None:
    for seed in SEEDS:
        request = random_message(api.request, version, seed)
        if asks_for_all(api, version, request):
            continue
        response = api.refuse_items(request, ErrorCode.UNKNOWN_SERVER_ERROR)

        assert find_surplus(api, version, request, response) is None


def fetch_request(*partitions: int, topic: str = "", topic_id: bytes = ID, epoch: int = 0) -> Any:
    parts = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in partitions
    ]
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=parts)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=epoch, topics=topics)


def fetch_response(*partitions: int, topic: str = "", topic_id: bytes = ID) -> FetchResponse:
    rows = [
        PartitionData(
            partition_index=number, error_code=ErrorCode.NONE, high_watermark=0, records=b""
        )
        for number in partitions
    ]
    return FetchResponse(
        responses=[FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=rows)]
    )


@pytest.mark.parametrize(
    ("response", "surplus"),
    [
        pytest.param(fetch_response(0, 1), None, id="all"),
        pytest.param(fetch_response(1), None, id="a part"),
        pytest.param(fetch_response(), None, id="nothing"),
        pytest.param(fetch_response(2), "partition_index 2 of ", id="another partition"),
        pytest.param(fetch_response(0, topic_id=OTHER_ID), OTHER_ID.hex(), id="another topic"),
    ],
)
def test_partitions_of_a_fetch(response: FetchResponse, surplus: str | None) -> None:
    found = find_surplus(FETCH, 13, fetch_request(0, 1), response)

    assert (found is None) == (surplus is None)
    assert (surplus or "") in (found or "")


def test_fetch_session_may_answer_about_partitions_named_before() -> None:
    assert find_surplus(FETCH, 13, fetch_request(0, epoch=1), fetch_response(5)) is None


def metadata(*names: str) -> Message:
    topics = [
        MetadataResponseTopic(error_code=ErrorCode.NONE, name=name, topic_id=ID, partitions=[])
        for name in names
    ]
    return MetadataResponse(brokers=[], controller_id=0, topics=topics)


@pytest.mark.parametrize(
    ("version", "topics", "names", "has_surplus"),
    [
        (12, ["a"], ["a"], False),
        (12, ["a"], ["b"], True),
        (12, None, ["a", "b"], False),
        (0, [], ["a", "b"], False),
        (12, [], ["a"], True),
    ],
)
def test_topics_of_metadata(
    version: int, topics: list[str] | None, names: list[str], has_surplus: bool
) -> None:
    rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=rows)

    found = find_surplus(METADATA, version, request, metadata(*names))

    assert (found is not None) == has_surplus


def test_topic_asked_for_by_its_id_can_be_answered_with_its_name() -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=ID)], topic_names=[], timeout_ms=0
    )
    rows = [DeletableTopicResult(name="a", topic_id=ID, error_code=ErrorCode.NONE)]

    assert find_surplus(DELETE_TOPICS, 6, request, DeleteTopicsResponse(responses=rows)) is None
