"""What filters can do to requests and responses, seen by a client on a socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.errors import ApiError, ErrorCode
from rookery.proxy.filterapi import (
    ANY,
    FORWARD,
    Disconnect,
    Drop,
    Filter,
    FilterContext,
    Forward,
    Respond,
    Verdict,
    on_request,
    on_response,
)
from rookery.proxy.settings import ProxySettings
from rookery.testing.served import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.codec import read_response, request_frame
from rookery.wire.message import Message
from rookery.wire.messages.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest, ListGroupsResponse
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataResponse


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("upstream")
    with ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker:
        yield broker.bootstrap


@contextmanager
def proxy_with(upstream: str, *filters: Filter, timeout_ms: int = 10_000) -> Iterator[ServedProxy]:
    settings = replace(ProxySettings(), filter_timeout_ms=timeout_ms)
    with ServedProxy(upstream, settings, filters) as proxy:
        yield proxy


def list_groups(proxy: ServedProxy) -> ListGroupsResponse:
    return ask(proxy.bootstrap, LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))


class Answering(Filter):
    @on_request(LIST_GROUPS)
    def answer(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        return Respond(LIST_GROUPS.refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED))


def test_filter_answers_without_the_upstream(upstream: str) -> None:
    with proxy_with(upstream, Answering()) as proxy:
        assert list_groups(proxy).error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED


class Renaming(Filter):
    @on_response("DescribeCluster")
    async def rename(self, context: FilterContext, response: DescribeClusterResponse) -> Verdict:
        await asyncio.sleep(0)
        response.cluster_id = f"{self.options['name']}/{response.cluster_id}"
        return Forward(response)


def test_responses_pass_filters_in_the_opposite_order(upstream: str) -> None:
    direct = ask(upstream, DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
    with proxy_with(upstream, Renaming({"name": "a"}), Renaming({"name": "b"})) as proxy:
        response = ask(proxy.bootstrap, DESCRIBE_CLUSTER, 1, DescribeClusterRequest())

        assert response.cluster_id == f"a/b/{direct.cluster_id}"
        addresses = {f"{broker.host}:{broker.port}" for broker in response.brokers}
        assert addresses == {each.text for each in proxy.proxy.clusters[0].nodes.values()}


class Broken(Filter):
    @on_request(LIST_GROUPS)
    def fail(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        raise ValueError("a mistake in a filter")


class Refusing(Filter):
    @on_request(LIST_GROUPS)
    def refuse(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not today")


class Silent(Filter):
    @on_request(LIST_GROUPS)
    async def wait(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        await asyncio.Event().wait()
        return FORWARD


class Dropping(Filter):
    @on_request(LIST_GROUPS)
    def drop(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        return Drop()


@pytest.mark.parametrize(
    ("culprit", "code"),
    [
        (Broken(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (Refusing(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (Silent(), ErrorCode.REQUEST_TIMED_OUT),
        (Dropping(), ErrorCode.POLICY_VIOLATION),
    ],
    ids=["raises", "raises an API error", "never decides", "drops"],
)
def test_failing_filter_costs_its_own_request_only(
    upstream: str, culprit: Filter, code: ErrorCode
) -> None:
    groups = request_frame(LIST_GROUPS, 4, 1, "test", ListGroupsRequest(states_filter=[]))
    metadata = request_frame(METADATA, 9, -2, "test", MetadataRequest(topics=[]))
    with (
        proxy_with(upstream, culprit, timeout_ms=200) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(b"".join([*groups, *metadata]))
        first = stream.read(int.from_bytes(stream.read(4), "big"))
        second = stream.read(int.from_bytes(stream.read(4), "big"))

    assert read_response(LIST_GROUPS, 4, first).error_code is code
    assert int.from_bytes(second[:4], "big", signed=True) == -2
    assert read_response(METADATA, 9, second).brokers


class Closing(Filter):
    @on_request(LIST_GROUPS)
    def close_connection(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        return Disconnect("groups are not listed here")


def test_filter_closes_the_connection_after_earlier_responses(upstream: str) -> None:
    metadata = request_frame(METADATA, 9, 1, "test", MetadataRequest(topics=[]))
    groups = request_frame(LIST_GROUPS, 4, 2, "test", ListGroupsRequest(states_filter=[]))
    with (
        proxy_with(upstream, Closing()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(b"".join([*metadata, *groups]))
        everything = stream.read()

    assert int.from_bytes(everything[:4], "big") == len(everything) - 4


class Curious(Filter):
    """Asks the upstream itself, and counts the requests of each client."""

    @on_request(ANY)
    async def look(self, context: FilterContext, request: Message) -> Verdict:
        context.memory[self] = context.memory.get(self, 0) + 1
        self.counts = getattr(self, "counts", [])
        self.counts.append((context.api.name, context.memory[self]))
        answer: MetadataResponse = await context.upstream.send(METADATA, MetadataRequest(topics=[]))
        self.brokers = len(answer.brokers)
        return FORWARD


def test_filter_sends_requests_of_its_own(upstream: str) -> None:
    curious = Curious()
    frame = request_frame(LIST_GROUPS, 4, 1, "test", ListGroupsRequest(states_filter=[]))
    with (
        proxy_with(upstream, curious) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(b"".join([*frame, *frame]))
        for _ in range(2):
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
            assert read_response(LIST_GROUPS, 4, answer).error_code is ErrorCode.NONE

    assert curious.counts == [("ListGroups", 1), ("ListGroups", 2)]
    assert curious.brokers == 1
