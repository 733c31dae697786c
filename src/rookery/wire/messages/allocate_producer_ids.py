"""AllocateProducerIds (key 67): a broker takes a block of producer ids from the controller.

It hands them out one by one in InitProducerId, so that ids never repeat in a cluster (KIP-730).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, BrokerId, Message, ProducerId, i32, i64


class AllocateProducerIdsRequest(Message):
    """The broker that has run out of ids."""

    broker_id: BrokerId
    broker_epoch: i64 = -1


class AllocateProducerIdsResponse(Message):
    """A block of ids that no other broker has."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    producer_id_start: ProducerId
    producer_id_len: i32


def refuse(request: AllocateProducerIdsRequest, code: ErrorCode) -> AllocateProducerIdsResponse:
    """Give the code and an empty block."""
    return AllocateProducerIdsResponse(error_code=code, producer_id_start=-1, producer_id_len=0)


ALLOCATE_PRODUCER_IDS = Api(
    key=67,
    request=AllocateProducerIdsRequest,
    response=AllocateProducerIdsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
