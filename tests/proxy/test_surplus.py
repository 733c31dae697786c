"""Brokers that answer about topics and partitions that they were not asked for.

Where a response is decoded, it costs the connection to the broker. A client never sees what a
filter has refused it, and a broker cannot change what the proxy knows for other clients.
"""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from rookery.errors import ErrorCode
from rookery.proxy.filters.topic_prefix import TopicPrefix
from rookery.proxy.settings import ProxySettings
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response
from rookery.wire.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from rookery.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.proxy.edits.test_surplus import fetch_response, metadata
from tests.proxy.scripted import ScriptedBroker, exchange
from tests.proxy.test_broken_answers import (
    Script,
    Special,
    ask_bytes,
    is_served,
    reply,
    scripted_proxy,
)

NODES = replace(ProxySettings(), nodes="proxy")
PART = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
FETCH_REQUEST = FetchRequest(
    max_wait_ms=0,
    min_bytes=0,
    topics=[FetchTopic(topic="mine", partitions=[PART])],
    forgotten_topics_data=[],
)


def answer_fetch(client: socket.socket, request: bytes) -> None:
    client.sendall(reply(request, fetch_response(0, topic="tenant.another")))


def answer_produce(client: socket.socket, request: bytes) -> None:
    row = PartitionProduceResponse(index=9, error_code=ErrorCode.NONE, base_offset=5)
    topics = [TopicProduceResponse(name="mine", partition_responses=[row])]
    client.sendall(reply(request, ProduceResponse(responses=topics)))


def test_filtered_response_with_another_topic_costs_its_connection() -> None:
    script = Script(special={FETCH.key: answer_fetch})
    broker = ScriptedBroker(script)
    script.port = broker.port
    try:
        with ServedProxy(broker.bootstrap, filters=[TopicPrefix({"prefix": "tenant."})]) as proxy:
            assert exchange(proxy.port, ask_bytes(FETCH, 12, FETCH_REQUEST)) == b""
            wait_until(lambda: broker.is_left)
            assert is_served(proxy.port)
    finally:
        broker.close()


@pytest.fixture
def script() -> Script:
    return Script()


def test_fetch_from_a_broker_that_answers_about_another_topic_is_retried(script: Script) -> None:
    script.special[FETCH.key] = answer_fetch
    broker = ScriptedBroker(script)
    script.port = broker.port
    try:
        with ServedProxy(broker.bootstrap, NODES) as proxy:
            response = ask(proxy.bootstrap, FETCH, 12, FETCH_REQUEST)

            [topic] = response.responses
            [row] = topic.partitions
            assert (topic.topic, row.partition_index) == ("mine", 0)
            assert row.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            wait_until(lambda: broker.is_left)
    finally:
        broker.close()


def test_batch_whose_broker_answers_about_another_partition_has_no_known_end(
    script: Script,
) -> None:
    script.special[PRODUCE.key] = answer_produce
    broker = ScriptedBroker(script)
    script.port = broker.port
    part = PartitionProduceData(index=0, records=b"")
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="mine", partition_data=[part])]
    )
    try:
        with ServedProxy(broker.bootstrap, NODES) as proxy:
            response = ask(proxy.bootstrap, PRODUCE, 9, request)

            [topic] = response.responses
            [row] = topic.partition_responses
            assert (topic.name, row.index) == ("mine", 0)
            assert row.error_code is ErrorCode.REQUEST_TIMED_OUT
            wait_until(lambda: broker.is_left)
    finally:
        broker.close()


def test_metadata_about_other_topics_does_not_reach_what_all_clients_share(script: Script) -> None:
    broker = ScriptedBroker(script)
    script.port = broker.port
    try:
        with ServedProxy(broker.bootstrap, NODES) as proxy:
            script.special[METADATA.key] = lambda client, request: client.sendall(
                reply(request, metadata("another"))
            )
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="mine")])

            assert exchange(proxy.port, ask_bytes(METADATA, 12, asked)) == b""

            [cluster] = proxy.proxy.clusters
            assert cluster.broker_nodes is not None
            assert cluster.broker_nodes.directory.topology.find("another") is None
    finally:
        broker.close()


def answer_coordinators(client: socket.socket, request: bytes) -> None:
    row = Coordinator(key="another", node_id=0, host="127.0.0.1", port=1, error_code=ErrorCode.NONE)
    client.sendall(reply(request, FindCoordinatorResponse(coordinators=[row])))


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        pytest.param(
            lambda client, request: client.sendall(reply(request, metadata("another"))),
            ask_bytes(METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name="mine")])),
            id="Metadata",
        ),
        pytest.param(
            answer_coordinators,
            ask_bytes(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["mine"])),
            id="FindCoordinator",
        ),
    ],
)
def test_decoded_response_of_a_mirrored_broker_has_what_was_asked_for(
    script: Script, answer: Special, question: bytes
) -> None:
    with scripted_proxy(script) as (proxy, broker):
        script.special[int.from_bytes(question[4:6], "big")] = answer

        assert exchange(proxy.port, question) == b""
        wait_until(lambda: broker.is_left)
        assert is_served(proxy.port)


class Sessions:
    """Answers each Fetch about partitions that a test has chosen, in a session."""

    def __init__(self) -> None:
        self.partitions: list[int] = []

    def __call__(self, client: socket.socket, request: bytes) -> None:
        response = fetch_response(*self.partitions, topic="tenant.mine")
        response.session_id = 5
        client.sendall(reply(request, response))


def fetch_of(epoch: int, *partitions: int, forgotten: int | None = None) -> bytes:
    parts = [replace_partition(number) for number in partitions]
    gone = [] if forgotten is None else [ForgottenTopic(topic="mine", partitions=[forgotten])]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=5 if epoch else 0,
        session_epoch=epoch,
        topics=[FetchTopic(topic="mine", partitions=parts)] if parts else [],
        forgotten_topics_data=gone,
    )
    return ask_bytes(FETCH, 12, request)


def replace_partition(number: int) -> FetchPartition:
    return FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)


@pytest.mark.parametrize(
    ("second", "is_delivered"),
    [
        pytest.param(fetch_of(1), True, id="named before"),
        pytest.param(fetch_of(1, forgotten=2), True, id="another is forgotten"),
        pytest.param(fetch_of(1, forgotten=1), False, id="forgotten"),
    ],
)
def test_filtered_fetch_session_has_what_was_asked_for(
    script: Script, second: bytes, *, is_delivered: bool
) -> None:
    sessions = Sessions()
    script.special[FETCH.key] = sessions
    broker = ScriptedBroker(script)
    script.port = broker.port
    try:
        with (
            ServedProxy(broker.bootstrap, filters=[TopicPrefix({"prefix": "tenant."})]) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
            client.makefile("rb") as stream,
        ):
            client.sendall(fetch_of(0, 0, 1, 2))
            assert stream.read(int.from_bytes(stream.read(4), "big"))
            sessions.partitions = [1]
            client.sendall(second)

            assert bool(stream.read(4)) is is_delivered
    finally:
        broker.close()


def test_unknown_fetch_session_starts_over(script: Script) -> None:
    script.special[FETCH.key] = Sessions()
    broker = ScriptedBroker(script)
    script.port = broker.port
    try:
        with ServedProxy(broker.bootstrap, filters=[TopicPrefix({"prefix": "tenant."})]) as proxy:
            data = fetch_of(3)
            with (
                socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
                client.makefile("rb") as stream,
            ):
                client.sendall(data + data)
                frames = [stream.read(int.from_bytes(stream.read(4), "big")) for _ in range(2)]
            codes = {read_response(FETCH, 12, frame).error_code for frame in frames}

            assert codes == {ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
    finally:
        broker.close()
