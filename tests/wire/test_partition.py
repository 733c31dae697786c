"""Requests cut by topic, partition, group or resource, and answers joined again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rookery.errors import ErrorCode, ProtocolError
from rookery.wire.message import (
    ZERO_UUID,
    BrokerId,
    GroupId,
    PartitionId,
    TopicId,
    TopicName,
    TransactionalId,
)
from rookery.wire.messages.create_acls import (
    CREATE_ACLS,
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from rookery.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from rookery.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from rookery.wire.messages.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
)
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from rookery.wire.messages.offset_commit import OFFSET_COMMIT, OffsetCommitRequest
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from rookery.wire.partition import asks_for_all, cut, join

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ID = bytes(range(16))


def produce(topics: dict[str, list[int]]) -> ProduceRequest:
    data = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=index, records=b"") for index in indexes],
        )
        for name, indexes in topics.items()
    ]
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=data)


def named(request: ProduceRequest | None) -> dict[str, list[int]] | None:
    if request is None:
        return None
    return {
        topic.name: [partition.index for partition in topic.partition_data]
        for topic in request.topic_data
    }


def test_cut_by_topic_keeps_its_partitions_together() -> None:
    request = produce({"a": [0, 1], "b": [2]})
    halves = cut(PRODUCE, 9, request, lambda name: name == "a", TopicName)
    assert (named(halves.kept), named(halves.denied)) == ({"a": [0, 1]}, {"b": [2]})
    assert halves.kept is not None
    assert halves.kept.topic_data[0] is request.topic_data[0]
    assert halves.kept.timeout_ms == 1


def test_cut_by_partition_divides_topics() -> None:
    request = produce({"a": [0, 1, 2], "b": [2]})
    halves = cut(PRODUCE, 9, request, lambda name, index: index == 1, TopicName, PartitionId)
    assert (named(halves.kept), named(halves.denied)) == ({"a": [1]}, {"a": [0, 2], "b": [2]})
    assert named(request) == {"a": [0, 1, 2], "b": [2]}


def test_cut_without_kinds_passes_the_structures() -> None:
    request = produce({"a": [0, 1]})
    seen: list[tuple[str, int]] = []

    def keep(topic: TopicProduceData, partition: PartitionProduceData) -> bool:
        seen.append((topic.name, partition.index))
        return True

    assert cut(PRODUCE, 9, request, keep)[2:] == (request, None)
    assert seen == [("a", 0), ("a", 1)]


def test_joined_topics_are_complete_and_in_request_order() -> None:
    request = produce({"b": [3, 2, 1], "a": [0]})
    halves = cut(PRODUCE, 9, request, lambda index: index % 2 == 0, PartitionId)
    assert halves.kept is not None
    assert halves.denied is not None
    answer = join(
        halves,
        PRODUCE.refuse_items(halves.kept, ErrorCode.NONE),
        PRODUCE.refuse_items(halves.denied, DENIED),
    )
    assert [
        (topic.name, [(part.index, part.error_code.name) for part in topic.partition_responses])
        for topic in answer.responses
    ] == [("b", [(3, DENIED.name), (2, "NONE"), (1, DENIED.name)]), ("a", [(0, "NONE")])]


def noting(seen: list[tuple[Any, ...]]) -> Callable[..., bool]:
    """Return a predicate that keeps everything and notes its arguments."""

    def keep(*values: Any) -> bool:
        seen.append(values)
        return True

    return keep


def test_topic_requested_by_id_has_no_name() -> None:
    topic = FetchTopic(
        topic_id=ID,
        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
    seen: list[tuple[Any, ...]] = []
    cut(FETCH, 13, request, noting(seen), TopicName, TopicId)
    assert seen == [(None, ID)]


def test_resources_have_the_kind_of_their_type() -> None:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name)
            for kind, name in ((2, "t"), (4, "7"), (32, "g"))
        ]
    )
    seen: list[tuple[Any, ...]] = []
    cut(DESCRIBE_CONFIGS, 4, request, noting(seen), TopicName, BrokerId, GroupId)
    assert seen == [("t", None, None), (None, 7, None), (None, None, "g")]


def test_coordinator_keys_have_the_kind_of_their_type() -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"])
    halves = cut(FIND_COORDINATOR, 6, request, lambda key: key == "x", TransactionalId)
    assert halves.kept is not None
    assert halves.denied is not None
    assert (halves.kept.coordinator_keys, halves.denied.coordinator_keys) == (["x"], ["y"])
    assert halves.kept.key_type == 1


def test_name_in_the_request_itself_decides_for_the_whole_request() -> None:
    request = OffsetCommitRequest(group_id="g", topics=[])
    assert cut(OFFSET_COMMIT, 8, request, lambda group: group == "g", GroupId).denied is None
    assert cut(OFFSET_COMMIT, 8, request, lambda group: group != "g", GroupId).kept is None


def test_groups_can_be_one_field_or_a_list() -> None:
    old = OffsetFetchRequest(group_id="g", topics=None)
    assert cut(OFFSET_FETCH, 7, old, lambda group: group == "g", GroupId).kept is old
    new = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "h")]
    )
    halves = cut(OFFSET_FETCH, 8, new, lambda group: group == "g", GroupId)
    assert halves.kept is not None
    assert halves.denied is not None
    assert [group.group_id for group in halves.kept.groups] == ["g"]
    answer = join(
        halves,
        OFFSET_FETCH.refuse(halves.kept, ErrorCode.NONE),
        OFFSET_FETCH.refuse(halves.denied, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    )
    assert [(group.group_id, group.error_code.value) for group in answer.groups] == [
        ("g", 0),
        ("h", 30),
    ]


def test_topics_of_one_group_are_refused_without_refusing_the_group() -> None:
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in ("a", "b")]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    halves = cut(OFFSET_FETCH, 8, request, lambda name: name == "b", TopicName)
    assert halves.kept is not None
    assert halves.denied is not None
    answer = join(
        halves,
        OFFSET_FETCH.refuse_items(halves.kept, ErrorCode.NONE),
        OFFSET_FETCH.refuse_items(halves.denied, DENIED),
    )
    [group] = answer.groups
    assert group.error_code is ErrorCode.NONE
    assert [(topic.name, topic.partitions[0].error_code) for topic in group.topics] == [
        ("a", DENIED),
        ("b", ErrorCode.NONE),
    ]


@pytest.mark.parametrize(
    ("version", "request_"),
    [
        (12, MetadataRequest(topics=None)),
        (0, MetadataRequest(topics=[])),
    ],
)
def test_request_for_everything_cannot_be_cut(version: int, request_: MetadataRequest) -> None:
    assert asks_for_all(METADATA, version, request_)
    with pytest.raises(ValueError, match="name it before the cut"):
        cut(METADATA, version, request_, lambda name: True, TopicName)


def test_an_empty_list_asks_for_all_or_for_nothing() -> None:
    assert not asks_for_all(METADATA, 12, MetadataRequest(topics=[]))
    assert asks_for_all(DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest(topics=[]))


def test_request_for_all_topics_of_one_group_cannot_be_cut() -> None:
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    request = OffsetFetchRequest(groups=[group])
    assert asks_for_all(OFFSET_FETCH, 8, request)
    with pytest.raises(ValueError, match=r"OffsetFetchRequestGroup\.topics asks for everything"):
        cut(OFFSET_FETCH, 8, request, lambda name: True, TopicName)


def test_kind_that_a_request_cannot_name_is_an_error() -> None:
    assert not asks_for_all(FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g"))
    with pytest.raises(TypeError, match="FindCoordinator v3 has no list that names an item"):
        cut(FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g"), lambda key: True)
    with pytest.raises(TypeError, match="DescribeGroups v5 has no list that names a topic name"):
        cut(DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g"]), lambda name: True, TopicName)


def acls(*names: str) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2,
                resource_name=name,
                principal="User:a",
                host="*",
                operation=3,
                permission_type=3,
            )
            for name in names
        ]
    )


def test_answers_without_names_are_matched_by_request_position() -> None:
    halves = cut(CREATE_ACLS, 3, acls("a", "b", "a", "c"), lambda name: name != "a", TopicName)
    assert halves.kept is not None
    assert halves.denied is not None
    answer = join(
        halves,
        CREATE_ACLS.refuse_items(halves.kept, ErrorCode.NONE),
        CREATE_ACLS.refuse_items(halves.denied, DENIED),
    )
    assert [result.error_code.value for result in answer.results] == [29, 0, 29, 0]


def test_answer_too_short_for_its_half_is_refused() -> None:
    halves = cut(CREATE_ACLS, 3, acls("a", "b", "c"), lambda name: name == "a", TopicName)
    single = CreateAclsResponse(results=[AclCreationResult(error_code=ErrorCode.NONE)])
    with pytest.raises(ProtocolError, match="1 and 1 results came for 1 and 2 elements"):
        join(halves, single, single)


def metadata(*topics: str, **values: Any) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=ErrorCode.NONE, name=name, partitions=[])
            for name in topics
        ],
        **{"brokers": []} | values,
    )


def broker(node: int, host: str) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=node, host=host, port=9092)


def test_remaining_fields_of_the_answers_are_merged() -> None:
    topics = [MetadataRequestTopic(name=name) for name in "abc"]
    halves = cut(METADATA, 12, MetadataRequest(topics=topics), lambda n: n == "b", TopicName)
    answer = join(
        halves,
        metadata("b", brokers=[broker(1, "x")], cluster_id="one", throttle_time_ms=5),
        metadata(
            "c",
            "a",
            brokers=[broker(1, "y"), broker(2, "z")],
            cluster_id="two",
            controller_id=2,
            throttle_time_ms=9,
            error_code=ErrorCode.REBOOTSTRAP_REQUIRED,
        ),
    )
    assert [topic.name for topic in answer.topics] == ["a", "b", "c"]
    assert [(node.node_id, node.host) for node in answer.brokers] == [(1, "x"), (2, "z")]
    assert (answer.cluster_id, answer.controller_id, answer.throttle_time_ms) == ("one", 2, 9)
    assert answer.error_code is ErrorCode.REBOOTSTRAP_REQUIRED


def test_three_parts_are_cut_in_two_steps() -> None:
    topics = [MetadataRequestTopic(name=name, topic_id=ZERO_UUID) for name in "cab"]
    outer = cut(METADATA, 12, MetadataRequest(topics=topics), lambda n: n == "a", TopicName)
    assert outer.denied is not None
    inner = cut(METADATA, 12, outer.denied, lambda n: n == "b", TopicName)
    answer = join(outer, metadata("a"), join(inner, metadata("b"), metadata("c")))
    assert [topic.name for topic in answer.topics] == ["c", "a", "b"]


def test_single_answer_is_returned_unchanged() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    halves = cut(METADATA, 12, request, lambda name: True, TopicName)
    answer = metadata("a")
    assert join(halves, answer, None) is answer
    assert join(halves, None, answer) is answer
    with pytest.raises(TypeError, match="no answer to either half"):
        join(halves, None, None)
