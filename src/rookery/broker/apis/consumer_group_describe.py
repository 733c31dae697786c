"""ConsumerGroupDescribe: the state, epochs and members of consumer groups (KIP-848)."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine, ConsumerMemberDescription
from rookery.broker.groups.requests import find_machine, reach_head
from rookery.broker.operations import NOT_ASKED
from rookery.errors import ApiError, ErrorCode
from rookery.security.access import Operation
from rookery.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
    refuse_group,
)

_OPERATIONS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_ON_GROUP: Final = sum(1 << operation for operation in _OPERATIONS)
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


@handles(
    CONSUMER_GROUP_DESCRIBE,
    versions=range(2),
    mutates=False,
)
async def consumer_group_describe(
    call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe consumer groups with their members and assignments, as of the log's head."""
    await reach_head(call)
    groups = [_describe(call, group_id) for group_id in request.group_ids]
    for group in groups:
        asked = request.include_authorized_operations and group.error_code is ErrorCode.NONE
        group.authorized_operations = _ON_GROUP if asked else NOT_ASKED
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(call: Call, group_id: str) -> DescribedGroup:
    try:
        machine = find_machine(call, group_id, ConsumerGroupMachine)
    except ApiError as error:
        return refuse_group(group_id, error.code, error.text or error.code.sentence)
    if machine is None:
        text = f"{group_id!r} is not a consumer group"
        return refuse_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text)
    description = machine.description()
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=description.state,
        group_epoch=description.epoch,
        assignment_epoch=description.target_epoch,
        assignor_name=description.assignor,
        members=[_member(member, description.topic_ids) for member in description.members],
    )


def _member(description: ConsumerMemberDescription, topic_ids: dict[str, bytes]) -> Member:
    member = description.member
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.names),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(description.assigned, topic_ids),
        target_assignment=_assignment(description.target, topic_ids),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(by_name: dict[str, list[int]], topic_ids: dict[str, bytes]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_ids[name], topic_name=name, partitions=partitions)
            for name, partitions in by_name.items()
        ]
    )
