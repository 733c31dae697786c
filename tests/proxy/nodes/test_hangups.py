"""Clients of broker nodes that disconnect or send odd requests: answers do not shift."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from rookery.errors import ErrorCode
from rookery.proxy.settings import ProxySettings
from rookery.records import recordcodec
from rookery.records.recordcodec import Record
from rookery.testing.ports import HOST
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_request, request_frame, response_frame
from rookery.wire.frame import Frame, FrameSplitter
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest, ListGroupsResponse
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.proxy.scripted import ScriptedBroker, exchange, key_of
from tests.proxy.test_broken_answers import Script, known_versions, reply, scripted_proxy
from tests.proxy.test_links import exchange_half

NODES = ProxySettings(nodes="proxy", refresh_interval_ms=3_600_000)


def listing(number: int) -> bytes:
    """Return a request with a correlation id."""
    request = ListGroupsRequest(states_filter=[])
    return b"".join(request_frame(LIST_GROUPS, 4, number, "test", request))


def answer(number: int) -> bytes:
    """Return the answer to it."""
    response = ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])
    return b"".join(response_frame(LIST_GROUPS, 4, number, response))


Scene = tuple[ServedProxy, ScriptedBroker, Script]


@pytest.fixture
def scene() -> Iterator[Scene]:
    script = Script()
    with scripted_proxy(script, NODES) as (proxy, broker):
        yield proxy, broker, script


def test_half_closed_client_gets_its_answers(scene: Scene) -> None:
    proxy, _, _ = scene
    numbers = [1, -1, -(2**31), 5, 5]

    received = exchange_half(proxy.port, b"".join(map(listing, numbers)))

    assert received == b"".join(map(answer, numbers))


def test_unknown_api_closes_after_earlier_answers(scene: Scene) -> None:
    proxy, _, _ = scene
    unknown = struct.pack(">ihhih", 10, 999, 0, 8, -1)

    assert exchange(proxy.port, listing(1) + unknown) == answer(1)


def test_requests_without_a_response_do_not_shift_the_others(scene: Scene) -> None:
    proxy, _, _ = scene
    silent = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1000, topic_data=[])
    produce = b"".join(request_frame(PRODUCE, 9, 3, "test", silent))

    received = exchange_half(proxy.port, produce + listing(1) + produce * 2 + listing(2))

    assert received == answer(1) + answer(2)


def test_client_gone_within_a_request_closes_its_connections_to_brokers(scene: Scene) -> None:
    proxy, broker, script = scene
    received, seen = threading.Event(), list[int]()

    def keep_silent(client: socket.socket, request: bytes) -> None:
        seen.append(key_of(request))
        received.set()

    before = broker.accepted - broker.ended
    script.special[LIST_GROUPS.key] = keep_silent
    with socket.create_connection((HOST, proxy.port), 20) as client:
        client.sendall(listing(1))
        assert received.wait(20)
        # A reset: a mere end of input could be a client that still reads.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: not proxy.proxy.clusters[0].links)
    wait_until(lambda: broker.accepted - broker.ended, accepts=lambda count: count <= before)

    assert seen == [LIST_GROUPS.key]


def describe_topic(client: socket.socket, request: bytes) -> None:
    """Answer Metadata: the only broker leads the partition of each topic that is asked for."""
    _, asked = read_request(METADATA, Frame(memoryview(bytearray(request))))
    partition = MetadataResponsePartition(
        error_code=ErrorCode.NONE, partition_index=0, leader_id=0, replica_nodes=[0], isr_nodes=[0]
    )
    topics = [
        MetadataResponseTopic(error_code=ErrorCode.NONE, name=topic.name, partitions=[partition])
        for topic in asked.topics or []
    ]
    broker = MetadataResponseBroker(node_id=0, host=HOST, port=client.getsockname()[1])
    client.sendall(reply(request, MetadataResponse(brokers=[broker], topics=topics)))


def silent_produce() -> bytes:
    """Return a produce of one record without acknowledgement."""
    part = PartitionProduceData(index=0, records=recordcodec.build([Record(None, b"x")]))
    request = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[part])]
    )
    return b"".join(request_frame(PRODUCE, 9, 3, "test", request))


def ask_versions(number: int) -> bytes:
    return b"".join(request_frame(API_VERSIONS, 0, number, "test", ApiVersionsRequest()))


def test_versions_are_answered_after_earlier_writes_have_reached_their_broker(scene: Scene) -> None:
    """A client that wants no acknowledgements learns so that all is read, as from a broker."""
    proxy, _, script = scene
    written: list[socket.socket] = []
    asked: list[socket.socket] = []

    def write(client: socket.socket, _: bytes) -> None:
        written.append(client)

    def list_versions(client: socket.socket, request: bytes) -> None:
        asked.append(client)
        client.sendall(reply(request, known_versions()))

    script.special |= {
        METADATA.key: describe_topic,
        PRODUCE.key: write,
        API_VERSIONS.key: list_versions,
    }
    received = exchange_half(proxy.port, silent_produce() + ask_versions(8) + ask_versions(9))

    frames = FrameSplitter(1 << 20, minimum=0).feed(received)
    assert [int.from_bytes(frame[:4], "big") for frame in frames] == [8, 9]
    assert len(written) == 1
    # Once is enough: no write came between the two. The proxy asks on connections of its own, too.
    assert [each for each in asked if each in written] == written


def test_write_that_may_be_lost_costs_the_connection(scene: Scene) -> None:
    proxy, _, script = scene

    def break_off(_: socket.socket, __: bytes) -> None:
        raise ConnectionError("the broker fails")

    script.special |= {METADATA.key: describe_topic, PRODUCE.key: break_off}

    assert exchange_half(proxy.port, silent_produce() + ask_versions(8)) == b""
