"""Brokers whose answers are frames with invalid contents, or never arrive.

Each costs the connection that it came on. The client sees a broker that has failed, connects again
and retries; other clients notice nothing, and nothing is logged as an error of the proxy.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.proxy.passage import mirror_passages
from rookery.proxy.settings import ProxySettings
from rookery.testing.messages import random_message
from rookery.testing.ports import free_ports
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.catalog import apis, kafka_apis
from rookery.wire.codec import (
    API_VERSIONS_KEY,
    is_one_way,
    request_frame,
    response_frame,
)
from rookery.wire.message import Api, Message
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from rookery.wire.messages.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from rookery.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest, ListGroupsResponse
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.proxy.scripted import ScriptedBroker, exchange, framed, key_of, number_of

PASSAGES = mirror_passages()
CHANGED = [
    api
    for api in kafka_apis().values()
    if (versions := PASSAGES.versions(api.key))
    and (passage := PASSAGES.find((api.key, versions[-1])))
    and (passage.has_addresses or passage.is_api_versions)
]
"""The APIs whose responses the proxy decodes."""

GARBAGE = {
    "nothing": b"",
    "ones": b"\xff" * 64,
    "zeros": bytes(2),
    "a long list": b"\0" * 4 + b"\x7f\xff\xff\xff" * 8,
    "endless varint": b"\x80" * 64,
}

LONG_ZERO = b"\x80\0"
"""A variable-length zero in two bytes, where one is usual."""

Special = Callable[[socket.socket, bytes], None]


@dataclass
class Script:
    """A broker of one node that answers what the proxy asks, but for one API."""

    port: int = 0
    brokers: list[tuple[int, str, int]] = field(default_factory=list)
    """The nodes in its metadata, if it is not alone."""
    special: dict[int, Special] = field(default_factory=dict)
    """What answers an API instead, by its key."""

    def __call__(self, client: socket.socket, request: bytes) -> None:
        key = key_of(request)
        if key in self.special:
            self.special[key](client, request)
        elif key == API_VERSIONS_KEY:
            client.sendall(reply(request, known_versions()))
        elif key == METADATA.key:
            client.sendall(reply(request, self._metadata()))
        elif key == LIST_GROUPS.key:
            client.sendall(reply(request, ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])))

    def _metadata(self) -> MetadataResponse:
        nodes = self.brokers or [(0, "127.0.0.1", self.port)]
        rows = [
            MetadataResponseBroker(node_id=node, host=host, port=port) for node, host, port in nodes
        ]
        return MetadataResponse(brokers=rows, cluster_id="scripted", controller_id=0, topics=[])


def known_versions() -> ApiVersionsResponse:
    rows = [
        ApiVersion(api_key=key, min_version=versions.start, max_version=versions[-1])
        for key in apis()
        if (versions := PASSAGES.versions(key))
    ]
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=rows)


def reply(request: bytes, response: Message) -> bytes:
    api = apis()[key_of(request)]
    version = int.from_bytes(request[2:4], "big")
    return b"".join(response_frame(api, version, number_of(request), response))


def ask_bytes(api: Api[Any, Any], version: int, request: Message) -> bytes:
    return b"".join(request_frame(api, version, 7, "test", request))


LIST = ask_bytes(LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))


@contextmanager
def scripted_proxy(
    script: Script, settings: ProxySettings | None = None
) -> Iterator[tuple[ServedProxy, ScriptedBroker]]:
    broker = ScriptedBroker(script)
    script.port = broker.port
    try:
        with ServedProxy(broker.bootstrap, settings) as proxy:
            yield proxy, broker
    finally:
        broker.close()


@pytest.fixture(autouse=True)
def check_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Let no broken answer look like an error of the proxy."""
    yield
    assert [
        row.getMessage() for row in caplog.get_records("call") if row.levelname == "ERROR"
    ] == []


def is_served(port: int) -> bool:
    """Whether a new client gets an answer: the broker closes nothing by itself."""
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(LIST)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            return len(stream.read()) > 4


def some_request(api: Api[Any, Any], version: int) -> bytes:
    """Return a request that wants an answer."""
    for seed in range(100):
        data = ask_bytes(api, version, random_message(api.request, version, seed))
        if not (api.has_one_way_requests and is_one_way(api, memoryview(bytearray(data[4:])))):
            return data
    raise AssertionError(f"{api.name} never wants an answer")


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("api", CHANGED, ids=lambda api: api.name)
def test_response_that_cannot_be_decoded_costs_its_connection(
    api: Api[Any, Any], garbage: str
) -> None:
    script = Script()
    with scripted_proxy(script) as (proxy, broker):
        script.special[api.key] = lambda client, request: client.sendall(
            framed(number_of(request), GARBAGE[garbage])
        )
        data = some_request(api, PASSAGES.versions(api.key)[-1])
        with socket.create_connection(("127.0.0.1", proxy.port), 20) as bystander:
            stream = bystander.makefile("rb")
            bystander.sendall(LIST)
            first = stream.read(4)

            assert exchange(proxy.port, data) == b""

            stream.read(int.from_bytes(first, "big"))
            bystander.sendall(LIST)
            assert stream.read(4) == first
            stream.close()
        assert is_served(proxy.port)
        wait_until(lambda: broker.is_left)


def test_silent_broker_costs_the_connection_after_the_deadline() -> None:
    script = Script(special={LIST_GROUPS.key: lambda client, request: None})
    settings = replace(ProxySettings(), request_timeout_ms=100)
    with scripted_proxy(script, settings) as (proxy, broker):
        assert exchange(proxy.port, LIST) == b""
        wait_until(lambda: broker.is_left)


def test_no_client_waits_forever_for_versions_of_a_silent_broker() -> None:
    script = Script(special={API_VERSIONS_KEY: lambda client, request: None})
    settings = replace(ProxySettings(), connect_timeout_ms=100, request_timeout_ms=100)
    with scripted_proxy(script, settings) as (proxy, broker):
        assert proxy.proxy.clusters[0].trouble
        assert exchange(proxy.port, ask_bytes(API_VERSIONS, 0, ApiVersionsRequest())) == b""
        wait_until(lambda: broker.is_left)


def test_answer_in_pieces_arrives_whole() -> None:
    def trickle(client: socket.socket, request: bytes) -> None:
        for byte in reply(request, ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])):
            client.sendall(bytes([byte]))

    with scripted_proxy(Script(special={LIST_GROUPS.key: trickle})) as (proxy, _):
        assert is_served(proxy.port)


def test_answer_to_a_request_without_one_does_not_shift_the_next() -> None:
    """A broker answers a Produce of acks=0 all the same: its correlation id is not the next."""
    answered: list[int] = []

    def answer(client: socket.socket, request: bytes) -> None:
        answered.append(number_of(request))
        client.sendall(framed(number_of(request), bytes(8)))

    produce = apis()[0]
    request = random_message(produce.request, 9, 1)
    request.acks = 0
    with scripted_proxy(Script(special={0: answer})) as (proxy, broker):
        received = exchange(proxy.port, ask_bytes(produce, 9, request) + LIST)

        # The list may arrive first, if the broker's answer is read later; never anything else.
        assert received in (
            b"",
            reply(LIST[4:], ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])),
        )
        assert answered
        wait_until(lambda: broker.is_left)


def test_partitions_that_were_not_asked_for_reach_only_their_client() -> None:
    """The proxy relays a Fetch as it is; the client decides, as it does without a proxy."""

    def answer(client: socket.socket, request: bytes) -> None:
        row = PartitionData(
            partition_index=9, error_code=ErrorCode.NONE, high_watermark=0, records=b""
        )
        topics = [FetchableTopicResponse(topic="not asked for", partitions=[row])]
        client.sendall(reply(request, FetchResponse(responses=topics, node_endpoints=[])))

    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[])
    fetch = ask_bytes(FETCH, 12, request)
    direct: list[bytes] = []
    script = Script(special={FETCH.key: answer})
    with scripted_proxy(script) as (proxy, broker):
        for port in (broker.port, proxy.port):
            with socket.create_connection(("127.0.0.1", port), 20) as client:
                client.sendall(fetch)
                client.shutdown(socket.SHUT_WR)
                direct.append(client.makefile("rb").read())
        assert direct[0] == direct[1] != b""
        assert is_served(proxy.port)


def test_decoded_answer_without_an_address_goes_out_as_it_came() -> None:
    """A number in an unusual form would be lost if the answer was encoded again."""
    row = Coordinator(
        key="mine", node_id=-1, host="", port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    answer = FindCoordinatorResponse(coordinators=[row])

    def add_tag(client: socket.socket, request: bytes) -> None:
        body = reply(request, answer)[8:-1] + LONG_ZERO
        client.sendall(framed(number_of(request), body))

    data = ask_bytes(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["mine"]))
    with (
        scripted_proxy(Script(special={FIND_COORDINATOR.key: add_tag})) as (proxy, _),
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(data)
        received = stream.read(int.from_bytes(stream.read(4), "big"))

    assert received[4:] == reply(data[4:], answer)[8:-1] + LONG_ZERO


def test_answers_larger_than_the_memory_for_them_arrive_one_after_the_other() -> None:
    body, count = bytes(4 << 20), 8

    def answer(client: socket.socket, request: bytes) -> None:
        client.sendall(framed(number_of(request), body))

    settings = replace(ProxySettings(), answer_bytes=1 << 20)
    with ExitStack() as stack:
        script = Script(special={LIST_GROUPS.key: answer})
        proxy, _ = stack.enter_context(scripted_proxy(script, settings))
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), 20))
            for _ in range(count)
        ]
        for client in clients:
            client.sendall(LIST)
            client.shutdown(socket.SHUT_WR)
        with ThreadPoolExecutor(count) as pool:
            sizes = list(pool.map(lambda client: len(client.makefile("rb").read()), clients))

    assert sizes == [len(body) + 8] * count


ODD_ADDRESSES = {
    "no host": ("", 9092),
    "a zero byte": ("a\0b", 9092),
    "a long name": ("x" * 300, 9092),
    "a long label": ("é" * 100 + ".example", 9092),
    "port 0": ("127.0.0.1", 0),
    "port -1": ("127.0.0.1", -1),
    "a large port": ("127.0.0.1", 70_000),
    "a name with spaces": ("no such host", 9092),
}


@pytest.mark.parametrize("case", ODD_ADDRESSES)
def test_broker_with_an_impossible_address_costs_only_its_own_clients(case: str) -> None:
    host, port = ODD_ADDRESSES[case]
    script = Script()
    with scripted_proxy(script) as (proxy, broker):
        script.brokers = [(0, "127.0.0.1", broker.port), (1, host, port)]
        metadata = ask_bytes(METADATA, 12, MetadataRequest(topics=[]))
        with socket.create_connection(("127.0.0.1", proxy.port), 20) as client:
            client.sendall(metadata)
            client.shutdown(socket.SHUT_WR)
            answer = client.makefile("rb").read()
        nodes = proxy.proxy.clusters[0].nodes

        assert answer
        assert is_served(nodes[0].port)
        if 1 in nodes:
            assert exchange(nodes[1].port, LIST) == b""
        else:
            assert host.encode() not in answer or not host


def test_broker_without_a_port_is_left_out_for_each_client() -> None:
    script = Script()
    settings = replace(ProxySettings(), node_ports=f"{(first := free_ports(2))}-{first + 1}")
    with scripted_proxy(script, settings) as (proxy, broker):
        script.brokers = [(node, "127.0.0.1", broker.port) for node in range(3)]

        response = ask(proxy.bootstrap, METADATA, 12, MetadataRequest(topics=[]))

        ports = {each.node_id: each.port for each in response.brokers}
        assert ports.keys() == {0, 1}
        [cluster] = proxy.proxy.clusters
        assert ports == {node: address.port for node, address in cluster.nodes.items()}
        assert is_served(cluster.nodes[0].port)
        assert "broker 2 of the upstream gets no port" in cluster.missing_nodes[2]
        assert cluster.trouble == ""
