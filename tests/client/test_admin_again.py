"""Changes that are repeated because the first answer was lost."""

from __future__ import annotations

import pytest

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.settings import ClientSettings
from rookery.errors import ApiError, ErrorCode
from rookery.wire.message import Message
from rookery.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from rookery.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.client.scripted import scripted
from tests.client.test_metadata import Cluster

_BUSY, _LATE = ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT
_NONE, _EXISTS = ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Controller:
    """Answers the changes of two topics, one line of codes after the other."""

    def __init__(self, *lines: tuple[ErrorCode, ErrorCode]) -> None:
        self.lines = list(lines)
        self.cluster = Cluster()

    def answer(self, request: Message) -> Message:
        names = ("a", "b")
        if isinstance(request, CreateTopicsRequest):
            return CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(name=name, error_code=code)
                    for name, code in zip(names, self.lines.pop(0), strict=True)
                ]
            )
        if isinstance(request, DeleteTopicsRequest):
            return DeleteTopicsResponse(
                responses=[
                    DeletableTopicResult(name=name, error_code=code)
                    for name, code in zip(names, self.lines.pop(0), strict=True)
                ]
            )
        return self.cluster.answer(request)


async def _create(controller: _Controller) -> None:
    async with scripted(controller.answer) as (_, port):
        controller.cluster.port = port
        settings = ClientSettings(bootstrap=f"127.0.0.1:{port}", retry_backoff_ms=1)
        async with Client(settings) as client:
            topics = [NewTopic(name=name, partitions=1, replication_factor=1) for name in "ab"]
            await client.admin.create_topics(topics)


async def _delete(controller: _Controller) -> None:
    async with scripted(controller.answer) as (_, port):
        controller.cluster.port = port
        settings = ClientSettings(bootstrap=f"127.0.0.1:{port}", retry_backoff_ms=1)
        async with Client(settings) as client:
            await client.admin.delete_topics(["a", "b"])


@pytest.mark.parametrize(
    "lines",
    [
        [(_LATE, _LATE), (_EXISTS, _NONE)],
        [(_BUSY, _NONE), (_NONE, _EXISTS)],
        [(_NONE, _BUSY), (_EXISTS, _BUSY), (_EXISTS, _NONE)],
    ],
)
async def test_topic_created_by_an_earlier_attempt_counts_as_created(
    lines: list[tuple[ErrorCode, ErrorCode]],
) -> None:
    controller = _Controller(*lines)
    await _create(controller)
    assert not controller.lines


async def test_topic_that_existed_before_the_first_attempt_is_refused() -> None:
    with pytest.raises(ApiError, match="create topic 'b'") as caught:
        await _create(_Controller((_NONE, _BUSY), (_EXISTS, _EXISTS)))
    assert caught.value.code is _EXISTS


async def test_topic_deleted_by_an_earlier_attempt_counts_as_deleted() -> None:
    for lines in [[(_LATE, _NONE), (_UNKNOWN, _UNKNOWN)], [(_NONE, _BUSY), (_UNKNOWN, _NONE)]]:
        controller = _Controller(*lines)
        await _delete(controller)
        assert not controller.lines
