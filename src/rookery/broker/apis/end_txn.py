"""EndTxn: a producer commits or aborts its transaction.

Markers and offsets are part of the same event, so everything is visible when the response is sent.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.transactions import check_id, convert_error, decide
from rookery.cluster.events.txnevents import TransactionEnded
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.end_txn import END_TXN, EndTxnRequest, EndTxnResponse

_KNOWS_FENCED: Final = 2
_RAISES_EPOCH: Final = 5


@handles(END_TXN, mutates=True)
async def end_txn(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort the transaction; from version 5 on, return the next producer id and epoch."""
    event = TransactionEnded(
        transactional_id=check_id(request.transactional_id),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        raises_epoch=call.version >= _RAISES_EPOCH,
    )
    try:
        writer = await decide(call, event)
    except ApiError as error:
        raise convert_error(error, knows_fenced=call.version >= _KNOWS_FENCED) from error
    return EndTxnResponse(
        error_code=ErrorCode.NONE, producer_id=writer.producer_id, producer_epoch=writer.epoch
    )
