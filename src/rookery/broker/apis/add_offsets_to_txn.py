"""AddOffsetsToTxn: announces that a transaction is about to commit a group's offsets."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import check_group_id
from rookery.broker.transactions import check_id, convert_error, decide
from rookery.cluster.events.txnevents import OffsetsAddedToTransaction
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.add_offsets_to_txn import (
    ADD_OFFSETS_TO_TXN,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

_KNOWS_FENCED: Final = 2


@handles(
    ADD_OFFSETS_TO_TXN,
    mutates=True,
)
async def add_offsets_to_txn(
    call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a consumer group to the transaction so that its offsets can be committed with it."""
    check_group_id(request.group_id)
    event = OffsetsAddedToTransaction(
        transactional_id=check_id(request.transactional_id),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
    )
    try:
        await decide(call, event)
    except ApiError as error:
        raise convert_error(error, knows_fenced=call.version >= _KNOWS_FENCED) from error
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)
