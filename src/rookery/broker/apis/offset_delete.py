"""OffsetDelete: deletes a group's offsets in topics it no longer subscribes to (KIP-496)."""

from __future__ import annotations

from typing import NamedTuple

from rookery.broker.call import Call, handles
from rookery.broker.decisions import record_changes
from rookery.broker.groups.machine import CommitGate
from rookery.broker.groups.offsets import delete
from rookery.broker.groups.requests import check_group_id, reach_head
from rookery.cluster.events.groupevents import OffsetPlace
from rookery.errors import Error, ErrorCode, code_of
from rookery.service.audit.changes import deletion_of_group
from rookery.wire.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class _RequestedPartition(NamedTuple):
    """One partition: its entry in the response, and its identity in the cluster log."""

    answer: OffsetDeleteResponsePartition
    place: OffsetPlace


@handles(
    OFFSET_DELETE,
    mutates=True,
    is_served_read_only=True,
)
async def offset_delete(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete a group's offsets in topics to which no member subscribes."""
    check_group_id(request.group_id)
    await reach_head(call)
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[])
    asked: list[_RequestedPartition] = []
    for topic in request.topics:
        indexes = [part.partition_index for part in topic.partitions]
        rows = [_ask(call, topic.name, index) for index in indexes]
        response.topics.append(
            OffsetDeleteResponseTopic(name=topic.name, partitions=[row.answer for row in rows])
        )
        asked += [row for row in rows if row.answer.error_code is ErrorCode.NONE]

    def is_in_use(gate: CommitGate, place: OffsetPlace) -> bool:
        topic = call.state.topics.by_id.get(place.topic_id)
        return topic is not None and gate.subscribes(topic.name)

    services = call.services
    places = [row.place for row in asked]
    change = deletion_of_group(request.group_id)
    try:
        codes = await delete(services.groups, services.replica, request.group_id, places, is_in_use)
    except Error as error:
        record_changes(call, [change], code_of(error))
        raise
    record_changes(call, [change], ErrorCode.NONE)
    for row, code in zip(asked, codes, strict=True):
        row.answer.error_code = code
    return response


def _ask(call: Call, name: str, index: int) -> _RequestedPartition:
    topic = call.state.topics.by_name.get(name)
    is_known = topic is not None and 0 <= index < len(topic.partitions)
    code = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic_id = topic.id if topic is not None else bytes(16)
    return _RequestedPartition(
        OffsetDeleteResponsePartition(partition_index=index, error_code=code),
        OffsetPlace(topic_id=topic_id, partition=index),
    )
