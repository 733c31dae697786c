"""WriteTxnMarkers: ends transactions that a producer has left open in partitions.

No coordinator needs it here: the end of a transaction and its markers are one event. Tools use it
to end a hanging transaction that no producer owns. It does not end a transaction that has an owner,
since its other partitions could end differently and the transaction would not be atomic.
"""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.decisions import record_changes
from rookery.broker.transactions import decide, parts
from rookery.cluster.events.txnevents import MarkersWritten, TransactionPlace
from rookery.errors import ErrorCode
from rookery.service.audit.changes import end_of_transaction
from rookery.wire.messages.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_Codes = dict[tuple[bytes, int], ErrorCode]


@handles(
    WRITE_TXN_MARKERS,
    versions=range(1, 3),
    mutates=True,
)
async def write_txn_markers(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """End hanging transactions in partitions; each partition has its own result."""
    await call.services.replica.barrier()
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id, topics=await _answer(call, marker)
            )
            for marker in request.markers
        ]
    )


async def _answer(call: Call, marker: WritableTxnMarker) -> list[WritableTxnMarkerTopicResult]:
    codes = await _write(call, marker)
    results = []
    for topic in marker.topics:
        known = call.state.topics.by_name.get(topic.name)
        topic_id = known.id if known is not None else b""
        results.append(
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=codes.get(
                            (topic_id, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
    for result in results:
        given = [part.error_code for part in result.partitions]
        code = ErrorCode.NONE if ErrorCode.NONE in given else max(given, default=ErrorCode.NONE)
        record_changes(call, [end_of_transaction(result.name)], code)
    return results


async def _write(call: Call, marker: WritableTxnMarker) -> _Codes:
    places = [
        TransactionPlace(topic_id=known.id, partition=index)
        for topic in marker.topics
        if (known := call.state.topics.by_name.get(topic.name)) is not None
        for index in topic.partition_indexes
    ]
    codes: _Codes = {}
    for some in parts(places):
        event = MarkersWritten(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_commit=marker.transaction_result,
            places=some,
        )
        for place, code in zip(some, await decide(call, event), strict=True):
            codes[place.topic_id, place.partition] = code
    return codes
