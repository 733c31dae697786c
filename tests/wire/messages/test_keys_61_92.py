"""The APIs with keys 61 to 92: refusals in every version, and fields that are easy to get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    Message,
)
from rookery.wire.messages import (
    broker_heartbeat,
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    push_telemetry,
    read_share_group_state_summary,
    share_fetch,
    update_raft_voter,
)
from rookery.wire.table import shape_of

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TOPIC_ID = bytes(range(16))
APIS = {api.name: api for api in apis().values() if 61 <= api.key <= 92}
EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in api.versions
]


def partitions(request: Any) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


# How many codes a refusal holds. An API that is not named here has one, for the whole answer.
CODES: dict[str, Callable[[Any], int]] = {
    "DescribeProducers": lambda it: sum(len(topic.partition_indexes) for topic in it.topics),
    "DescribeTransactions": lambda it: len(it.transactional_ids),
    "ConsumerGroupDescribe": lambda it: len(it.group_ids),
    "DescribeTopicPartitions": lambda it: len(it.topics),
    "ShareGroupDescribe": lambda it: len(it.group_ids),
    "InitializeShareGroupState": partitions,
    "ReadShareGroupState": partitions,
    "WriteShareGroupState": partitions,
    "DeleteShareGroupState": partitions,
    "ReadShareGroupStateSummary": partitions,
    "StreamsGroupDescribe": lambda it: len(it.group_ids),
    "DescribeShareGroupOffsets": lambda it: len(it.groups),
}


def structures_in(message: Message) -> Iterator[Message]:
    """Yield a message and every structure that it holds."""
    yield message
    for name in message.__fields__:
        value = getattr(message, name)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Message):
                yield from structures_in(item)


def values_of(message: Message, name: str) -> list[Any]:
    """Return what every field of that name holds."""
    return [getattr(part, name) for part in structures_in(message) if name in type(part).__fields__]


def test_every_key_has_an_api() -> None:
    assert [api.key for api in APIS.values()] == list(range(61, 93))


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_refusal_carries_the_code_for_every_requested_item(
    api: Api[Any, Any], version: int
) -> None:
    most = 0
    for seed in range(20):
        request = random_message(api.request, version, seed)

        refusal = api.refuse(request, CODE)

        assert decode(api.response, version, encode_bytes(refusal, version)) == refusal
        expected = CODES[api.name](request) if api.name in CODES else 1
        assert values_of(refusal, "error_code") == [CODE] * expected
        most = max(most, expected)
    assert most > 0


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_refusal_has_a_message_where_possible(api: Api[Any, Any], version: int) -> None:
    refusal = api.refuse(random_message(api.request, version, 3), CODE)

    assert all(text == CODE.sentence for text in values_of(refusal, "error_message"))
    assert not any(values_of(refusal, "throttle_time_ms"))


def test_describe_producers_mirrors_each_partition() -> None:
    request = describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name="orders", partition_indexes=[4, 0])]
    )

    refusal = describe_producers.refuse(request, CODE)

    assert [topic.name for topic in refusal.topics] == ["orders"]
    assert [it.partition_index for it in refusal.topics[0].partitions] == [4, 0]


def test_describe_transactions_mirrors_each_id_without_a_producer() -> None:
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["a", "b"])

    states = describe_transactions.refuse(request, CODE).transaction_states

    assert [it.transactional_id for it in states] == ["a", "b"]
    assert {(it.producer_id, it.producer_epoch) for it in states} == {(0, 0)}


def test_describe_topic_partitions_names_the_topics() -> None:
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name="orders")]
    )

    refusal = describe_topic_partitions.refuse(request, CODE)

    assert [(it.name, it.topic_id) for it in refusal.topics] == [("orders", ZERO_UUID)]
    assert refusal.next_cursor is None


def test_consumer_group_describe_names_the_groups() -> None:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=["a", "b"], include_authorized_operations=True
    )

    groups = consumer_group_describe.refuse(request, CODE).groups

    assert [(it.group_id, it.members) for it in groups] == [("a", []), ("b", [])]
    assert {it.authorized_operations for it in groups} == {-(2**31)}


def test_share_state_echoes_topic_ids_and_partitions() -> None:
    partition = read_share_group_state_summary.PartitionData(partition=7, leader_epoch=2)
    request = read_share_group_state_summary.ReadShareGroupStateSummaryRequest(
        group_id="g",
        topics=[
            read_share_group_state_summary.ReadStateSummaryData(
                topic_id=TOPIC_ID, partitions=[partition]
            )
        ],
    )

    (result,) = read_share_group_state_summary.refuse(request, CODE).results

    assert result.topic_id == TOPIC_ID
    assert [(it.partition, it.start_offset) for it in result.partitions] == [(7, -1)]


def test_describe_share_group_offsets_names_groups_even_when_all_topics_are_asked_for() -> None:
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
        groups=[describe_share_group_offsets.GroupRequest(group_id="g", topics=None)]
    )

    (group,) = describe_share_group_offsets.refuse(request, CODE).groups

    assert (group.group_id, group.topics) == ("g", [])


def test_a_refused_heartbeat_assigns_nothing() -> None:
    request = random_message(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest, 1, 1)

    assert consumer_group_heartbeat.refuse(request, CODE).assignment is None


def test_telemetry_is_a_view_into_the_frame() -> None:
    request = push_telemetry.PushTelemetryRequest(
        client_instance_id=TOPIC_ID,
        subscription_id=1,
        terminating=False,
        compression_type=4,
        metrics=b"metrics",
    )
    wire = encode_bytes(request, 0)

    metrics = decode(push_telemetry.PushTelemetryRequest, 0, wire).metrics

    assert wire == TOPIC_ID + bytes.fromhex("00000001" + "00" + "04" + "08") + b"metrics\0"
    assert isinstance(metrics, memoryview)
    assert metrics.obj is wire


@pytest.mark.parametrize(
    ("cordoned", "tags"),
    [(None, "00"), ([], "01010101"), ([TOPIC_ID], "01011102" + TOPIC_ID.hex())],
)
def test_cordoned_directories_are_left_out_only_while_null(
    cordoned: list[bytes] | None, tags: str
) -> None:
    request = broker_heartbeat.BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=2,
        current_metadata_offset=3,
        want_fence=False,
        want_shut_down=True,
        cordoned_log_dirs=cordoned,
    )
    wire = encode_bytes(request, 2)

    assert wire.hex() == "00000001" + "00" * 7 + "02" + "00" * 7 + "03" + "0001" + tags
    assert decode(broker_heartbeat.BrokerHeartbeatRequest, 2, wire) == request


def test_voter_learns_the_leader_from_a_tag() -> None:
    leader = update_raft_voter.CurrentLeader(leader_id=3, leader_epoch=9, host="a", port=9093)
    response = update_raft_voter.UpdateRaftVoterResponse(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=leader
    )
    wire = encode_bytes(response, 0)

    expected = "00000000" + "0006" + "01000f" + "00000003" + "00000009" + "0261" + "00002385" + "00"
    assert wire.hex() == expected
    assert decode(update_raft_voter.UpdateRaftVoterResponse, 0, wire) == response


def test_share_fetch_keeps_the_error_code_of_acknowledgements() -> None:
    shape = shape_of(
        share_fetch.PartitionData, share_fetch.PartitionData.__fields__["acknowledge_error_code"]
    )

    assert shape == shape_of(
        share_fetch.PartitionData, share_fetch.PartitionData.__fields__["error_code"]
    )
