"""A broker that keeps a connection open and does not answer on it."""

from __future__ import annotations

import socket
from dataclasses import replace

from rookery.errors import ErrorCode
from rookery.wire.codec import read_request, read_response, request_frame, response_frame
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.proxy.nodes.conftest import NODES
from tests.proxy.scripted import number_of
from tests.proxy.test_broken_answers import Script, reply, scripted_proxy

VERSION = 5
REQUEST = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsTopic(
            name="birds", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
    ],
)


class SilentOnce:
    """Never answers on the connection on which it was asked first."""

    def __init__(self) -> None:
        self._first: socket.socket | None = None

    def __call__(self, client: socket.socket, request: bytes) -> None:
        self._first = self._first or client
        if client is self._first:
            return
        _, asked = read_request(LIST_OFFSETS, memoryview(request))
        row = ListOffsetsPartitionResponse(
            partition_index=0, error_code=ErrorCode.NONE, offset=7, timestamp=-1
        )
        topics = [ListOffsetsTopicResponse(name=asked.topics[0].name, partitions=[row])]
        response = ListOffsetsResponse(topics=topics)
        frame = response_frame(LIST_OFFSETS, VERSION, number_of(request), response)
        client.sendall(b"".join(frame))


def exchange(client: socket.socket) -> ListOffsetsPartitionResponse:
    """Send the request on a connection; return the partition's result."""
    client.sendall(b"".join(request_frame(LIST_OFFSETS, VERSION, 5, "test", REQUEST)))
    head = client.recv(4, socket.MSG_WAITALL)
    frame = client.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    response = read_response(LIST_OFFSETS, VERSION, memoryview(frame))
    return response.topics[0].partitions[0]


def metadata(port: int) -> MetadataResponse:
    """Return the metadata of one broker that leads the topic."""
    row = MetadataResponsePartition(
        error_code=ErrorCode.NONE, partition_index=0, leader_id=0, replica_nodes=[0], isr_nodes=[0]
    )
    topic = MetadataResponseTopic(error_code=ErrorCode.NONE, name="birds", partitions=[row])
    broker = MetadataResponseBroker(node_id=0, host="127.0.0.1", port=port)
    return MetadataResponse(brokers=[broker], controller_id=0, topics=[topic])


def test_connection_on_which_a_part_has_no_answer_in_time_is_replaced() -> None:
    script = Script(special={LIST_OFFSETS.key: SilentOnce()})
    script.special[METADATA.key] = lambda client, request: client.sendall(
        reply(request, metadata(script.port))
    )
    # The second request must be answered in time on a busy host.
    settings = replace(NODES, request_timeout_ms=1_500)
    with (
        scripted_proxy(script, settings) as (proxy, _),
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
    ):
        first = exchange(client)
        second = exchange(client)

    assert first.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (second.error_code, second.offset) == (ErrorCode.NONE, 7)
