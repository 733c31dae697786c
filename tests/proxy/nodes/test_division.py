"""A request in parts, answered part by part, gives the answer to the whole."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ErrorCode
from rookery.proxy.nodes.division import divide, join_every
from rookery.wire.message import GroupId, PartitionId, TopicId, TopicName
from rookery.wire.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from rookery.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

names = st.text("abc", min_size=1, max_size=3)
indexes = st.sets(st.integers(0, 20), max_size=6).map(sorted)
assignments = st.dictionaries(names, indexes, max_size=5)
seeds = st.integers(0, 1000)


def owner(seed: int, *parts: object) -> int:
    return hash((seed, *map(str, parts))) % 4


@given(topics=assignments, seed=seeds)
def test_lookups_of_offsets(topics: dict[str, list[int]], seed: int) -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=-1) for index in rows
                ],
            )
            for name, rows in topics.items()
        ],
    )
    division = divide(
        LIST_OFFSETS, 7, request,
        lambda name, topic_id, index: owner(seed, name, index),
        TopicName, TopicId, PartitionId,
        default=-1,
    )  # fmt: skip

    answers = [LIST_OFFSETS.refuse_items(part, ErrorCode(9)) for _, part in division.parts]

    assert division.join(answers) == LIST_OFFSETS.refuse_items(request, ErrorCode(9))
    for target, part in division.parts:
        for topic in part.topics:
            for row in topic.partitions:
                assert target == owner(seed, topic.name, row.partition_index)


@given(topics=assignments, seed=seeds)
def test_batches_by_topic_id(topics: dict[str, list[int]], seed: int) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(
                topic_id=name.encode().ljust(16, b"."),
                partition_data=[PartitionProduceData(index=index, records=b"") for index in rows],
            )
            for name, rows in topics.items()
        ],
    )
    division = divide(
        PRODUCE, 13, request,
        lambda name, topic_id, index: owner(seed, topic_id, index),
        TopicName, TopicId, PartitionId,
        default=-1,
    )  # fmt: skip

    parts: list[Any] = [part for _, part in division.parts]
    sent = [
        (topic.topic_id, row.index)
        for part in parts
        for topic in part.topic_data
        for row in topic.partition_data
    ]
    asked = [
        (topic.topic_id, row.index) for topic in request.topic_data for row in topic.partition_data
    ]
    assert sorted(sent) == sorted(asked)
    answers = [PRODUCE.refuse_items(part, ErrorCode.NONE) for part in parts]
    assert division.join(answers) == PRODUCE.refuse_items(request, ErrorCode.NONE)


@given(groups=st.lists(names, unique=True, max_size=8), seed=seeds)
def test_groups(groups: list[str], seed: int) -> None:
    request = DeleteGroupsRequest(groups_names=groups)
    division = divide(
        DELETE_GROUPS, 2, request, lambda group: owner(seed, group), GroupId, default=-1
    )

    answers = [DELETE_GROUPS.refuse_items(part, ErrorCode.NONE) for _, part in division.parts]

    assert division.join(answers) == DELETE_GROUPS.refuse_items(request, ErrorCode.NONE)
    assert len(division.parts) == max(1, len({owner(seed, group) for group in groups}))


def test_request_without_items_goes_to_the_default() -> None:
    request = DeleteGroupsRequest(groups_names=[])

    division = divide(DELETE_GROUPS, 2, request, lambda group: 1, GroupId, default=-1)

    assert division.parts == [(-1, request)]


def test_answers_of_every_broker_are_concatenated() -> None:
    def answer(name: str, throttle_ms: int, code: ErrorCode) -> ListGroupsResponse:
        group = ListedGroup(group_id=name, protocol_type="consumer")
        return ListGroupsResponse(throttle_time_ms=throttle_ms, error_code=code, groups=[group])

    joined = join_every(
        [
            answer("a", 3, ErrorCode.NONE),
            answer("b", 7, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            answer("c", 0, ErrorCode.NOT_COORDINATOR),
        ]
    )

    assert [group.group_id for group in joined.groups] == ["a", "b", "c"]
    assert joined.throttle_time_ms == 7
    assert joined.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
