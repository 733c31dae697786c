"""Requests about the offsets of one partition: ListOffsets and DeleteRecords."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.broker.raw import Raw


async def find(
    client: Raw,
    topic: str,
    *times: int,
    version: int = 11,
    epoch: int = -1,
    partition: int = 0,
    isolation_level: int = 0,
) -> list[ListOffsetsPartitionResponse]:
    """Ask for several times, one after the other."""
    places = []
    for time_ms in times:
        part = ListOffsetsPartition(
            partition_index=partition, timestamp=time_ms, current_leader_epoch=epoch
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[part])],
        )
        response = await client.ask(LIST_OFFSETS, version, request)
        places += response.topics[0].partitions
    return places


async def delete(
    client: Raw, topic: str, offset: int, *, partition: int = 0, version: int = 2
) -> tuple[ErrorCode, int]:
    """Delete the records below an offset; return the code and the new log start."""
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=10_000
    )
    response = await client.ask(DELETE_RECORDS, version, request)
    [answer] = response.topics[0].partitions
    return answer.error_code, answer.low_watermark
