"""InitProducerId (key 22): gives a producer the id that makes it idempotent (KIP-98).

With a transactional id it also fences the producer's earlier lives, and ends what they left open;
it then goes to the transaction coordinator, otherwise to any broker.

Versions:
    1 a throttled client is answered at once and waits by itself (KIP-219).
    2 flexible.
    3 a producer may name the id it has, to get over an error with a new epoch (KIP-360).
    4 a fenced producer gets PRODUCER_FENCED (KIP-588).
    5 the client knows TRANSACTION_ABORTABLE (KIP-890).
    6 two-phase commit: a prepared transaction can be kept (KIP-939).
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


class InitProducerIdRequest(Message):
    """A producer starts, or starts over."""

    transactional_id: TransactionalId | None  # null: idempotent only
    transaction_timeout_ms: i32  # the coordinator aborts what stays open for longer
    producer_id: ProducerId = field(since=3, default=-1)  # the one it has; -1: none
    producer_epoch: ProducerEpoch = field(since=3, default=-1)
    enable2_pc: bool = field(since=6, default=False)
    keep_prepared_txn: bool = field(since=6, default=False)


class InitProducerIdResponse(Message):
    """The id and epoch to put into every batch."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    producer_id: ProducerId = -1
    producer_epoch: ProducerEpoch = -1
    # The prepared transaction that was kept; -1: there is none.
    ongoing_txn_producer_id: ProducerId = field(since=6, default=-1)
    ongoing_txn_producer_epoch: ProducerEpoch = field(since=6, default=-1)


def refuse(request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """Answer with the code and no producer id."""
    return InitProducerIdResponse(error_code=code)


INIT_PRODUCER_ID = Api(
    key=22,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    versions=range(7),
    flexible=2,
    refuse=refuse,
)
