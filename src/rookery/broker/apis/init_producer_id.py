"""InitProducerId: an id under which a producer's batches are told apart, for idempotence.

Without a transactional id every call gives a new id at epoch 0, or, if the producer names the id
and epoch that it has, the same id at the next epoch (KIP-360). Epochs are not remembered here:
partitions learn them from the batches themselves.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call
from rookery.broker.registry import handles
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_LAST_EPOCH: Final = 2**15 - 2


@handles(INIT_PRODUCER_ID, versions=range(6))
async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Hand out an id, or raise the epoch of one."""
    if request.transactional_id is not None:
        raise ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served by this broker"
        )
    producer_id, epoch = request.producer_id, request.producer_epoch
    if (producer_id < 0) != (epoch < 0):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"producer id {producer_id} with epoch {epoch}: name both or neither",
        )
    # An id that was never handed out is somebody else's to come.
    if 0 <= producer_id < call.state.next_producer_id and epoch < _LAST_EPOCH:
        return InitProducerIdResponse(
            error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch + 1
        )
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=await call.services.producer_ids.take(),
        producer_epoch=0,
    )
