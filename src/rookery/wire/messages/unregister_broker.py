"""UnregisterBroker (key 64): an operator removes a broker that will not come back (KIP-500)."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, BrokerId, Message, i32


class UnregisterBrokerRequest(Message):
    """The broker to forget; it must not be running."""

    broker_id: BrokerId


class UnregisterBrokerResponse(Message):
    """Whether the broker is forgotten."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: UnregisterBrokerRequest, code: ErrorCode) -> UnregisterBrokerResponse:
    """Give the code and its sentence."""
    return UnregisterBrokerResponse(error_code=code, error_message=code.sentence)


UNREGISTER_BROKER = Api(
    key=64,
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
