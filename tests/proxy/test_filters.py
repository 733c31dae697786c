"""What filters can do to requests and responses, seen by a client on a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.settings import BrokerSettings
from rookery.client.connect.versions import Versions, negotiate
from rookery.errors import ErrorCode, Unavailable, code_of
from rookery.net.upstream import Upstream
from rookery.proxy import ownrequests
from rookery.proxy.filterapi import (
    ANY,
    FORWARD,
    Answer,
    Close,
    Drop,
    Filter,
    FilterContext,
    Forward,
    Verdict,
    if_noted,
    on_request,
    on_response,
)
from rookery.proxy.filters.deny import Deny
from rookery.proxy.filters.topic_prefix import TopicPrefix
from rookery.proxy.settings import ProxySettings
from rookery.records import recordcodec
from rookery.records.recordcodec import Record
from rookery.testing.servedbroker import ServedBroker, ask
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
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.proxy.scripted import ScriptedBroker
from tests.proxy.test_broken_answers import Script, reply


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
        return Answer(LIST_GROUPS.refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED))


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


class Closing(Filter):
    @on_request(LIST_GROUPS)
    def close_connection(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        return Close("groups are not listed here")


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


class Marking(Filter):
    """Changes the requests and responses that pass it."""

    @on_request(METADATA)
    def mark(self, context: FilterContext, request: MetadataRequest) -> Verdict:
        self.requests = [*getattr(self, "requests", []), context.session.host]
        return FORWARD

    @on_response(METADATA)
    def rename(self, context: FilterContext, response: MetadataResponse) -> Verdict:
        response.cluster_id = f"{self.options['name']}/{response.cluster_id}"
        return Forward(response)


class Asking(Filter):
    """Keeps the cluster's id, as an own request shows it, in its note of a request."""

    @on_request(LIST_GROUPS)
    async def ask(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        answer: MetadataResponse = await context.upstream.send(METADATA, MetadataRequest(topics=[]))
        context.notes[self] = answer.cluster_id
        return FORWARD

    @if_noted
    @on_response(ANY)
    def take(self, context: FilterContext, response: Message) -> Verdict:
        self.seen = [*getattr(self, "seen", []), (context.api.name, context.notes[self])]
        return FORWARD


def test_own_requests_pass_the_later_filters_and_notes_select_responses(upstream: str) -> None:
    first, asking, last = Marking({"name": "first"}), Asking(), Marking({"name": "last"})
    with proxy_with(upstream, first, asking, last) as proxy:
        groups = list_groups(proxy)
        described = ask(proxy.bootstrap, METADATA, 9, MetadataRequest(topics=[]))

    assert groups.error_code is ErrorCode.NONE
    assert described.cluster_id is not None
    cluster_id = described.cluster_id.removeprefix("first/last/")
    assert asking.seen == [("ListGroups", f"last/{cluster_id}")]
    assert len(first.requests) == 1
    assert len(last.requests) == 2


class Versioning(Filter):
    """Sends a request of its own for each request, and counts what reaches the broker."""

    @on_request(LIST_GROUPS)
    async def ask(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        await context.upstream.send(DESCRIBE_CLUSTER, DescribeClusterRequest())
        return FORWARD


def test_versions_of_own_requests_are_negotiated_once_for_each_connection(
    upstream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    negotiated: list[str] = []

    async def count(connection: Upstream, *arguments: Any) -> Versions:
        negotiated.append(connection.name)
        return await negotiate(connection, *arguments)

    monkeypatch.setattr(ownrequests, "negotiate", count)
    frame = request_frame(LIST_GROUPS, 4, 1, "test", ListGroupsRequest(states_filter=[]))
    with (
        proxy_with(upstream, Versioning()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(b"".join([*frame] * 5))
        for _ in range(5):
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
            assert read_response(LIST_GROUPS, 4, answer).error_code is ErrorCode.NONE

    assert len(negotiated) == 1


def test_own_request_past_its_deadline_costs_the_request_that_waits_for_it() -> None:
    gate = threading.Event()

    def answer_late(client: socket.socket, request: bytes) -> None:
        assert gate.wait(20)
        late = DescribeClusterResponse(error_code=ErrorCode.NONE, cluster_id="c", brokers=[])
        client.sendall(reply(request, late))

    script = Script(special={DESCRIBE_CLUSTER.key: answer_late})
    broker = ScriptedBroker(script)
    script.port = broker.port
    settings = replace(ProxySettings(), connect_timeout_ms=300)
    listing = request_frame(LIST_GROUPS, 4, 1, "test", ListGroupsRequest(states_filter=[]))
    metadata = request_frame(METADATA, 9, 2, "test", MetadataRequest(topics=[]))
    try:
        with (
            ServedProxy(broker.bootstrap, settings, [Versioning()]) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
            client.makefile("rb") as stream,
        ):
            client.sendall(b"".join([*listing, *metadata]))
            refused = stream.read(int.from_bytes(stream.read(4), "big"))
            gate.set()
            served = stream.read(int.from_bytes(stream.read(4), "big"))
    finally:
        gate.set()
        broker.close()

    code = read_response(LIST_GROUPS, 4, refused).error_code
    assert code is code_of(Unavailable("no answer"))
    assert read_response(METADATA, 9, served).brokers


class Vanishing(Filter):
    """Notes requests, and records those that get no response."""

    @on_request(LIST_GROUPS)
    def note(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        context.notes[self] = context.api.name
        return FORWARD

    def abandon(self, context: FilterContext) -> None:
        self.abandoned = context.notes[self]


def test_filter_learns_of_requests_without_a_response(upstream: str) -> None:
    vanishing = Vanishing()
    frame = request_frame(LIST_GROUPS, 4, 1, "test", ListGroupsRequest(states_filter=[]))
    with (
        proxy_with(upstream, vanishing, Closing()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
    ):
        client.sendall(b"".join(frame))
        assert not client.recv(1)

    assert vanishing.abandoned == "ListGroups"


def test_denied_half_is_joined_after_later_filters_saw_the_rest(upstream: str) -> None:
    prefix = f"p{uuid4().hex[:8]}."
    filters = [Deny({"topics": ["secret"]}), TopicPrefix({"prefix": prefix})]
    with proxy_with(upstream, *filters) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        created = admin.create_topics([NewTopic("secret", 1, 1), NewTopic("open", 1, 1)])
        created["open"].result(20)
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            created["secret"].result(20)

    names = set(AdminClient({"bootstrap.servers": upstream}).list_topics(timeout=20).topics)
    assert f"{prefix}open" in names
    assert not {"open", "secret", f"{prefix}secret"} & names


class Discarding(Filter):
    """Drops requests without a response."""

    @on_request(PRODUCE)
    def drop(self, context: FilterContext, request: ProduceRequest) -> Verdict:
        return Drop()


def test_dropped_request_without_a_response_disappears(upstream: str) -> None:
    batch = recordcodec.build([Record(None, b"dropped")])
    partition = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="dropped", partition_data=[partition])
    produce = ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[topic])
    metadata = request_frame(METADATA, 9, 7, "test", MetadataRequest(topics=[]))
    with (
        proxy_with(upstream, Discarding()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(b"".join([*request_frame(PRODUCE, 9, 6, "test", produce), *metadata]))
        answer = stream.read(int.from_bytes(stream.read(4), "big"))

    assert read_response(METADATA, 9, answer).brokers
    listed = AdminClient({"bootstrap.servers": upstream}).list_topics(timeout=20).topics
    assert "dropped" not in listed
