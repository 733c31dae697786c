"""Well-formed requests that ask for too much."""

from __future__ import annotations

import datetime
from contextlib import ExitStack

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32, i32Timedelta, i64

from tests.abuse.attack import Attacker, framed, simple
from tests.abuse.targets import ADMITTED, Target
from tests.abuse.topics import (
    ask,
    create,
    describe,
    fetch_request,
    make_topic,
    produce_request,
)

pytestmark = ADMITTED

TOPIC = "flood"
FOREVER = i32Timedelta.parse(datetime.timedelta(milliseconds=2**31 - 1))
CONNECTIONS, FETCHES = 1000, 10
FETCH_BYTES = 8 * 1024
"""What a fetch that waits costs, at the broker or in a proxy."""
# The state of TLS, and a record in each direction.
TLS_KIBIBYTES = 32


def test_ten_thousand_waiting_fetches_take_bounded_memory(target: Target) -> None:
    make_topic(target.door, TOPIC)
    sides = 2 if target.is_proxied else 1
    tls_bytes = 0 if target.door.tls is None else sides * TLS_KIBIBYTES * 1024
    connection_bytes = 48 * 1024 + tls_bytes + FETCHES * FETCH_BYTES
    before, sockets = target.victim.resident(), target.victim.sockets()
    request = framed(fetch_request(TOPIC, max_wait=FOREVER, min_bytes=2**31 - 1))
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            line = Attacker(target.door)
            stack.callback(line.vanish)
            line.send(request * FETCHES)
        for _ in range(20):
            simple(target.door)
        # Some that were counted before may have been on their way out.
        assert target.victim.sockets() >= CONNECTIONS
        assert target.victim.resident() - before < CONNECTIONS * connection_bytes

    # Those who wait are forgotten when their clients are gone.
    target.victim.wait_for_sockets(sockets)


def test_metadata_of_hundred_thousand_unknown_topics_is_answered(target: Target) -> None:
    names = [f"unknown-{number}" for number in range(100_000)]

    answers = describe(target.door, names)

    assert {answer.error_code for answer in answers} == {ErrorCode.unknown_topic_or_partition}


def test_metadata_requests_create_a_bounded_number_of_topics(target: Target) -> None:
    names = [f"made-{number}" for number in range(100_000)]

    answers = describe(target.door, names, make=True)

    made = [answer for answer in answers if answer.error_code is ErrorCode.none]
    assert len(answers) == len(names)
    assert len(made) <= 1000


def test_a_million_partitions_are_refused(target: Target) -> None:
    for count in (10**6, 2**31 - 1, 0, -2):
        assert create(target.door, "huge", partitions=count) is ErrorCode.invalid_partitions
    [topic] = describe(target.door, ["huge"])
    assert topic.error_code is ErrorCode.unknown_topic_or_partition


def test_many_topics_of_many_partitions_are_refused(target: Target) -> None:
    topics = tuple(
        CreatableTopic(
            name=TopicName(f"many-{number}"),
            num_partitions=i32(10_000),
            replication_factor=i16(1),
            assignments=(),
            configs=(),
        )
        for number in range(100)
    )

    request = CreateTopicsRequest(topics=topics, validate_only=False)
    answer = ask(target.door, request, CreateTopicsResponse)

    assert ErrorCode.none not in {topic.error_code for topic in answer.topics}


def test_disconnecting_producers_leave_no_open_sockets(target: Target) -> None:
    make_topic(target.door, TOPIC)
    sockets = target.victim.sockets()
    request = framed(produce_request(TOPIC, bytes(500_000)))
    for _ in range(50):
        line = Attacker(target.door)
        line.send(request[: len(request) // 2])
        line.vanish()

    target.victim.wait_for_sockets(sockets)


def test_thousands_of_repeated_record_deletions_are_answered(target: Target) -> None:
    make_topic(target.door, TOPIC)
    move = DeleteRecordsPartition(partition_index=i32(0), offset=i64(0))
    topic = DeleteRecordsTopic(name=TopicName(TOPIC), partitions=(move,) * 20_000)
    request = DeleteRecordsRequest(topics=(topic,), timeout=FOREVER)

    [answer] = ask(target.door, request, DeleteRecordsResponse).topics

    codes = {partition.error_code for partition in answer.partitions}
    assert ErrorCode.unknown_server_error not in codes
