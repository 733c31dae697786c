"""The messages of API keys 0 to 27: old layouts against kafka-python's, and every refusal."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import pytest

from rookery.errors import ErrorCode
from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode_bytes, table_of
from rookery.wire.message import Api, Message, Type
from rookery.wire.messages import (
    add_partitions_to_txn,
    api_versions,
    create_topics,
    delete_records,
    delete_topics,
    describe_groups,
    fetch,
    find_coordinator,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)
from rookery.wire.table import WireTable

CODE: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_ID: Final = bytes(range(16))
SEEDS: Final = range(12)
APIS: Final = {key: api for key, api in apis().items() if key <= 27}
EVERY_VERSION: Final = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in APIS.values()
    for version in api.versions
]


def codes(table: WireTable, message: Message) -> Iterator[ErrorCode]:
    """Yield the error codes that a message carries in one version, tagged ones left out."""
    for step in table.steps:
        value = getattr(message, step.name)
        if step.type is Type.ERROR:
            yield value
        elif step.table is not None:
            for item in value or [] if step.type is Type.ARRAY else [value]:
                yield from codes(step.table, item)


def refused(request: Message, version: int, code: ErrorCode = CODE) -> Any:
    """Send a request, have it refused, and return the answer as the client reads it."""
    api = APIS[request.KEY or 0]
    arrived = decode(api.request, version, encode_bytes(request, version))
    return decode(api.response, version, encode_bytes(api.refuse(arrived, code), version))


def test_every_key_is_there_from_version_0() -> None:
    assert list(APIS) == [0, 1, 2, 3, *range(8, 28)]
    assert all(api.versions.start == 0 for api in APIS.values())


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_refusal_carries_the_given_code_only(api: Api[Any, Any], version: int) -> None:
    carried: set[ErrorCode] = set()
    for seed in SEEDS:
        answer = refused(random_message(api.request, version, seed), version)
        carried.update(codes(table_of(api.response, version), answer))
    assert carried == {CODE}


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_refusal_survives_a_round_trip(api: Api[Any, Any], version: int) -> None:
    for seed in SEEDS:
        request = random_message(api.request, version, seed)
        wire = encode_bytes(api.refuse(request, CODE), version)
        assert encode_bytes(decode(api.response, version, wire), version) == wire


def named(name: str, topic_id: bytes, version: int, ids_since: int) -> dict[str, Any]:
    """Return how a topic is called in a version: by name, later by id."""
    return {"topic_id": topic_id} if version >= ids_since else {"name": name}


@pytest.mark.parametrize("version", produce.PRODUCE.versions)
def test_produce_refusal_names_each_partition(version: int) -> None:
    called = named("birds", TOPIC_ID, version, ids_since=13)
    partitions = [produce.PartitionProduceData(index=index, records=b"x") for index in (4, 7)]
    topic = produce.TopicProduceData(**called, partition_data=partitions)
    request = produce.ProduceRequest(acks=-1, timeout_ms=9, topic_data=[topic])

    answer = refused(request, version)

    message = CODE.sentence if version >= 8 else None
    assert answer == produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                **called,
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=index, error_code=CODE, base_offset=-1, error_message=message
                    )
                    for index in (4, 7)
                ],
            )
        ]
    )


def fetch_of(**called: Any) -> fetch.FetchRequest:
    """Ask for partition 3 of one topic, in a session."""
    partition = fetch.FetchPartition(partition=3, fetch_offset=8, partition_max_bytes=100)
    return fetch.FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        session_id=77,
        topics=[fetch.FetchTopic(**called, partitions=[partition])],
    )


@pytest.mark.parametrize("version", range(13))
def test_fetch_refusal_by_name_names_each_partition(version: int) -> None:
    answer = refused(fetch_of(topic="birds"), version)

    refusal = fetch.PartitionData(
        partition_index=3,
        error_code=CODE,
        high_watermark=-1,
        aborted_transactions=[] if version >= 4 else None,
        records=b"",
    )
    assert answer == fetch.FetchResponse(
        error_code=CODE if version >= 7 else ErrorCode.NONE,
        session_id=77 if version >= 7 else 0,
        responses=[fetch.FetchableTopicResponse(topic="birds", partitions=[refusal])],
    )


@pytest.mark.parametrize("version", range(13, 19))
def test_fetch_by_id_is_refused_as_a_whole(version: int) -> None:
    answer = refused(fetch_of(topic_id=TOPIC_ID), version)
    assert answer == fetch.FetchResponse(error_code=CODE, session_id=77, responses=[])


def test_list_offsets_refusal_has_no_offset() -> None:
    partition = list_offsets.ListOffsetsPartition(partition_index=5, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name="birds", partitions=[partition])
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])

    for version in list_offsets.LIST_OFFSETS.versions:
        [answered] = refused(request, version).topics
        assert answered.name == "birds"
        assert answered.partitions == [
            list_offsets.ListOffsetsPartitionResponse(partition_index=5, error_code=CODE)
        ]


@pytest.mark.parametrize("version", metadata.METADATA.versions)
def test_metadata_refusal_names_each_topic(version: int) -> None:
    topic_id = TOPIC_ID if version >= 10 else bytes(16)
    topic = metadata.MetadataRequestTopic(name="birds", topic_id=topic_id)

    answer = refused(metadata.MetadataRequest(topics=[topic]), version)

    assert answer.topics == [
        metadata.MetadataResponseTopic(
            error_code=CODE, name="birds", topic_id=topic_id, partitions=[]
        )
    ]
    assert answer.brokers == []


@pytest.mark.parametrize("version", range(10, 14))
def test_metadata_refusal_by_id_has_a_name_writable_in_every_version(version: int) -> None:
    topic = metadata.MetadataRequestTopic(name=None, topic_id=TOPIC_ID)
    [answered] = refused(metadata.MetadataRequest(topics=[topic]), version).topics
    assert (answered.name, answered.topic_id) == ("", TOPIC_ID)


@pytest.mark.parametrize(("version", "code"), [(12, ErrorCode.NONE), (13, CODE)])
def test_metadata_refusal_of_all_topics_has_one_error_code(version: int, code: ErrorCode) -> None:
    answer = refused(metadata.MetadataRequest(topics=None), version)
    assert answer == metadata.MetadataResponse(error_code=code, brokers=[], topics=[])


@pytest.mark.parametrize("version", offset_commit.OFFSET_COMMIT.versions)
def test_offset_commit_refusal_names_each_partition(version: int) -> None:
    called = named("birds", TOPIC_ID, version, ids_since=10)
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=2, committed_offset=40, committed_metadata=None
    )
    topic = offset_commit.OffsetCommitRequestTopic(**called, partitions=[partition])

    answer = refused(offset_commit.OffsetCommitRequest(group_id="g", topics=[topic]), version)

    refusal = offset_commit.OffsetCommitResponsePartition(partition_index=2, error_code=CODE)
    assert answer.topics == [
        offset_commit.OffsetCommitResponseTopic(**called, partitions=[refusal])
    ]


@pytest.mark.parametrize("version", range(8))
def test_offset_fetch_refusal_of_one_group(version: int) -> None:
    topic = offset_fetch.OffsetFetchRequestTopic(name="birds", partition_indexes=[2])

    answer = refused(offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic]), version)

    refusal = offset_fetch.OffsetFetchResponsePartition(
        partition_index=2, committed_offset=-1, metadata="", error_code=CODE
    )
    assert answer == offset_fetch.OffsetFetchResponse(
        topics=[offset_fetch.OffsetFetchResponseTopic(name="birds", partitions=[refusal])],
        error_code=CODE if version >= 2 else ErrorCode.NONE,
    )


@pytest.mark.parametrize("version", range(2, 8))
def test_offset_fetch_refusal_of_all_topics(version: int) -> None:
    answer = refused(offset_fetch.OffsetFetchRequest(group_id="g", topics=None), version)
    assert answer == offset_fetch.OffsetFetchResponse(error_code=CODE)


@pytest.mark.parametrize("version", range(8, 11))
def test_offset_fetch_refusal_of_several_groups(version: int) -> None:
    called = named("birds", TOPIC_ID, version, ids_since=10)
    topic = offset_fetch.OffsetFetchRequestTopic(**called, partition_indexes=[2])
    groups = [
        offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[topic]),
        offset_fetch.OffsetFetchRequestGroup(group_id="h", topics=None),
    ]

    answer = refused(offset_fetch.OffsetFetchRequest(groups=groups), version)

    assert answer == offset_fetch.OffsetFetchResponse(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(group_id=group, topics=[], error_code=CODE)
            for group in ("g", "h")
        ]
    )


@pytest.mark.parametrize("version", range(4))
def test_find_coordinator_refusal_of_one_key(version: int) -> None:
    answer = refused(find_coordinator.FindCoordinatorRequest(key="g"), version)
    assert answer == find_coordinator.FindCoordinatorResponse(
        error_code=CODE,
        error_message=CODE.sentence if version else None,
        node_id=-1,
        host="",
        port=-1,
    )


@pytest.mark.parametrize("version", range(4, 7))
def test_find_coordinator_refusal_of_several_keys(version: int) -> None:
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g", "h"])
    answer = refused(request, version)
    assert [(c.key, c.error_code, c.node_id, c.host, c.port) for c in answer.coordinators] == [
        ("g", CODE, -1, "", -1),
        ("h", CODE, -1, "", -1),
    ]


def test_join_group_refusal_has_no_generation() -> None:
    request = join_group.JoinGroupRequest(
        group_id="g", session_timeout_ms=9, member_id="m", protocol_type="consumer", protocols=[]
    )
    for version in join_group.JOIN_GROUP.versions:
        assert refused(request, version) == join_group.JoinGroupResponse(
            error_code=CODE,
            generation_id=-1,
            protocol_name="",
            leader="",
            member_id="",
            members=[],
        )


def test_describe_groups_refusal_names_each_group() -> None:
    request = describe_groups.DescribeGroupsRequest(groups=["g", "h"])
    for version in describe_groups.DESCRIBE_GROUPS.versions:
        answer = refused(request, version)
        assert [(group.group_id, group.error_code) for group in answer.groups] == [
            ("g", CODE),
            ("h", CODE),
        ]


def test_refused_api_versions_names_the_supported_range() -> None:
    request = api_versions.ApiVersionsRequest()
    answer = refused(request, 0, ErrorCode.UNSUPPORTED_VERSION)
    own = api_versions.ApiVersion(api_key=18, min_version=0, max_version=4)
    assert answer == api_versions.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own]
    )
    assert refused(request, 0).api_keys == []


def test_unsupported_api_versions_bytes() -> None:
    answer = api_versions.refuse(api_versions.ApiVersionsRequest(), ErrorCode.UNSUPPORTED_VERSION)
    assert encode_bytes(answer, 0) == struct.pack(">hihhh", 35, 1, 18, 0, 4)


def test_create_topics_names_each_topic() -> None:
    topic = create_topics.CreatableTopic(
        name="birds", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    for version in create_topics.CREATE_TOPICS.versions:
        answer = refused(create_topics.CreateTopicsRequest(topics=[topic]), version)
        assert answer.topics == [
            create_topics.CreatableTopicResult(
                name="birds",
                error_code=CODE,
                error_message=CODE.sentence if version >= 1 else None,
                configs=[] if version >= 5 else None,
            )
        ]


@pytest.mark.parametrize("version", range(6))
def test_delete_topics_refusal_by_name(version: int) -> None:
    request = delete_topics.DeleteTopicsRequest(topic_names=["birds", "nests"], timeout_ms=9)
    answer = refused(request, version)
    assert [(topic.name, topic.error_code) for topic in answer.responses] == [
        ("birds", CODE),
        ("nests", CODE),
    ]


def test_delete_topics_refusal_by_name_and_id() -> None:
    topics = [
        delete_topics.DeleteTopicState(name="birds"),
        delete_topics.DeleteTopicState(name=None, topic_id=TOPIC_ID),
    ]
    answer = refused(delete_topics.DeleteTopicsRequest(topics=topics, timeout_ms=9), 6)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.responses] == [
        ("birds", bytes(16), CODE),
        (None, TOPIC_ID, CODE),
    ]


def test_delete_records_names_each_partition() -> None:
    partition = delete_records.DeleteRecordsPartition(partition_index=6, offset=3)
    topic = delete_records.DeleteRecordsTopic(name="birds", partitions=[partition])
    for version in delete_records.DELETE_RECORDS.versions:
        request = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=9)
        [answered] = refused(request, version).topics
        assert answered.name == "birds"
        assert answered.partitions == [
            delete_records.DeleteRecordsPartitionResult(
                partition_index=6, low_watermark=-1, error_code=CODE
            )
        ]


def test_offset_for_leader_epoch_names_each_partition() -> None:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=6, leader_epoch=3)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="birds", partitions=[partition])
    for version in offset_for_leader_epoch.OFFSET_FOR_LEADER_EPOCH.versions:
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
        [answered] = refused(request, version).topics
        assert answered.topic == "birds"
        assert answered.partitions == [
            offset_for_leader_epoch.EpochEndOffset(error_code=CODE, partition=6)
        ]


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_refusal_for_a_producer(version: int) -> None:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name="birds", partitions=[1, 2])
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t", v3_and_below_topics=[topic]
    )

    answer = refused(request, version)

    results = [
        add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=CODE
        )
        for index in (1, 2)
    ]
    assert answer == add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name="birds", results_by_partition=results
            )
        ]
    )


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_refusal_for_a_broker(version: int) -> None:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name="birds", partitions=[1, 2])
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id="t", producer_id=1, producer_epoch=1, topics=[topic]
    )
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])
    answer = refused(request, version)
    assert answer == add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=CODE)


def marker(transaction_version: int = 0) -> write_txn_markers.WritableTxnMarker:
    """End producer 11's transaction in two partitions."""
    topic = write_txn_markers.WritableTxnMarkerTopic(name="birds", partition_indexes=[1, 2])
    return write_txn_markers.WritableTxnMarker(
        producer_id=11,
        producer_epoch=3,
        transaction_result=True,
        topics=[topic],
        coordinator_epoch=5,
        transaction_version=transaction_version,
    )


def test_write_txn_markers_names_each_partition() -> None:
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker()])
    for version in write_txn_markers.WRITE_TXN_MARKERS.versions:
        [answered] = refused(request, version).markers
        [topic] = answered.topics
        assert (answered.producer_id, topic.name) == (11, "birds")
        assert [(p.partition_index, p.error_code) for p in topic.partitions] == [
            (1, CODE),
            (2, CODE),
        ]


def test_write_txn_markers_v0_bytes() -> None:
    # No other library has this version: the numbers are from Kafka's definition, by hand.
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker(transaction_version=2)])
    expected = struct.pack(">iqh?ih5siiii", 1, 11, 3, True, 1, 5, b"birds", 2, 1, 2, 5)
    assert encode_bytes(request, 0) == expected
    answer = write_txn_markers.refuse(request, CODE)
    assert encode_bytes(answer, 0) == struct.pack(
        ">iqih5siihih", 1, 11, 1, 5, b"birds", 2, 1, CODE, 2, CODE
    )


OLD_MODULES: Final = (
    "add_offsets_to_txn", "add_partitions_to_txn", "admin", "api_versions", "commit", "end_txn",
    "fetch", "find_coordinator", "group", "init_producer_id", "list_offsets", "metadata",
    "offset_for_leader_epoch", "produce", "sasl_handshake",
)  # fmt: skip
OLD_NAME: Final = re.compile(r"\w+?(Request|Response)_v\d+")
# Here kafka-python's classes name or model a field in a way of their own.
OLD_EXCEPTIONS: Final = {"DescribeGroupsResponse_v3", "MetadataResponse_v8"}


def old_classes() -> Iterator[tuple[type[Message], int, Any]]:
    """Yield our message, a version below the flexible ones, and kafka-python's class for it."""
    for module in OLD_MODULES:
        for name, old in vars(import_module(f"kafka.protocol.old.{module}")).items():
            match = OLD_NAME.fullmatch(name)
            if match is None or name in OLD_EXCEPTIONS or old.API_KEY not in APIS:
                continue
            api = APIS[old.API_KEY]
            if not api.is_flexible(old.API_VERSION):
                message = api.request if match[1] == "Request" else api.response
                yield message, old.API_VERSION, old


def in_old_order(schema: Any, value: Any) -> Any:
    """Arrange a message's values as kafka-python's schema names them."""
    if hasattr(schema, "names"):
        fields = zip(schema.names, schema.fields, strict=True)
        return [in_old_order(field, getattr(value, name)) for name, field in fields]
    if hasattr(schema, "array_of") and value is not None:
        return [in_old_order(schema.array_of, item) for item in value]
    if isinstance(value, metadata.MetadataRequestTopic):  # kafka-python writes the name bare
        return value.name
    return value


OLD: Final = [
    pytest.param(message, version, old, id=f"{message.__name__}-v{version}")
    for message, version, old in old_classes()
]


def test_lowest_versions_are_among_the_compared_ones() -> None:
    compared = {(message.KEY, version) for message, version, _ in old_classes()}
    low = {0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2}
    assert compared >= {(key, version) for key, count in low.items() for version in range(count)}
    assert len(OLD) > 200


@pytest.mark.parametrize(("message", "version", "old"), OLD)
def test_bytes_equal_those_of_kafka_python(message: type[Message], version: int, old: Any) -> None:
    for seed in SEEDS:
        ours = random_message(message, version, seed)
        theirs = old.SCHEMA.encode(in_old_order(old.SCHEMA, ours))
        assert encode_bytes(ours, version) == theirs
        assert decode(message, version, theirs) == ours
