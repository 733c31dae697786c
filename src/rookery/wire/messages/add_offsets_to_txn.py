"""AddOffsetsToTxn (key 25): a transaction is about to commit a group's offsets (KIP-98).

The transaction coordinator notes the group's partition of `__consumer_offsets`; the offsets
themselves follow in TxnOffsetCommit, to the group's coordinator.

Versions:
    1 a throttled client is answered at once and waits by itself (KIP-219).
    2 a fenced producer gets PRODUCER_FENCED (KIP-588).
    3 flexible.
    4 the client knows TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    GroupId,
    Message,
    ProducerEpoch,
    ProducerId,
    TransactionalId,
    i32,
)


class AddOffsetsToTxnRequest(Message):
    """The transaction, and the group whose offsets it takes in."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    group_id: GroupId


class AddOffsetsToTxnResponse(Message):
    """Whether the transaction has the group in it."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode


def refuse(request: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    """Answer with the code."""
    return AddOffsetsToTxnResponse(error_code=code)


ADD_OFFSETS_TO_TXN = Api(
    key=25,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
    versions=range(5),
    flexible=3,
    refuse=refuse,
)
