"""RenewDelegationToken (key 39): let a token live longer, up to its maximum (KIP-48).

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, SecretBytes, i32, i64


class RenewDelegationTokenRequest(Message):
    """The token, identified by its HMAC, and for how long from now."""

    hmac: SecretBytes
    renew_period_ms: i64 = -1  # -1: as long as the broker gives by default


class RenewDelegationTokenResponse(Message):
    """When the token expires now."""

    error_code: ErrorCode
    expiry_timestamp: i64  # milliseconds since 1970; -1 on error
    throttle_time_ms: i32 = 0


def refuse(request: RenewDelegationTokenRequest, code: ErrorCode) -> RenewDelegationTokenResponse:
    """Answer with the code and no time."""
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp=-1)


RENEW_DELEGATION_TOKEN = Api(
    key=39,
    request=RenewDelegationTokenRequest,
    response=RenewDelegationTokenResponse,
    versions=range(3),
    flexible=2,
    refuse=refuse,
)
