"""Requests of any API and version over a real socket, each followed by one that always works."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

from rookery.broker.call import Route, routes
from rookery.errors import ErrorCode
from rookery.testing.messages import random_message
from rookery.testing.ports import HOST
from rookery.testing.servedbroker import ask
from rookery.wire.codec import read_response, request_frame
from rookery.wire.message import Api, Message, PartitionId, TopicId, TopicName
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.walk import rewrite

TIMEOUT_SECONDS = 60
FIRST, SECOND = 17, 18
KNOWN = ("known-a", "known-b")


class Case(NamedTuple):
    """One version of what the broker serves."""

    route: Route
    version: int

    @property
    def api(self) -> Api[Any, Any]:
        return self.route.api

    def __str__(self) -> str:
        return f"{self.api.name}-{self.version}"


CASES = [Case(route, version) for route in routes().values() for version in route.versions]


class Line:
    """A connection that is read frame by frame."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), TIMEOUT_SECONDS)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def read(self) -> bytes | None:
        """Return the next frame; None if the broker has closed the connection instead."""
        try:
            prefix = self._stream.read(4)
        except ConnectionError:
            return None
        if not prefix:
            return None
        assert len(prefix) == 4, "the broker closed the connection in the middle of an answer"
        size = int.from_bytes(prefix, "big", signed=True)
        frame = self._stream.read(size)
        assert len(frame) == size
        return frame


def frame(api: Api[Any, Any], version: int, correlation_id: int, request: Message) -> bytes:
    return b"".join(request_frame(api, version, correlation_id, "sweep", request))


SIMPLE = frame(API_VERSIONS, 0, SECOND, ApiVersionsRequest())


def exchange(port: int, case: Case, request: Message) -> Message | None:
    """Ask; return the answer, or None if the connection was closed or no answer was wanted.

    Whatever happens, the broker must answer a simple question afterwards.
    """
    with Line(port) as line:
        line.send(frame(case.api, case.version, FIRST, request), SIMPLE)
        answer, body = line.read(), None
        if answer is not None and answer[:4] == struct.pack(">i", FIRST):
            body = read_response(case.api, case.version, answer)
            answer = line.read()
            assert answer is not None, "it was answered, and then the connection was closed"
        if answer is not None:
            check_simple(answer)
            return body
    with Line(port) as line:
        line.send(SIMPLE)
        answer = line.read()
    assert answer is not None, "the broker does not answer any more"
    check_simple(answer)
    return None


def check_simple(answer: bytes) -> None:
    assert answer[:4] == struct.pack(">i", SECOND)
    assert read_response(API_VERSIONS, 0, answer).error_code is ErrorCode.NONE


def topic_ids(bootstrap: str) -> dict[str, bytes]:
    """Make the topics that random requests name now and then, if they are gone; return ids."""
    topics = [
        CreatableTopic(
            name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        for name in KNOWN
    ]
    ask(bootstrap, CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    wanted = [MetadataRequestTopic(name=name) for name in KNOWN]
    answer = ask(bootstrap, METADATA, 12, MetadataRequest(topics=wanted))
    return {topic.name or "": topic.topic_id for topic in answer.topics}


def random_request(case: Case, random: Random, ids: dict[str, bytes]) -> Message:
    """Make a request of random values, half of which are about topics that exist."""
    request: Message = random_message(case.api.request, case.version, random)

    def sometimes(*known: object) -> Any:
        return lambda value: random.choice(known) if random.random() < 0.5 else value

    rewrite(request, TopicName, sometimes(*ids))
    rewrite(request, TopicId, sometimes(*ids.values()))
    rewrite(request, PartitionId, sometimes(0, 1, 2))
    for name in ("max_wait_ms", "acks"):
        if name in request.__fields__:
            setattr(request, name, random.choice((-1, 0, 1)))
    return request


def error_codes(message: Message) -> Iterator[ErrorCode]:
    """Yield every error code in an answer, however deep."""
    for name in message.__fields__:
        value = getattr(message, name)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, ErrorCode):
                yield item
            elif isinstance(item, Message):
                yield from error_codes(item)
