"""EndTxn (key 26): a producer commits its transaction or aborts it (KIP-98).

Versions:
    1 a throttled client is answered at once and waits by itself (KIP-219).
    2 a fenced producer gets PRODUCER_FENCED (KIP-588).
    3 flexible.
    4 the client knows TRANSACTION_ABORTABLE (KIP-890).
    5 each transaction gets an epoch of its own: the answer has the next one (KIP-890).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    Message,
    ProducerEpoch,
    ProducerId,
    TransactionalId,
    field,
    i32,
)


class EndTxnRequest(Message):
    """How the transaction ends."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool  # False aborts


class EndTxnResponse(Message):
    """Whether it has ended, and what to use for the next one."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    producer_id: ProducerId = field(since=5, default=-1)  # a new one when the epochs are used up
    producer_epoch: ProducerEpoch = field(since=5, default=-1)


def refuse(request: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    """Answer with the code."""
    return EndTxnResponse(error_code=code)


END_TXN = Api(
    key=26,
    request=EndTxnRequest,
    response=EndTxnResponse,
    versions=range(6),
    flexible=3,
    refuse=refuse,
)
