"""DescribeProducers: the producers known to a partition, and their open transactions."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.cluster.state import producers
from rookery.cluster.state.partition import Partition
from rookery.errors import ErrorCode
from rookery.wire.messages.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@handles(DESCRIBE_PRODUCERS, mutates=False)
async def describe_producers(
    call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the active producers of partitions, as of the log's head."""
    await call.services.replica.barrier()
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(call, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(call: Call, name: str, index: int) -> PartitionResponse:
    topic = call.state.topics.by_name.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResponse(
            partition_index=index,
            error_code=code,
            error_message=code.sentence,
            active_producers=[],
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            _state(topic.partitions[index], producer_id, window)
            for producer_id, window in topic.partitions[index].producers.items()
        ],
    )


def _state(partition: Partition, producer_id: int, window: bytes) -> ProducerState:
    known = producers.describe(window)
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.time_ms,
        # The coordinator epoch of the last marker. Coordinators have no epochs here, so it is
        # always 0.
        coordinator_epoch=0 if known.has_ended else -1,
        current_txn_start_offset=partition.ongoing.get(producer_id, -1),
    )
