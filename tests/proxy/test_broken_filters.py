"""Filters that fail: each costs its own request, and is reported once in the log and the health."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.errors import ApiError, ErrorCode
from rookery.proxy.filterapi import (
    FORWARD,
    Answer,
    Drop,
    Filter,
    FilterContext,
    Forward,
    Verdict,
    on_request,
    on_response,
)
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response, request_frame
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataResponse
from tests.proxy.test_filters import proxy_with

LIST = b"".join(request_frame(LIST_GROUPS, 4, 1, "test", ListGroupsRequest(states_filter=[])))
ASK = b"".join(request_frame(METADATA, 9, -2, "test", MetadataRequest(topics=[])))


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("upstream")
    with ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker:
        yield broker.bootstrap


class Culprit(Filter):
    """Sees requests for groups, or the responses to them."""

    def __init__(self, side: str) -> None:
        super().__init__()
        self.side = side

    @on_request(LIST_GROUPS)
    def see_request(self, context: FilterContext, request: Any) -> Any:
        return self.decide(request) if self.side == "request" else FORWARD

    @on_response(LIST_GROUPS)
    def see_response(self, context: FilterContext, response: Any) -> Any:
        return self.decide(response) if self.side == "response" else FORWARD

    def decide(self, message: Any) -> Any:
        raise NotImplementedError


class Raising(Culprit):
    def decide(self, message: Any) -> Verdict:
        raise ValueError("a mistake in a filter")


class RaisingLater(Culprit):
    async def decide(self, message: Any) -> Verdict:
        await asyncio.sleep(0)
        raise ValueError("a mistake in a filter")


class Cancelling(Culprit):
    async def decide(self, message: Any) -> Verdict:
        raise asyncio.CancelledError


class Refusing(Culprit):
    def decide(self, message: Any) -> Verdict:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not today")


class Silent(Culprit):
    async def decide(self, message: Any) -> Verdict:
        await asyncio.Event().wait()
        return FORWARD


class Stubborn(Culprit):
    """Continues when it is cancelled, until its end is allowed."""

    def __init__(self, side: str) -> None:
        super().__init__(side)
        self.cancelled = 0
        self.is_over = False

    async def decide(self, message: Any) -> Verdict:
        end = asyncio.Event()
        asyncio.get_running_loop().call_later(0.5, end.set)
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        self.is_over = True
        raise ValueError("nobody waits for this")


class Dropping(Culprit):
    def decide(self, message: Any) -> Verdict:
        return Drop()


class Forgetting(Culprit):
    """Forgets to return a verdict."""

    def decide(self, message: Any) -> None:
        return


class ForgettingLater(Culprit):
    async def decide(self, message: Any) -> None:
        await asyncio.sleep(0)


class Answering(Culprit):
    """Returns a message instead of a verdict."""

    def decide(self, message: Any) -> Any:
        return message


class Swapping(Culprit):
    """Forwards a message of another API."""

    def decide(self, message: Any) -> Any:
        return Forward(MetadataResponse(brokers=[], topics=[]))


class AnsweringWrongly(Culprit):
    """Answers with the response of another API."""

    def decide(self, message: Any) -> Any:
        return Answer(MetadataResponse(brokers=[], topics=[]))


class Spoiling(Culprit):
    """Changes a message to something that cannot be encoded."""

    def decide(self, message: Any) -> Verdict:
        if self.side == "request":
            message.states_filter = [object()]
        else:
            message.throttle_time_ms = 2**70
        return Forward(message)


class AnsweringSpoilt(Culprit):
    """Answers with a response that cannot be encoded."""

    def decide(self, message: Any) -> Verdict:
        refusal = LIST_GROUPS.refuse(ListGroupsRequest(), ErrorCode.NONE)
        refusal.throttle_time_ms = 2**70
        return Answer(refusal)


CULPRITS = [
    (Raising, ErrorCode.UNKNOWN_SERVER_ERROR),
    (RaisingLater, ErrorCode.UNKNOWN_SERVER_ERROR),
    (Cancelling, ErrorCode.UNKNOWN_SERVER_ERROR),
    (Silent, ErrorCode.REQUEST_TIMED_OUT),
    (Stubborn, ErrorCode.REQUEST_TIMED_OUT),
    (Dropping, ErrorCode.POLICY_VIOLATION),
    (Forgetting, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ForgettingLater, ErrorCode.UNKNOWN_SERVER_ERROR),
    (Answering, ErrorCode.UNKNOWN_SERVER_ERROR),
    (Swapping, ErrorCode.UNKNOWN_SERVER_ERROR),
    (AnsweringWrongly, ErrorCode.UNKNOWN_SERVER_ERROR),
    (Spoiling, ErrorCode.UNKNOWN_SERVER_ERROR),
    (AnsweringSpoilt, ErrorCode.UNKNOWN_SERVER_ERROR),
]


def exchange(port: int) -> tuple[ErrorCode, int, MetadataResponse]:
    """Send two requests; return the code of the first response, and the second response."""
    with (
        socket.create_connection(("127.0.0.1", port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(LIST + ASK)
        first = stream.read(int.from_bytes(stream.read(4), "big"))
        second = stream.read(int.from_bytes(stream.read(4), "big"))
    number = int.from_bytes(second[:4], "big", signed=True)
    return (
        read_response(LIST_GROUPS, 4, first).error_code,
        number,
        read_response(METADATA, 9, second),
    )


def of_the_proxy(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what the proxy logged; its broker can log in the meantime."""
    return [record for record in caplog.records if record.name.startswith("rookery.proxy")]


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize(
    ("kind", "code"), CULPRITS, ids=lambda value: getattr(value, "__name__", "")
)
def test_failing_filter_costs_its_own_request_only(
    upstream: str,
    kind: type[Culprit],
    side: str,
    code: ErrorCode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "rookery.proxy")
    culprit = kind(side)
    with proxy_with(upstream, culprit, timeout_ms=100) as proxy:
        refused, number, served = exchange(proxy.port)
        trouble = proxy.proxy.clusters[0].filter_health.trouble
        if isinstance(culprit, Stubborn):
            wait_until(lambda: culprit.is_over)
            assert culprit.cancelled == 1

    assert refused is code
    assert number == -2
    assert served.brokers
    [row] = of_the_proxy(caplog)
    assert "filter" in row.getMessage()
    assert "filter" in trouble
    assert "ListGroups" in trouble


@pytest.mark.parametrize("side", ["request", "response"])
def test_refusal_of_a_filter_is_not_a_fault(
    upstream: str, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rookery.proxy")
    with proxy_with(upstream, Refusing(side)) as proxy:
        refused, _, served = exchange(proxy.port)

        assert proxy.proxy.clusters[0].filter_health.trouble == ""
    assert refused is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert served.brokers
    assert not of_the_proxy(caplog)


class Abandoning(Filter):
    """Notes each request, and fails when there is no response."""

    @on_request(LIST_GROUPS)
    def note(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        context.notes[self] = True
        return FORWARD

    def abandon(self, context: FilterContext) -> None:
        raise ValueError("a mistake in a filter")


def test_filter_that_fails_without_a_response_costs_nothing(upstream: str) -> None:
    with proxy_with(upstream, Abandoning(), Spoiling("request")) as proxy:
        refused, number, _ = exchange(proxy.port)

        assert refused is ErrorCode.UNKNOWN_SERVER_ERROR
        assert number == -2
        assert "Abandoning.abandon" in proxy.proxy.clusters[0].filter_health.trouble


class Emptying(Filter):
    """Leaves a request that cannot be refused, and then fails."""

    @on_request(METADATA)
    def empty(self, context: FilterContext, request: Any) -> Verdict:
        request.topics = 7
        raise ValueError("a mistake in a filter")


def test_request_that_a_filter_has_damaged_is_refused(upstream: str) -> None:
    with (
        proxy_with(upstream, Emptying()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(ASK + LIST)
        refused = stream.read(int.from_bytes(stream.read(4), "big"))
        served = stream.read(int.from_bytes(stream.read(4), "big"))

    assert read_response(METADATA, 9, refused).topics == []
    assert read_response(LIST_GROUPS, 4, served).error_code is ErrorCode.NONE
