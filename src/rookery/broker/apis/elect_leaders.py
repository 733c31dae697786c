"""ElectLeaders: no election is needed, since every partition is led by its preferred broker.

A leader is a hint for clients on how to spread their requests. It is chosen again whenever a broker
joins or leaves. No data can be lost by that, so no election is needed, clean or unclean.
"""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

_PREFERRED, _UNCLEAN = 0, 1


@handles(ELECT_LEADERS, versions=range(3), mutates=False)
async def elect_leaders(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer that no election is needed for each partition named; run none."""
    if request.election_type not in {_PREFERRED, _UNCLEAN}:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"there is no election of type {request.election_type}"
        )
    await call.services.replica.barrier()
    if request.topic_partitions is None:
        # Kafka names all topics, and omits the partitions that need no election.
        named = [TopicPartitions(topic=name, partitions=[]) for name in call.state.topics.by_name]
    else:
        named = request.topic_partitions
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[_result(call, asked.topic, index) for index in asked.partitions],
            )
            for asked in named
        ],
    )


def _result(call: Call, name: str, index: int) -> PartitionResult:
    topic = call.state.topics.by_name.get(name)
    if topic is None:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    elif not 0 <= index < len(topic.partitions):
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        text = code.sentence
    return PartitionResult(partition_id=index, error_code=code, error_message=text)
