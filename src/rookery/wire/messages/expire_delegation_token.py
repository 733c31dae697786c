"""ExpireDelegationToken (key 40): end a token's life, now or soon (KIP-48).

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, SecretBytes, i32, i64


class ExpireDelegationTokenRequest(Message):
    """The token, identified by its HMAC, and its remaining lifetime."""

    hmac: SecretBytes
    expiry_time_period_ms: i64 = -1  # negative: at once


class ExpireDelegationTokenResponse(Message):
    """When the token expires now."""

    error_code: ErrorCode
    expiry_timestamp: i64  # milliseconds since 1970; -1 on error
    throttle_time_ms: i32 = 0


def refuse(request: ExpireDelegationTokenRequest, code: ErrorCode) -> ExpireDelegationTokenResponse:
    """Answer with the code and no time."""
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp=-1)


EXPIRE_DELEGATION_TOKEN = Api(
    key=40,
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
    versions=range(3),
    flexible=2,
    refuse=refuse,
)
