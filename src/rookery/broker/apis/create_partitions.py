"""CreatePartitions: adds partitions to topics; the number of partitions never decreases."""

from __future__ import annotations

from collections import Counter
from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide, take_mutations
from rookery.broker.topics import MAX_PARTITIONS, check_partitions
from rookery.cluster.events.topicevents import PartitionsAdded
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_STRICT_SINCE: Final = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


@handles(
    CREATE_PARTITIONS,
    versions=range(4),
    mutates=True,
)
async def create_partitions(
    call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to topics; each topic succeeds or fails on its own."""
    await call.services.replica.barrier()
    counts = Counter(topic.name for topic in request.topics)
    results: list[CreatePartitionsTopicResult] = []
    plans: list[tuple[CreatePartitionsTopicResult, PartitionsAdded]] = []
    left = MAX_PARTITIONS
    for name, asked in {topic.name: topic for topic in request.topics}.items():
        result = CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE)
        results.append(result)
        try:
            topic = _check(call, asked, counts[name])
            added = asked.count - len(topic.partitions)
            left = _take(left, added)
            take_mutations(call, added, strict_since=_STRICT_SINCE)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.text
        else:
            plans.append((result, PartitionsAdded(topic_id=topic.id, partitions=asked.count)))
    if not request.validate_only:
        await _grow(call, plans, request.timeout_ms)
    return CreatePartitionsResponse(results=results)


def _take(left: int, added: int) -> int:
    if added > left:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"one request may bring {MAX_PARTITIONS} partitions at most"
        )
    return left - added


async def _grow(
    call: Call, plans: list[tuple[CreatePartitionsTopicResult, PartitionsAdded]], timeout_ms: int
) -> None:
    outcomes = await decide(call, [event for _, event in plans], timeout_ms)
    for (result, _), outcome in zip(plans, outcomes, strict=True):
        result.error_code = outcome.error
        if outcome.error is not ErrorCode.NONE:
            result.error_message = outcome.error.sentence


def _check(call: Call, asked: CreatePartitionsTopic, times: int) -> Topic:
    if times > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    topic = call.state.topics.by_name.get(asked.name)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{asked.name}' does not exist."
        )
    now = len(topic.partitions)
    if asked.count <= now:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {now} partition(s); {asked.count} would not be "
            "an increase.",
        )
    check_partitions(asked.count)
    _check_assignments(call, asked, asked.count - now, topic.replication_factor)
    return topic


def _check_assignments(call: Call, asked: CreatePartitionsTopic, added: int, factor: int) -> None:
    if asked.assignments is None:
        return
    if len(asked.assignments) != added:
        raise _bad_assignment(f"{added} partitions are new, {len(asked.assignments)} are assigned")
    for assignment in asked.assignments:
        if len(set(assignment.broker_ids)) < len(assignment.broker_ids):
            raise _bad_assignment("a partition's brokers must be named once each")
        unknown = [node for node in assignment.broker_ids if node not in call.state.brokers.by_node]
        if unknown:
            raise _bad_assignment(f"there is no broker {unknown[0]}")
        # The topic's replication factor can be higher than the number of brokers.
        if len(assignment.broker_ids) != min(factor, len(call.state.brokers.by_node)):
            raise _bad_assignment(f"the topic has {factor} replicas of each partition")


def _bad_assignment(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
