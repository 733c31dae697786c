"""OffsetFetch: the committed offsets of groups, as of the log's head.

Every broker answers, not only the coordinator, since all have the same state. librdkafka never asks
again after it is redirected to another broker (its issue 5586), and reads nothing until the next
rebalance.

An unknown group has no offsets, which is not an error: -1 makes the client apply its own reset
policy. A client that requires stable offsets gets a retriable error for a partition whose offset an
open transaction may change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.groups.machine import GroupMachine, gate_of
from rookery.broker.groups.requests import reach_head
from rookery.cluster.state.groups import GroupOffset
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_BATCHED: Final = 8
_BY_ID: Final = 10


@handles(
    OFFSET_FETCH,
    versions=range(1, 11),
    mutates=False,
)
async def offset_fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return the committed offsets of one group or, from version 8 on, of several groups."""
    # Offsets that were just committed through another broker must be visible.
    await reach_head(call)
    if call.version >= _BATCHED:
        codes = [await _check(call, group) for group in request.groups]
        return OffsetFetchResponse(
            groups=[
                _group(call, request, group, code)
                for group, code in zip(request.groups, codes, strict=True)
            ]
        )
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)
    answer = _group(call, request, asked, await _check(call, asked))
    if answer.error_code is not ErrorCode.NONE:
        return OFFSET_FETCH.refuse(request, answer.error_code)
    return OffsetFetchResponse(topics=answer.topics)


async def _check(call: Call, asked: OffsetFetchRequestGroup) -> ErrorCode:
    """Check the member's epoch if the request has one; other clients are always allowed."""
    group_id, groups = asked.group_id, call.services.groups
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    if asked.member_id is None and asked.member_epoch < 0:
        return ErrorCode.NONE
    if not groups.is_ours(group_id):
        return _check_kept(call, asked)

    try:
        return await groups.run(group_id, lambda seat: _check_member(asked, seat.machine))
    except ApiError as error:
        return error.code


def _check_kept(call: Call, asked: OffsetFetchRequestGroup) -> ErrorCode:
    """Check a member against the stored group state, which covers all that members were sent."""
    group = call.state.groups.by_id.get(asked.group_id)
    if group is None:
        return ErrorCode.NONE  # it has no offsets
    return _check_member(asked, call.services.groups.machine(group))


def _check_member(asked: OffsetFetchRequestGroup, machine: GroupMachine | None) -> ErrorCode:
    """Check whether a member can read offsets; a group that commits none allows everyone."""
    gate = gate_of(machine)
    return ErrorCode.NONE if gate is None else gate.check_fetch(asked.member_id, asked.member_epoch)


def _group(
    call: Call, request: OffsetFetchRequest, asked: OffsetFetchRequestGroup, code: ErrorCode
) -> OffsetFetchResponseGroup:
    group_id = asked.group_id
    if code is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=code)
    look = _Look(call, group_id, request.require_stable)
    topics = look.all() if asked.topics is None else [look.topic(topic) for topic in asked.topics]
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


class _Look:
    """Looks up the offsets of one group."""

    def __init__(self, call: Call, group_id: str, require_stable: bool) -> None:  # noqa: FBT001 (the request's own)
        self._call = call
        self._id = group_id
        self._group = call.state.groups.by_id.get(group_id)
        self._require_stable = require_stable

    def all(self) -> list[OffsetFetchResponseTopic]:
        """Return all offsets of the group."""
        topics = self._call.state.topics
        offsets = self._group.offsets if self._group is not None else {}
        known = ((topics.by_id.get(topic_id), indexes) for topic_id, indexes in offsets.items())
        return [self._answer(topic, indexes) for topic, indexes in known if topic is not None]

    def topic(self, asked: OffsetFetchRequestTopic) -> OffsetFetchResponseTopic:
        """Return the offsets of the requested partitions of a topic."""
        topics = self._call.state.topics
        by_id = self._call.version >= _BY_ID
        topic = topics.by_id.get(asked.topic_id) if by_id else topics.by_name.get(asked.name)
        if topic is not None:
            return self._answer(topic, asked.partition_indexes)
        # An unknown name is a topic without offsets; an unknown id is an error.
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.NONE
        return OffsetFetchResponseTopic(
            name=asked.name,
            topic_id=asked.topic_id,
            partitions=[_partition(index, None, code) for index in asked.partition_indexes],
        )

    def _answer(self, topic: Topic, indexes: Iterable[int]) -> OffsetFetchResponseTopic:
        return OffsetFetchResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            partitions=[self._offset(topic, index) for index in indexes],
        )

    def _offset(self, topic: Topic, index: int) -> OffsetFetchResponsePartition:
        transactions = self._call.state.transactions
        if self._require_stable and transactions.holds(self._id, topic.id, index):
            return _partition(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return _partition(index, self._group.offset(topic.id, index) if self._group else None)


def _partition(
    index: int, committed: GroupOffset | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=-1 if committed is None else committed.offset,
        committed_leader_epoch=-1 if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=code,
    )
