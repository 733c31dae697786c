"""Answers to raw requests are those of Kafka, field by field."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.clock import SystemClock
from rookery.errors import ErrorCode
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from rookery.wire.messages.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.produce import PRODUCE
from tests.broker.raw import batch, fetch_request, produce_request

TOPIC = "parity"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaServer) -> Iterator[tuple[str, str]]:
    """Our address and Kafka's, each with a topic of three records."""
    with ServedBroker(tmp_path_factory.mktemp("broker"), BrokerSettings(durability="os")) as ours:
        for bootstrap in (ours.bootstrap, kafka.bootstrap):
            _prepare(bootstrap)
        yield ours.bootstrap, kafka.bootstrap


def _prepare(bootstrap: str) -> None:
    topic = CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    ask(bootstrap, CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=20_000))

    def is_written() -> bool:
        request = produce_request(TOPIC, {0: batch(b"a", b"b", b"c")})
        answer = ask(bootstrap, PRODUCE, 9, request).responses[0].partition_responses[0]
        return answer.error_code is ErrorCode.NONE

    wait_until(is_written)


@pytest.mark.parametrize("version", [3, 9])
def test_two_batches_for_one_partition_match_kafka(pair: tuple[str, str], version: int) -> None:
    now = SystemClock().now_ms()
    two = batch(b"a", time_ms=now) + batch(b"b", time_ms=now)

    ours, theirs = (
        ask(bootstrap, PRODUCE, version, produce_request(TOPIC, {0: two})).responses[0]
        for bootstrap in pair
    )

    [refused] = ours.partition_responses
    assert refused.error_code is ErrorCode.INVALID_RECORD
    # We say why; Kafka does not.
    refused.error_message = None
    assert ours == theirs


FETCHES = {
    "beyond the end": ((TOPIC, 0), 99, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    "below zero": ((TOPIC, 0), -7, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    "at the end": ((TOPIC, 0), 3, -1, ErrorCode.NONE),
    "no such partition": ((TOPIC, 7), 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "no such topic": (("nothing", 0), 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a later epoch": ((TOPIC, 0), 3, 77, ErrorCode.UNKNOWN_LEADER_EPOCH),
}


@pytest.mark.parametrize("case", FETCHES)
def test_fetched_partitions_match_kafka(pair: tuple[str, str], case: str) -> None:
    place, offset, leader_epoch, expected = FETCHES[case]
    for version, isolation_level in ((9, 0), (9, 1), (11, 0), (11, 1), (12, 0), (12, 1)):
        request = fetch_request(
            {place: offset}, isolation_level=isolation_level, leader_epoch=leader_epoch
        )
        ours, theirs = (ask(bootstrap, FETCH, version, request).responses for bootstrap in pair)
        assert ours[0].partitions[0].error_code is expected
        # Compared as text: equal records can be different views.
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", ["nothing", "a/b"])
@pytest.mark.parametrize("version", [8, 9, 10])
def test_operations_on_a_missing_topic_match_kafka(
    pair: tuple[str, str], version: int, name: str
) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)],
        include_topic_authorized_operations=True,
        allow_auto_topic_creation=False,
    )
    ours, theirs = (ask(bootstrap, METADATA, version, request).topics for bootstrap in pair)
    assert ours == theirs


def test_operations_on_a_missing_topic_id_match_kafka(pair: tuple[str, str]) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=b"x" * 16)],
        include_topic_authorized_operations=True,
        allow_auto_topic_creation=False,
    )
    ours, theirs = (ask(bootstrap, METADATA, 12, request).topics for bootstrap in pair)
    assert ours == theirs


def test_partitions_of_missing_topics_match_kafka(pair: tuple[str, str]) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in ("nothing", "a/b")]
    )
    ours, theirs = (
        ask(bootstrap, DESCRIBE_TOPIC_PARTITIONS, 0, request).topics for bootstrap in pair
    )
    assert ours == theirs
