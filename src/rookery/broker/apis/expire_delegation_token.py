"""ExpireDelegationToken: remove a token, or let it expire at another time."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.tokens.tokenrequest import change_token
from rookery.cluster.events.tokenevents import DelegationTokenRevoked
from rookery.wire.messages.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

_MAX_PERIOD_MS: Final = 2**53


@handles(EXPIRE_DELEGATION_TOKEN, versions=range(1, 3), mutates=True)
async def expire_delegation_token(
    call: Call, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Expire a token; its owner and its renewers can. A negative period removes it at once."""
    # The token's own maximum is checked later; a sum of any length would not fit the event.
    period_ms = min(request.expiry_time_period_ms, _MAX_PERIOD_MS)
    outcome = await change_token(
        call,
        request.hmac,
        DelegationTokenRevoked,
        lambda now_ms: -1 if period_ms < 0 else now_ms + period_ms,
    )
    return ExpireDelegationTokenResponse(
        error_code=outcome.error, expiry_timestamp=outcome.value or 0
    )
