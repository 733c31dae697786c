"""Answers of brokers that are large, and requests that name nothing."""

from __future__ import annotations

import socket
import struct

from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_request, request_frame, response_frame
from rookery.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.proxy.nodes.conftest import NODES
from tests.proxy.scripted import key_of, number_of, proxy_before

SIZE = 1 << 20


def begin_large(client: socket.socket, request: bytes) -> None:
    """Send the start of a large response."""
    if key_of(request) != DESCRIBE_CLUSTER.key:
        raise ConnectionError("not DescribeCluster")
    client.sendall(struct.pack(">ii", SIZE, number_of(request)))


def refuse_produce(client: socket.socket, request: bytes) -> None:
    """Answer a Produce as a broker does that knows no topic of that name."""
    if key_of(request) != PRODUCE.key:
        raise ConnectionError("not Produce")
    _, body = read_request(PRODUCE, memoryview(request))
    response = PRODUCE.refuse(body, ErrorCode.INVALID_TOPIC_EXCEPTION)
    client.sendall(b"".join(response_frame(PRODUCE, 9, number_of(request), response)))


def held_bytes(proxy: ServedProxy) -> int:
    [cluster] = proxy.proxy.clusters
    return sum(client.held_bytes for client in list(cluster.links))


def test_large_answer_counts_from_its_start() -> None:
    frame = request_frame(DESCRIBE_CLUSTER, 1, 7, "test", DescribeClusterRequest())
    with proxy_before(begin_large, NODES) as (proxy, broker):
        with socket.create_connection(("127.0.0.1", proxy.port), 20) as client:
            client.sendall(b"".join(frame))
            wait_until(lambda: held_bytes(proxy) == SIZE)
            assert proxy.proxy.share.answers.used == SIZE
            # A reset: a mere end of input could be a client that still reads.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: broker.is_left)


def test_batch_for_a_topic_without_a_name_is_answered() -> None:
    part = PartitionProduceData(index=0, records=b"")
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="", partition_data=[part])]
    )
    with proxy_before(refuse_produce, NODES) as (proxy, _):
        response = ask(proxy.bootstrap, PRODUCE, 9, request)

    [topic] = response.responses
    assert topic.partition_responses[0].error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
