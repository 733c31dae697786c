"""Fetches over several brokers: sessions, limits and waits, seen by a client on a socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ErrorCode
from rookery.net.answers import AnswerBudget
from rookery.proxy.answerroom import HeldResults
from rookery.records.batches import outline
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response, request_frame
from rookery.wire.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tests.proxy.nodes.conftest import NODES

PARTITIONS = 6
VERSION = 16


@pytest.fixture(scope="module")
def proxy(brokers: list[ServedBroker]) -> Iterator[ServedProxy]:
    with ServedProxy(",".join(broker.bootstrap for broker in brokers), NODES) as proxy:
        yield proxy


@pytest.fixture
def topic(proxy: ServedProxy) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(20)
    return name


@pytest.fixture
def topic_id(proxy: ServedProxy, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return ask(proxy.bootstrap, METADATA, 12, request).topics[0].topic_id


class FetchClient:
    """A client that sends fetches one after the other on one connection."""

    def __init__(self, proxy: ServedProxy) -> None:
        self._socket = socket.create_connection(("127.0.0.1", proxy.port), 20)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> FetchClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def fetch(self, request: FetchRequest) -> FetchResponse:
        self.send(request)
        return self.receive()

    def send(self, request: FetchRequest) -> None:
        self._socket.sendall(b"".join(request_frame(FETCH, VERSION, 5, "test", request)))

    def receive(self) -> FetchResponse:
        size = int.from_bytes(self._stream.read(4), "big")
        return read_response(FETCH, VERSION, self._stream.read(size))


def fetch_of(
    topic_id: bytes, offsets: dict[int, int], max_partition_bytes: int = 1_000_000, **fields: Any
) -> FetchRequest:
    parts = [
        FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=max_partition_bytes
        )
        for number, offset in offsets.items()
    ]
    topics = [FetchTopic(topic_id=topic_id, partitions=parts)] if parts else []
    return FetchRequest(**{"max_wait_ms": 100, "min_bytes": 1, **fields}, topics=topics)


def rows_of(response: FetchResponse) -> dict[int, PartitionData]:
    assert response.error_code is ErrorCode.NONE
    return {row.partition_index: row for topic in response.responses for row in topic.partitions}


def produce(proxy: ServedProxy, topic: str, partitions: range, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "batch.num.messages": 1})
    for number in range(count):
        for partition in partitions:
            producer.produce(topic, b"%d" % number * 10, partition=partition)
    assert producer.flush(20) == 0


EVERYTHING = dict.fromkeys(range(PARTITIONS), 0)


def test_fetch_without_records_names_every_partition(
    proxy: ServedProxy, topic: str, topic_id: bytes
) -> None:
    with FetchClient(proxy) as client:
        rows = rows_of(client.fetch(fetch_of(topic_id, EVERYTHING)))

    assert sorted(rows) == list(range(PARTITIONS))
    assert {(row.error_code, row.high_watermark) for row in rows.values()} == {(ErrorCode.NONE, 0)}


def test_all_records_come_in_order_whatever_the_limits(
    proxy: ServedProxy, topic: str, topic_id: bytes
) -> None:
    produce(proxy, topic, range(PARTITIONS), count=20)
    offsets = dict(EVERYTHING)
    with FetchClient(proxy) as client:
        while any(offset < 20 for offset in offsets.values()):
            request = fetch_of(topic_id, offsets, 200, max_bytes=500)
            rows = rows_of(client.fetch(request))
            assert sorted(rows) == list(range(PARTITIONS))
            sizes = [len(row.records or b"") for row in rows.values()]
            assert sum(sizes) <= 500
            for number, row in rows.items():
                for header in outline(row.records or b""):  # type: ignore[arg-type]
                    assert header.base_offset == offsets[number]
                    offsets[number] = header.last_offset + 1


def test_client_that_goes_back_gets_the_records_from_there(
    brokers: list[ServedBroker], proxy: ServedProxy, topic: str, topic_id: bytes
) -> None:
    """A part of the fetch before, for later offsets, is under way and gets records meanwhile."""
    produce(proxy, topic, range(PARTITIONS), count=3)
    [described] = ask(
        brokers[0].bootstrap,
        METADATA,
        12,
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)]),
    ).topics
    leaders = {row.partition_index: row.leader_id for row in described.partitions}
    others = [number for number in EVERYTHING if leaders[number] != leaders[0]]
    assert others
    ends = dict.fromkeys(others, 3)
    with FetchClient(proxy) as client:
        # After it, all ends are known: the next one asks every broker with the client's wait.
        client.fetch(fetch_of(topic_id, {0: 3} | ends))
        # The records of one broker answer it; the others wait for theirs.
        rows = rows_of(client.fetch(fetch_of(topic_id, {0: 0} | ends, max_wait_ms=60_000)))
        assert rows[0].records

        client.send(fetch_of(topic_id, dict.fromkeys(others, 1), max_wait_ms=60_000))
        produce(proxy, topic, range(PARTITIONS))
        rows = rows_of(client.receive())

    begins = {
        number: outline(row.records)[0].base_offset  # type: ignore[arg-type]
        for number, row in rows.items()
        if row.records
    }
    assert begins
    assert set(begins.values()) == {1}


def test_sum_of_brokers_ends_the_wait(proxy: ServedProxy, topic: str, topic_id: bytes) -> None:
    """No broker alone has min_bytes, and the wait is longer than the test may take."""
    produce(proxy, topic, range(PARTITIONS))
    with FetchClient(proxy) as client:
        sizes = [
            len(row.records or b"")
            for row in rows_of(client.fetch(fetch_of(topic_id, EVERYTHING))).values()
        ]
        total = PARTITIONS * max(sizes)
        request = fetch_of(topic_id, EVERYTHING, min_bytes=total, max_wait_ms=60_000)

        rows = rows_of(client.fetch(request))

    assert sum(len(row.records or b"") for row in rows.values()) >= total


def test_session_tells_only_news(proxy: ServedProxy, topic: str, topic_id: bytes) -> None:
    with FetchClient(proxy) as client:
        opened = client.fetch(fetch_of(topic_id, EVERYTHING, session_epoch=0))
        session_id = opened.session_id
        assert session_id
        assert sorted(rows_of(opened)) == list(range(PARTITIONS))

        quiet = fetch_of(topic_id, {}, session_id=session_id, session_epoch=1)
        assert rows_of(client.fetch(quiet)) == {}

        produce(proxy, topic, range(2, 3))
        news = fetch_of(topic_id, {}, session_id=session_id, session_epoch=2, max_wait_ms=5_000)
        rows = rows_of(client.fetch(news))
        assert list(rows) == [2]
        assert rows[2].records

        wrong = client.fetch(quiet.replace(session_epoch=9))
        assert wrong.error_code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_errors_end_the_wait_and_are_their_own(
    proxy: ServedProxy, topic: str, topic_id: bytes
) -> None:
    unknown = FetchTopic(
        topic_id=uuid4().bytes,
        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
    )
    request = fetch_of(topic_id, {0: 7, 1: 0}, max_wait_ms=60_000)
    request.topics.append(unknown)
    with FetchClient(proxy) as client:
        response = client.fetch(request)

    codes = {
        (topic.topic_id, row.partition_index): row.error_code
        for topic in response.responses
        for row in topic.partitions
    }
    assert codes == {
        (topic_id, 0): ErrorCode.OFFSET_OUT_OF_RANGE,
        (topic_id, 1): ErrorCode.NONE,
        (unknown.topic_id, 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_records_for_the_next_fetch_count_as_unread(
    proxy: ServedProxy, topic: str, topic_id: bytes
) -> None:
    produce(proxy, topic, range(PARTITIONS))
    answers = proxy.proxy.share.answers
    with FetchClient(proxy) as client:
        rows = rows_of(client.fetch(fetch_of(topic_id, EVERYTHING, max_bytes=1)))
        wait_until(lambda: held_by_fetches(answers) > 0)
        assert sum(bool(row.records) for row in rows.values()) == 1
    wait_until(lambda: held_by_fetches(answers) == 0)


def held_by_fetches(answers: AnswerBudget) -> int:
    held = [each for each in list(answers._holders) if isinstance(each, HeldResults)]
    return sum(each.held_bytes for each in held)
