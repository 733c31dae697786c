"""Requests that are well formed and ask for too much."""

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
from tests.abuse.topics import (
    ask,
    create,
    describe,
    fetch_request,
    make_topic,
    produce_request,
)
from tests.abuse.victims import Victim

TOPIC = "flood"
FOREVER = i32Timedelta.parse(datetime.timedelta(milliseconds=2**31 - 1))
CONNECTIONS = 1000


def test_thousand_waiting_fetches_take_bounded_memory(victim: Victim) -> None:
    make_topic(victim.port, TOPIC)
    before, sockets = victim.resident(), victim.sockets()
    request = framed(fetch_request(TOPIC, max_wait=FOREVER, min_bytes=2**31 - 1))
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            line = Attacker(victim.port)
            stack.callback(line.vanish)
            line.send(request)
        for _ in range(20):
            simple(victim.port)
        # Some that were counted before may have been on their way out.
        assert victim.sockets() >= CONNECTIONS
        assert victim.resident() - before < 48 * 1024 * 1024

    # Those who wait are forgotten when their clients are gone.
    victim.wait_for_sockets(sockets)


def test_metadata_of_ten_thousand_unknown_topics_is_answered(victim: Victim) -> None:
    names = [f"unknown-{number}" for number in range(10_000)]

    answers = describe(victim.port, names)

    assert {one.error_code for one in answers} == {ErrorCode.unknown_topic_or_partition}


def test_metadata_requests_create_a_bounded_number_of_topics(victim: Victim) -> None:
    names = [f"made-{number}" for number in range(10_000)]

    answers = describe(victim.port, names, make=True)

    made = [one for one in answers if one.error_code is ErrorCode.none]
    assert len(answers) == len(names)
    assert len(made) <= 1000


def test_a_million_partitions_are_refused(victim: Victim) -> None:
    for count in (10**6, 2**31 - 1, 0, -2):
        assert create(victim.port, "huge", partitions=count) is ErrorCode.invalid_partitions
    [one] = describe(victim.port, ["huge"])
    assert one.error_code is ErrorCode.unknown_topic_or_partition


def test_many_topics_of_many_partitions_are_refused(victim: Victim) -> None:
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
    answer = ask(victim.port, request, CreateTopicsResponse)

    assert ErrorCode.none not in {one.error_code for one in answer.topics}


def test_disconnecting_producers_leave_no_open_sockets(victim: Victim) -> None:
    make_topic(victim.port, TOPIC)
    sockets = victim.sockets()
    request = framed(produce_request(TOPIC, bytes(500_000)))
    for _ in range(50):
        line = Attacker(victim.port)
        line.send(request[: len(request) // 2])
        line.vanish()

    victim.wait_for_sockets(sockets)


def test_thousands_of_repeated_record_deletions_are_answered(victim: Victim) -> None:
    make_topic(victim.port, TOPIC)
    move = DeleteRecordsPartition(partition_index=i32(0), offset=i64(0))
    topic = DeleteRecordsTopic(name=TopicName(TOPIC), partitions=(move,) * 20_000)
    request = DeleteRecordsRequest(topics=(topic,), timeout=FOREVER)

    [answer] = ask(victim.port, request, DeleteRecordsResponse).topics

    codes = {one.error_code for one in answer.partitions}
    assert ErrorCode.unknown_server_error not in codes
