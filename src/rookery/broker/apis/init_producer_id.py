"""InitProducerId: assigns the producer id that makes a producer's batches idempotent.

Without a transactional id, each call returns a new id at epoch 0. If the producer sends its current
id and epoch, it gets the same id at the next epoch (KIP-360). Epochs are not stored here:
partitions learn them from the batches.

With a transactional id, the cluster log decides. Initialising the id fences every earlier producer
that used it, and the same event aborts its open transaction.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.transactions import check_id, convert_error, decide
from rookery.cluster.events.txnevents import TransactionInitialised
from rookery.errors import ApiError, Error, ErrorCode
from rookery.wire.messages.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_LAST_EPOCH: Final = 2**15 - 2
_KNOWS_FENCED: Final = 4


@handles(
    INIT_PRODUCER_ID,
    versions=range(6),
    mutates=True,
)
async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Assign a producer id, or raise the epoch of an existing one."""
    producer_id, epoch = request.producer_id, request.producer_epoch
    if (producer_id < 0) != (epoch < 0):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"producer id {producer_id} with epoch {epoch}: name both or neither",
        )
    if request.transactional_id is not None:
        return await _initialise(call, request)
    # An id that was never handed out will belong to another producer.
    if 0 <= producer_id < call.state.next_producer_id and epoch < _LAST_EPOCH:
        return InitProducerIdResponse(
            error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch + 1
        )
    try:
        producer_id = await call.services.producer_ids.take()
    except Error as error:
        # Kafka returns this error while it waits for ids. This producer has no coordinator to look
        # up.
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


async def _initialise(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Make the producer the only one that can write under the transactional id."""
    timeout_ms, longest_ms = (
        request.transaction_timeout_ms,
        call.services.settings.transaction_max_timeout_ms,
    )
    if not 0 < timeout_ms <= longest_ms:
        raise ApiError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"{timeout_ms} ms; transaction.max.timeout.ms is {longest_ms}",
        )
    event = TransactionInitialised(
        transactional_id=check_id(request.transactional_id),
        timeout_ms=timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    try:
        writer = await decide(call, event)
    except ApiError as error:
        raise convert_error(error, knows_fenced=call.version >= _KNOWS_FENCED) from error
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=writer.producer_id, producer_epoch=writer.epoch
    )
